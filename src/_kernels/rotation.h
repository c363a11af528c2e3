// The rotation of the one-bit code, drawn and applied row by row: four passes of signs, groups of 64 and an affine order.
//
// The reference is wire/rotation.py. Numbers are divided by the root of the group's size (a power of two), then added in
// butterflies at distance 1, 2, 4, ...: the same float32 operations in the same order, so the same bits.
#pragma once
#include "hadamard.h"
#include "operator.h"
#include "parallel.h"

namespace desketch::ISA {

constexpr int kPasses = 4;
constexpr size_t kHead = 8;  // words of a stream before its signs: a1 c1 a2 c2 a3 c3 and two spare ones

// The first number prime to b among word mod b, word mod b + 1, ...
inline uint32_t prime_to(uint32_t b, uint32_t word) {
  auto gcd = [](uint32_t x, uint32_t y) {
    while (y) { const uint32_t rest = x % y; x = y, y = rest; }
    return x;
  };
  uint32_t a = word % b;
  while (gcd(a, b) != 1) ++a;
  return a;
}

// 1/a mod b, for a prime to b.
inline uint32_t inverse(uint32_t a, uint32_t b) {
  int64_t r = b, next_r = a, t = 0, next_t = 1;
  while (next_r) {
    const int64_t q = r / next_r, rest = r - q * next_r, other = t - q * next_t;
    r = next_r, next_r = rest, t = next_t, next_t = other;
  }
  return uint32_t(t < 0 ? t + b : t);
}

// Coordinate j is taken from (a j + c) mod b.
struct Order {
  uint32_t a, c;
  Order inverted(uint32_t b) const {
    const uint32_t back = inverse(a, b);
    return {back % b, uint32_t((b - uint64_t(back) * c % b) % b)};
  }
};

inline void reorder(const float* x, Order order, uint32_t b, float* out) {
  uint32_t rows[kWords];
  for (uint32_t l = 0; l < uint32_t(kWords); ++l) rows[l] = uint32_t((uint64_t(order.a) * l + order.c) % b);
  const uint32_t step = uint32_t(uint64_t(order.a) * kWords % b);
  size_t j = 0;
  for (words at = load_words(rows); j + kWords <= b; j += kWords) {
    store<float>(out + j, gather<float>(x, rows));
    at += step;
    at = smaller(at, at - b);  // below b the difference wraps around, and is the larger one
    store_words(rows, at);
  }
  for (size_t l = 0; j < b; ++j, ++l) out[j] = x[rows[l]];
}

// 57 bits of a stream from any of them on.
inline uint64_t bits_from(const uint32_t* stream, size_t bit) {
  uint64_t word;
  memcpy(&word, reinterpret_cast<const char*>(stream) + bit / 8, sizeof word);
  return word >> (bit % 8);
}

// One group of H: signed before the transform (forth) or after (back); sign i is bit `bit` + i.
template <int H, bool kBack> inline void mix_group(const float* x, const uint32_t* signs, size_t bit, float* out) {
  constexpr int L = kLanes<float>;
  constexpr float root = H == 64 ? 0.125f : H == 16 ? 0.25f : 0.5f;
  if constexpr (H >= L) {
    vec<float> v[H / L];
#pragma GCC unroll 16
    for (int k = 0; k < H / L; ++k) {
      v[k] = load<float>(x + k * L);
      if (!kBack) v[k] = flip(v[k], bits_from(signs, bit + size_t(k * L)));
      v[k] = lanes<float>(v[k] * root);
    }
    across<float, H / L>(v);
#pragma GCC unroll 16
    for (int k = 0; k < H / L; ++k) {
      if (kBack) v[k] = flip(v[k], bits_from(signs, bit + size_t(k * L)));
      store<float>(out + k * L, v[k]);
    }
  } else {
    float v[H];
    const uint32_t negative = uint32_t(bits_from(signs, bit));
    for (int i = 0; i < H; ++i) v[i] = (kBack ? x[i] : flip_one(x[i], negative >> i & 1)) * root;
    for (int h = 1; h < H; h *= 2)
      for (int i = 0; i < H; ++i)
        if (!(i & h)) {
          const float a = v[i], b = v[i + h];
          v[i] = a + b, v[i + h] = a - b;
        }
    for (int i = 0; i < H; ++i) out[i] = kBack ? flip_one(v[i], negative >> i & 1) : v[i];
  }
}

// Groups of 64 consecutive coordinates, what is left in groups of 16, 4 and 1.
template <bool kBack> void mix(const float* x, const uint32_t* signs, size_t bit, size_t b, float* out) {
  size_t i = 0;
  for (; i + 64 <= b; i += 64) mix_group<64, kBack>(x + i, signs, bit + i, out + i);
  for (; i + 16 <= b; i += 16) mix_group<16, kBack>(x + i, signs, bit + i, out + i);
  for (; i + 4 <= b; i += 4) mix_group<4, kBack>(x + i, signs, bit + i, out + i);
  for (; i < b; ++i) out[i] = flip_one(x[i], uint32_t(bits_from(signs, bit + i) & 1));
}

// The rotations of one thread: memory for the words of a stream, and for a row in another order.
struct Rotations {
  explicit Rotations(const Turn& turn)
      : turn(turn), groups((kHead + (kPasses * turn.b + 31) / 32 + 63) / 64), memory(64 * groups + 2 + turn.b) {}

  // out = Q x or Q^T x by the stream of a row's salt; x may be out.
  void turn_row(size_t row, const float* x, float* out) {
    const size_t b = turn.b;
    uint32_t* stream = memory.data();
    float* in_order = reinterpret_cast<float*>(stream + 64 * groups + 2);
    const Stream words(turn.key, turn.salts[row]);
    for (size_t q = 0; q < groups; ++q) philox(words, uint32_t(q), stream + 64 * q);
    stream[64 * groups] = stream[64 * groups + 1] = 0;  // read with the last bits, never used
    auto order = [&](int k) { return Order{prime_to(uint32_t(b), stream[2 * k]), stream[2 * k + 1] % uint32_t(b)}; };
    for (int pass = 0; pass < kPasses; ++pass) {
      const int k = turn.back ? kPasses - 1 - pass : pass;
      if (pass) {
        reorder(out, turn.back ? order(k).inverted(uint32_t(b)) : order(k - 1), uint32_t(b), in_order);
        x = in_order;
      }
      if (turn.back) mix<true>(x, stream + kHead, size_t(k) * b, b, out);
      else mix<false>(x, stream + kHead, size_t(k) * b, b, out);
    }
  }

  const Turn& turn;
  size_t groups;
  Scratch<uint32_t> memory;
};

inline void rotate(const Turn& turn, const float* x, float* y, int threads) {
  parallel_each([&] { return Rotations(turn); }, turn.n, threads,
                [&](size_t row, Rotations& one) { one.turn_row(row, x + row * turn.b, y + row * turn.b); });
}

// +-1 by the bits of a message.
inline void signs_of(const uint8_t* bits, size_t b, float* out) {
  constexpr size_t L = size_t(kLanes<float>);
  size_t i = 0;
  for (; i + 64 <= b; i += 64) {
    uint64_t word;
    memcpy(&word, bits + i / 8, sizeof word);
    for (size_t l = 0; l < 64; l += L) store<float>(out + i + l, flip(vec<float>{} + 1.0f, word >> l));
  }
  for (; i < b; ++i) out[i] = flip_one(1.0f, bits[i / 8] >> (i % 8) & 1u);
}

inline void decode(const Turn& turn, const OneBit& signs, float* y, int threads) {
  parallel_each([&] { return Rotations(turn); }, turn.n, threads, [&](size_t row, Rotations& one) {
    float* out = y + row * turn.b;
    signs_of(signs.bits + row * signs.stride, turn.b, out);
    one.turn_row(row, out, out);
    const float scale = signs.scales[row];
    for (size_t i = 0; i < turn.b; ++i) out[i] *= scale;
  });
}

}  // namespace desketch::ISA
