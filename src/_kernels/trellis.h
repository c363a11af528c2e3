// The search of the trellis code: the bits whose vector is nearest to a row of whole numbers, circle by circle.
//
// The reference is wire/trellis.py. Costs are whole numbers and ties go to the lower state, so both find the same bits.
#pragma once
#include "operator.h"
#include "parallel.h"

namespace desketch::ISA {

constexpr int kMemory = 10;                 // bits of a state, the newest on top
constexpr size_t kStates = size_t(1) << kMemory, kHalf = kStates / 2;
constexpr size_t kCircle = 2048;            // bits of a circle, at most
constexpr size_t kAhead = 4 * kMemory;      // steps on either side of a seam from which a search knows where to cross it
constexpr int32_t kFar = int32_t(1) << 28;  // more than any path can cost beside another
constexpr size_t kLevelled = 64;            // steps after which costs are brought near 0 again

// The searches of one thread: the table as the loops read it, two rows of costs, and which state of two led on at every step.
struct Search {
  explicit Search(const Paths& paths) : paths(paths), V(paths.V), memory(kStates * (paths.V + 3)), second(kHalf * kCircle) {
    own = memory.data(), cost = own + kStates, next = cost + kStates, twice = next + kStates;
    for (size_t s = 0; s < kStates; ++s) {
      own[s] = 0;
      for (size_t v = 0; v < V; ++v) {
        const int32_t number = paths.table[s * V + v];
        own[s] += number * number;
        twice[v * kStates + s] = 2 * number;
      }
    }
  }

  // One step: the cheaper of the states 2j, 2j + 1 leads on to j and to j + 512. One loop, so that a cost is read once.
  template <size_t V>
  static void lead(const int32_t* goal, const int32_t* __restrict own, const int32_t* __restrict twice,
                   const int32_t* __restrict cost, int32_t* __restrict next, uint8_t* __restrict which) {
    int32_t by[V];
    for (size_t v = 0; v < V; ++v) by[v] = goal[v];
    for (size_t j = 0; j < kHalf; ++j) {
      const int32_t first = cost[2 * j], other = cost[2 * j + 1], cheaper = other < first ? other : first;
      which[j] = other < first;
      int32_t low = cheaper + own[j], high = cheaper + own[j + kHalf];
      for (size_t v = 0; v < V; ++v) {
        low -= by[v] * twice[v * kStates + j];
        high -= by[v] * twice[v * kStates + j + kHalf];
      }
      next[j] = low, next[j + kHalf] = high;
    }
  }

  void step(const int32_t* goal, uint8_t* which) {
    const auto one = V == 1 ? lead<1> : V == 2 ? lead<2> : lead<3>;
    one(goal, own, twice, cost, next, which);
    int32_t* done = cost;
    cost = next, next = done;
  }

  // Steps over the goals begin .. end - 1 of a circle of T, which wraps around.
  void walk(const int32_t* goals, size_t T, size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t) {
      step(goals + t % T * V, second.data() + (t - begin) * kHalf);
      if ((t - begin) % kLevelled) continue;
      const int32_t level = cost[0];
      for (size_t s = 0; s < kStates; ++s) cost[s] -= level;
    }
  }

  size_t before(size_t state, size_t step) {
    const size_t half = state & (kHalf - 1);
    return 2 * half + second.data()[step * kHalf + half];
  }

  // Where the best path crosses the seam first, then the best one that closes there.
  void circle(const int32_t* goals, size_t T, size_t at, uint8_t* bits) {
    for (size_t s = 0; s < kStates; ++s) cost[s] = 0;
    walk(goals, T, kAhead * T - kAhead, kAhead * T + kAhead);  // a short circle more than once
    size_t seam = 0;
    for (size_t s = 1; s < kStates; ++s)
      if (cost[s] < cost[seam]) seam = s;
    for (size_t step = 2 * kAhead - 1; step >= kAhead; --step) seam = before(seam, step);
    for (size_t s = 0; s < kStates; ++s) cost[s] = s == seam ? 0 : kFar;
    walk(goals, T, 0, T);
    for (size_t t = T, state = seam; t-- > 0; state = before(state, t)) put(bits, at + t, state >> (kMemory - 1));
  }

  // A circle of fewer bits than a state has: the first of all its vectors that are nearest.
  void all_of_them(const int32_t* goals, size_t T, size_t at, uint8_t* bits) {
    int64_t least_cost = INT64_MAX;
    size_t best = 0;
    for (size_t word = 0; word < size_t(1) << T; ++word) {
      int64_t sum = 0;
      for (size_t i = 0; i < T; ++i) {
        size_t state = 0;
        for (size_t age = 0; age < size_t(kMemory); ++age)
          state |= (word >> ((i + kMemory * T - age) % T) & 1) << (size_t(kMemory) - 1 - age);
        sum += own[state];
        for (size_t v = 0; v < V; ++v) sum -= int64_t(goals[i * V + v]) * twice[v * kStates + state];
      }
      if (sum < least_cost) least_cost = sum, best = word;
    }
    for (size_t i = 0; i < T; ++i) put(bits, at + i, best >> i & 1);
  }

  void row(const int32_t* goals, uint8_t* bits) {
    for (size_t at = 0; at < paths.T; at += kCircle) {
      const size_t T = least(kCircle, paths.T - at);
      if (T < size_t(kMemory)) all_of_them(goals + at * V, T, at, bits);
      else circle(goals + at * V, T, at, bits);
    }
  }

  static void put(uint8_t* bits, size_t i, size_t bit) { bits[i / 8] = uint8_t(bits[i / 8] | bit << (i % 8)); }

  const Paths& paths;
  size_t V;
  Scratch<int32_t> memory;
  Scratch<uint8_t> second;
  int32_t *own, *cost, *next, *twice;
};

// `bits` are zero before.
inline void search(const Paths& paths, uint8_t* bits, int threads) {
  parallel_each([&] { return Search(paths); }, paths.n, threads, [&](size_t row, Search& one) {
    one.row(paths.goals + row * paths.T * paths.V, bits + row * ((paths.T + 7) / 8));
  });
}

}  // namespace desketch::ISA
