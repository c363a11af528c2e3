// CountSketch and the sparse embeddings: 64 signed numbers added at an offset (block), or one by one (textbook).
//
// A table of M rows is padded by 64, so that a block never wraps inside the loop; the pad is folded once at the end.
#pragma once
#include "hashes.h"
#include "operator.h"
#include "parallel.h"

namespace desketch::ISA {

class Sparse {
 public:
  explicit Sparse(const Params& p) : d_(p.d), b_(p.b), nnz_(p.nnz), blocked_(p.blocked), one_(strcmp(p.family, "sparse2") != 0) {
    floyd_ = strcmp(p.family, "sparse1") == 0;
    for (int64_t j = 0; j < nnz_; ++j) {
      const int64_t first = one_ ? 0 : j * b_ / nnz_, end = one_ ? b_ : (j + 1) * b_ / nnz_;
      signs_.push_back(Signs(p.key, uint32_t(j), d_));
      buckets_.push_back(Buckets(p.key, uint32_t(j), uint32_t(floyd_ ? b_ - nnz_ + j + 1 : end - first)));
      start_.push_back(first + (one_ ? 0 : kPad * j));
      if (!one_ || j == 0) {
        const double scale = one_ ? 1 / __builtin_sqrt(double(nnz_)) : __builtin_sqrt(double(end - first) / double(b_));
        tables_.push_back({first, end - first, start_[size_t(j)], scale});
      }
    }
    width_ = size_t(b_) + kPad * tables_.size();
  }

  // The superblocks are summed in chunks, and the chunks' tables added in order, whoever sums them.
  template <class T> void sketch(const T* g, T* y, size_t n, int threads) const {
    const size_t supers = size_t(d_ + kSuper - 1) / kSuper, chunks = chunk_count(supers);
    const size_t groups = (n + kGroup - 1) / kGroup;
    auto sum = [&](size_t group, size_t c, Hashes& hashes, T* tables, size_t stride) {
      const size_t v0 = group * kGroup, v1 = least(n, v0 + kGroup);
      for (size_t p = supers * c / chunks; p < supers * (c + 1) / chunks; ++p) {
        hash(uint32_t(p), hashes);
        for (size_t v = v0; v < v1; ++v) add(hashes, g + v * size_t(d_), p, tables + (v - v0) * stride);
      }
    };
    if (threads > 1 && chunks > 1) {
      Scratch<T> tables(n * chunks * width_);
      tables.zero();
      parallel_each(NewHashes{size_t(nnz_)}, groups * chunks, threads, [&](size_t item, Hashes& hashes) {
        const size_t group = item / chunks, c = item % chunks;
        sum(group, c, hashes, &tables[(group * kGroup * chunks + c) * width_], chunks * width_);
      });
      parallel(n, threads, [&](size_t v) {
        for (size_t c = 0; c < chunks; ++c) fold(&tables[(v * chunks + c) * width_], c, chunks, y + v * size_t(b_));
      });
      return;
    }
    struct State {
      Hashes hashes;
      Scratch<T> tables;
    };
    auto make = [&] { return State{Hashes(size_t(nnz_)), Scratch<T>(least(n, kGroup) * width_)}; };
    parallel_each(make, groups, threads, [&](size_t group, State& state) {
      Scratch<T>& tables = state.tables;
      for (size_t c = 0; c < chunks; ++c) {
        tables.zero();
        sum(group, c, state.hashes, tables.data(), width_);
        for (size_t v = group * kGroup; v < least(n, (group + 1) * kGroup); ++v)
          fold(&tables[v % kGroup * width_], c, chunks, y + v * size_t(b_));
      }
    });
  }

  template <class T> void desketch(const T* s, T* out, size_t n, double scale, bool add, int threads) const {
    const size_t supers = size_t(d_ + kSuper - 1) / kSuper;
    Scratch<T> scaled(n * width_);
    for (size_t v = 0; v < n; ++v) spread(s + v * size_t(b_), scale, &scaled[v * width_]);
    const size_t run = most<size_t>(1, least<size_t>(64, supers / 16));
    parallel_each(NewHashes{size_t(nnz_)}, (supers + run - 1) / run, threads, [&](size_t item, Hashes& hashes) {
      for (size_t p = item * run; p < least(supers, (item + 1) * run); ++p) {
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
  struct Hashes {  // of one superblock: signs by layer and block, rows by layer and block (textbook: of two blocks in turn)
    explicit Hashes(size_t nnz) : signs(64 * nnz), rows(128 * nnz), turn(64 * nnz) {}
    uint32_t* rows_of(size_t r) { return &rows[r % 2 * turn]; }
    Scratch<uint64_t> signs;
    Scratch<uint32_t> rows;
    size_t turn;
  };

  struct NewHashes {
    size_t nnz;
    Hashes operator()() const { return Hashes(nnz); }
  };

  // How many partial sums: a function of (d, b) alone, so that the result does not depend on the threads.
  size_t chunk_count(size_t supers) const {
    return size_t(most<int64_t>(1, least<int64_t>(16, least<int64_t>(d_ / (24 * b_), int64_t(supers / 16)))));
  }

  void offsets(uint32_t q, uint32_t* rows) const {
    for (int64_t j = 0; j < nnz_; ++j) {
      uint32_t* mine = rows + 64 * j;
      buckets_[size_t(j)].group(q, mine);
      if (!floyd_) continue;
      for (int l = 0; l < 64; l += kWords) {
        const words u = load_words(mine + l), last = words{} + uint32_t(b_ - nnz_ + j);
        words taken = {};
        for (int64_t i = 0; i < j; ++i) taken |= (words)(load_words(rows + 64 * i + l) == u);
        store_words(mine + l, (taken & last) | (~taken & u));
      }
    }
  }

  void hash(uint32_t p, Hashes& h) const {
    for (int64_t j = 0; j < nnz_; ++j) signs_[size_t(j)].superblock(p, &h.signs[size_t(64 * j)]);
    if (blocked_) offsets(p, h.rows_of(0));
  }

  // visit(r, rows) for the blocks r of superblock p. Textbook rows are hashed one block ahead: hashing keeps the vector units
  // busy while the table is waited for.
  template <class Visit> void each_block(Hashes& h, size_t p, Visit visit) const {
    const size_t blocks = size_t(least<int64_t>(64, (d_ - int64_t(p) * kSuper + 63) / 64));
    if (blocked_) {
      for (size_t r = 0; r < blocks; ++r) visit(r, h.rows_of(0));
      return;
    }
    const uint32_t q = uint32_t(64 * p);
    offsets(q, h.rows_of(0));
    for (uint32_t r = 0; r < blocks; ++r) {
      if (r + 1 < blocks) offsets(q + r + 1, h.rows_of(r + 1));
      visit(size_t(r), h.rows_of(r));
    }
  }

  template <class T> void add(Hashes& h, const T* g, size_t p, T* table) const {
    each_block(h, p, [&](size_t r, const uint32_t* rows) {
      const size_t first = p * kSuper + 64 * r;
      alignas(64) T padded[64];
      const T* block = g + first;
      for (size_t l = 0; l < 64; l += 64 / sizeof(T)) call_ahead(block + l);
      if (first + 64 > size_t(d_)) {
        for (size_t l = 0; l < 64; ++l) padded[l] = first + l < size_t(d_) ? g[first + l] : T(0);
        block = padded;
      }
      for (int64_t j = 0; j < nnz_; ++j) {
        const size_t at = size_t(64 * j) + r;
        T* layer = table + start_[size_t(j)];
        if (!blocked_) {
          scatter(block, h.signs[at], rows + 64 * j, layer);
          continue;
        }
        if (r + kAhead < 64) prefetch(layer + rows[at + kAhead]);
        add_block(block, h.signs[at], layer + rows[at]);
      }
    });
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
    alignas(64) T y[64];
    for (int l = 0; l < 64; l += L) store<T>(y + l, flip(load<T>(x + l), signs >> l));
#pragma GCC unroll 16
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
    const size_t have = least<size_t>(kSuper, size_t(d_) - p * kSuper);
    const bool streams = !add && worth_streaming(size_t(d_)), staged = streams || have % 64;
    alignas(64) T stage[kSuper];
    if (add && staged) copy_n(out, have, stage);
    T* to = staged ? stage : out;
    each_block(h, p, [&](size_t r, const uint32_t* rows) { take_block(h, r, rows, table, to + 64 * r, add); });
    if (streams) stream_copy(stage, out, have);
    else if (staged) copy_n(stage, have, out);
  }

  template <class T> void take_block(Hashes& h, size_t r, const uint32_t* rows, const T* table, T* out, bool add) const {
    constexpr int L = kLanes<T>;
    vec<T> sum[64 / L];
    for (int64_t j = 0; j < nnz_; ++j) {
      const size_t at = size_t(64 * j) + r;
      const T* layer = table + start_[size_t(j)];
      if (blocked_ && r + kAhead < 64) prefetch(layer + rows[at + kAhead]);
      for (int l = 0; l < 64 / L; ++l) {
        const vec<T> x = blocked_ ? load<T>(layer + rows[at] + l * L) : gather<T>(layer, rows + 64 * j + l * L);
        const vec<T> y = flip(x, h.signs[at] >> (l * L));
        sum[l] = j == 0 ? y : sum[l] + y;
      }
    }
    for (int l = 0; l < 64 / L; ++l) store<T>(out + l * L, add ? load<T>(out + l * L) + sum[l] : sum[l]);
  }

  int64_t d_, b_, nnz_;
  bool blocked_, one_, floyd_;
  List<Signs> signs_;
  List<Buckets> buckets_;
  List<int64_t> start_;
  List<Table> tables_;
  size_t width_;
};

}  // namespace desketch::ISA
