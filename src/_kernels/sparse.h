// CountSketch and the sparse embeddings: 64 signed numbers added at an offset (block), or one by one (textbook).
//
// A table of M rows is padded by 64, so that a block never wraps inside the loop; the pad is folded once at the end.
#pragma once
#include <cmath>

#include "hashes.h"
#include "operator.h"

namespace desketch::ISA {

class Sparse {
 public:
  explicit Sparse(const Params& p) : d_(p.d), b_(p.b), nnz_(p.nnz), blocked_(p.blocked), one_(p.family != "sparse2") {
    floyd_ = p.family == "sparse1";
    for (int64_t j = 0; j < nnz_; ++j) {
      const int64_t first = one_ ? 0 : j * b_ / nnz_, end = one_ ? b_ : (j + 1) * b_ / nnz_;
      signs_.emplace_back(p.key, uint32_t(j), d_);
      buckets_.emplace_back(p.key, uint32_t(j), uint32_t(floyd_ ? b_ - nnz_ + j + 1 : end - first));
      start_.push_back(first + (one_ ? 0 : kPad * j));
      if (!one_ || j == 0) {
        const double scale = one_ ? 1 / std::sqrt(double(nnz_)) : std::sqrt(double(end - first) / double(b_));
        tables_.push_back({first, end - first, start_.back(), scale});
      }
    }
    width_ = size_t(b_) + kPad * tables_.size();
  }

  // The superblocks are summed in chunks, and the chunks' tables added in order, whoever sums them.
  template <class T> void sketch(const T* g, T* y, size_t n, int threads) const {
    const size_t supers = size_t(d_ + kSuper - 1) / kSuper, chunks = chunk_count(supers);
    const size_t groups = (n + kGroup - 1) / kGroup;
    auto sum = [&](size_t group, size_t c, T* tables, size_t stride) {
      const size_t v0 = group * kGroup, v1 = std::min(n, v0 + kGroup);
      Hashes hashes{size_t(nnz_)};
      for (size_t p = supers * c / chunks; p < supers * (c + 1) / chunks; ++p) {
        hash(uint32_t(p), hashes);
        for (size_t v = v0; v < v1; ++v) add(hashes, g + v * size_t(d_), p, tables + (v - v0) * stride);
      }
    };
    if (threads > 1 && chunks > 1) {
      std::vector<T> tables(n * chunks * width_);
      parallel(groups * chunks, threads, [&](size_t item) {
        const size_t group = item / chunks, c = item % chunks;
        sum(group, c, &tables[(group * kGroup * chunks + c) * width_], chunks * width_);
      });
      parallel(n, threads, [&](size_t v) {
        for (size_t c = 0; c < chunks; ++c) fold(&tables[(v * chunks + c) * width_], c, chunks, y + v * size_t(b_));
      });
      return;
    }
    parallel_with<T>(std::min(n, kGroup) * width_, groups, threads, [&](size_t group, std::vector<T>& tables) {
      for (size_t c = 0; c < chunks; ++c) {
        std::memset(tables.data(), 0, tables.size() * sizeof(T));
        sum(group, c, tables.data(), width_);
        for (size_t v = group * kGroup; v < std::min(n, (group + 1) * kGroup); ++v)
          fold(&tables[v % kGroup * width_], c, chunks, y + v * size_t(b_));
      }
    });
  }

  template <class T> void desketch(const T* s, T* out, size_t n, double scale, bool add, int threads) const {
    const size_t supers = size_t(d_ + kSuper - 1) / kSuper;
    std::vector<T> scaled(n * width_);
    for (size_t v = 0; v < n; ++v) spread(s + v * size_t(b_), scale, &scaled[v * width_]);
    const size_t run = std::max<size_t>(1, std::min<size_t>(64, supers / 16));
    parallel((supers + run - 1) / run, threads, [&](size_t item) {
      Hashes hashes{size_t(nnz_)};
      for (size_t p = item * run; p < std::min(supers, (item + 1) * run); ++p) {
        hash(uint32_t(p), hashes);
        for (size_t v = 0; v < n; ++v) take(hashes, &scaled[v * width_], p, out + v * size_t(d_), add);
      }
      end_streams();
    });
  }

 private:
  static constexpr int64_t kPad = 64;
  static constexpr size_t kGroup = 8;  // vectors that share one pass of hashing
  struct Table { int64_t first, rows, start; double scale; };
  struct Hashes {  // of one superblock: signs by layer, and offsets by layer and block (textbook: 64 of one block)
    explicit Hashes(size_t nnz) : signs(64 * nnz), rows(64 * nnz), super(0) {}
    std::vector<uint64_t> signs;
    std::vector<uint32_t> rows;
    uint32_t super;
  };

  // How many partial sums: a function of (d, b) alone, so that the result does not depend on the threads.
  size_t chunk_count(size_t supers) const {
    return size_t(std::max<int64_t>(1, std::min<int64_t>({16, d_ / (24 * b_), int64_t(supers / 16)})));
  }

  void offsets(uint32_t q, uint32_t* rows) const {
    for (int64_t j = 0; j < nnz_; ++j) {
      uint32_t* mine = rows + 64 * j;
      buckets_[size_t(j)].group(q, mine);
      if (!floyd_) continue;
      const uint32_t last = uint32_t(b_ - nnz_ + j);
      for (int l = 0; l < 64; ++l) {
        bool taken = false;
        for (int64_t i = 0; i < j; ++i) taken |= rows[64 * i + l] == mine[l];
        mine[l] = taken ? last : mine[l];
      }
    }
  }

  void hash(uint32_t p, Hashes& h) const {
    h.super = p;
    for (int64_t j = 0; j < nnz_; ++j) signs_[size_t(j)].superblock(p, &h.signs[size_t(64 * j)]);
    if (blocked_) offsets(p, h.rows.data());
  }

  size_t blocks_in(size_t p) const { return size_t(std::min<int64_t>(64, (d_ - int64_t(p) * kSuper + 63) / 64)); }

  template <class T> void add(Hashes& h, const T* g, size_t p, T* table) const {
    const T* x = g + p * kSuper;
    const size_t blocks = blocks_in(p);
    for (size_t r = 0; r < blocks; ++r, x += 64) {
      T padded[64];
      const T* block = x;
      if (p * kSuper + 64 * r + 64 > size_t(d_)) {
        const size_t have = size_t(d_) - p * kSuper - 64 * r;
        for (size_t l = 0; l < 64; ++l) padded[l] = l < have ? x[l] : T(0);
        block = padded;
      }
      if (blocked_) {
        for (int64_t j = 0; j < nnz_; ++j) {
          const size_t at = size_t(64 * j) + r;
          if (r + kAhead < blocks) prefetch(table + start_[size_t(j)] + h.rows[at + kAhead]);
          add_block(block, h.signs[at], table + start_[size_t(j)] + h.rows[at]);
        }
      } else {
        offsets(uint32_t(64 * p + r), h.rows.data());
        for (int64_t j = 0; j < nnz_; ++j)
          scatter(block, h.signs[size_t(64 * j) + r], &h.rows[size_t(64 * j)], table + start_[size_t(j)]);
      }
    }
  }

  static constexpr size_t kAhead = 6;
  template <class T> static void prefetch(const T* p) {
    for (size_t l = 0; l < 64 + 16; l += 64 / sizeof(T)) __builtin_prefetch(p + l, 1);
  }

  template <class T> static void add_block(const T* x, uint64_t signs, T* table) {
    constexpr int L = kLanes<T>;
    for (int l = 0; l < 64; l += L) store<T>(table + l, load<T>(table + l) + flip(load<T>(x + l), signs >> l));
  }

  template <class T> static void scatter(const T* x, uint64_t signs, const uint32_t* rows, T* table) {
    constexpr int L = kLanes<T>;
    T y[64];
    for (int l = 0; l < 64; l += L) store<T>(y + l, flip(load<T>(x + l), signs >> l));
    for (int l = 0; l < 64; ++l) table[rows[l]] += y[l];
  }

  // Add the table of chunk c to y, its pad folded; scale with the last.
  template <class T> void fold(T* partial, size_t c, size_t chunks, T* y) const {
    for (const Table& t : tables_) {
      T* table = partial + t.start;
      for (int64_t k = 0; blocked_ && k < kPad; ++k) table[k] += table[t.rows + k];
      const T scale = c + 1 == chunks ? T(t.scale) : T(1);
      for (int64_t k = 0; k < t.rows; ++k) y[t.first + k] = (c == 0 ? table[k] : y[t.first + k] + table[k]) * scale;
    }
  }

  // The scaled sketch in padded tables whose pads repeat their beginnings.
  template <class T> void spread(const T* s, double scale, T* padded) const {
    for (const Table& t : tables_) {
      const T outer = T(scale), inner = T(t.scale);
      for (int64_t k = 0; k < t.rows; ++k) padded[t.start + k] = s[t.first + k] * outer * inner;
      for (int64_t k = 0; blocked_ && k < kPad; ++k) padded[t.start + t.rows + k] = padded[t.start + k];
    }
  }

  // Superblock p of w: staged and streamed where w is long, else in place.
  template <class T> void take(Hashes& h, const T* table, size_t p, T* w, bool add) const {
    T* out = w + p * kSuper;
    const size_t blocks = blocks_in(p), have = std::min<size_t>(kSuper, size_t(d_) - p * kSuper);
    const bool streams = !add && worth_streaming(size_t(d_)), staged = streams || have % 64;
    alignas(64) T stage[kSuper];
    if (add && staged) std::copy_n(out, have, stage);
    T* to = staged ? stage : out;
    for (size_t r = 0; r < blocks; ++r) {
      if (!blocked_) offsets(uint32_t(64 * p + r), h.rows.data());
      take_block(h, r, table, to + 64 * r, add);
    }
    if (streams) stream_copy(stage, out, have);
    else if (staged) std::copy_n(stage, have, out);
  }

  template <class T> void take_block(const Hashes& h, size_t r, const T* table, T* out, bool add) const {
    constexpr int L = kLanes<T>;
    T gathered[64];
    vec<T> sum[64 / L];
    for (int64_t j = 0; j < nnz_; ++j) {
      const size_t at = size_t(64 * j) + r;
      const T* source = table + start_[size_t(j)] + (blocked_ ? h.rows[at] : 0);
      if (blocked_) {
        if (r + kAhead < 64) prefetch(table + start_[size_t(j)] + h.rows[at + kAhead]);
      } else {
        for (int l = 0; l < 64; ++l) gathered[l] = source[h.rows[size_t(64 * j + l)]];
        source = gathered;
      }
      for (int l = 0; l < 64 / L; ++l) {
        const vec<T> x = flip(load<T>(source + l * L), h.signs[at] >> (l * L));
        sum[l] = j == 0 ? x : sum[l] + x;
      }
    }
    for (int l = 0; l < 64 / L; ++l) {
      store<T>(out + l * L, add ? load<T>(out + l * L) + sum[l] : sum[l]);
    }
  }

  int64_t d_, b_, nnz_;
  bool blocked_, one_, floyd_;
  std::vector<Signs> signs_;
  std::vector<Buckets> buckets_;
  std::vector<int64_t> start_;
  std::vector<Table> tables_;
  size_t width_;
};

}  // namespace desketch::ISA
