// SRHT: signs, Walsh-Hadamard transforms in cache-sized segments, and only the sampled rows ever written.
#pragma once
#include "hadamard.h"
#include "operator.h"
#include "parallel.h"

namespace desketch::ISA {

// Rows sorted by their place in a segment, listed as a transpose writes them: the first row of every place, then the others.
struct Placement {
  Placement(const List<uint32_t>& rows, uint32_t shift, size_t segment) : taken((segment + 63) / 64) {
    List<uint32_t> others;
    order.reserve(rows.size() + 16);
    for (uint32_t k = 0; k < rows.size(); ++k) {
      const uint32_t lo = rows[k] >> shift;
      const bool first = k == 0 || lo != rows[k - 1] >> shift;
      taken[lo >> 6] |= uint64_t(1) << (lo & 63);
      (first ? order : others).push_back(k);
    }
    firsts = order.size();
    for (const uint32_t k : others) order.push_back(k);
    for (const uint32_t k : order) row.push_back(rows[k]);
    row.resize(rows.size() + 16);  // read sixteen at a time
  }
  List<uint32_t> order, row;
  size_t firsts;
  List<uint64_t> taken;  // the places that have a row, as bits
};

class Srht {
 public:
  explicit Srht(const Params& p)
      : d_(size_t(p.d)), b_(size_t(p.b)), size_(size_t(p.size)), segment_(size_t(p.segment)), scale_(p.scale),
        count_(size_ / segment_), signs_(p.key, 0, p.d),
        rows_(sample_rows(p.key, p.size * ((p.d + p.size - 1) / p.size), p.b)) {
    shift_ = uint32_t(__builtin_ctzll(count_));
  }

  template <class T> void sketch(const T* g, T* y, size_t n, int threads) const {
    if (count_ == 1) sketch_blocks(g, y, n, threads);
    else sketch_segments(g, y, n, threads);
  }

  template <class T> void desketch(const T* s, T* out, size_t n, double scale, bool add, int threads) const {
    if (count_ == 1) desketch_blocks(s, out, n, T(scale), add, threads);
    else desketch_segments(s, out, n, T(scale), add, threads);
  }

 private:
  size_t row_from(size_t row) const {
    return lower_bound(rows_, uint32_t(row));
  }

  // scratch = the signed coordinates first .. first + length - 1, transformed in pieces of a segment.
  template <class T> void transform(const T* g, size_t first, size_t length, T* scratch) const {
    const size_t piece = least<size_t>(segment_, kSuper);
    const bool vector = piece >= most<size_t>(64, kFirst<T>);
    uint64_t words[64];
    for (size_t i = 0; i < length; i += kSuper) {
      const size_t at = first + i;
      if (at >= d_) {
        memset(scratch + i, 0, (length - i) * sizeof(T));
        break;
      }
      signs_.superblock(uint32_t(at / kSuper), words);
      const bool whole = d_ - at >= kSuper && vector;
      if (!whole)
        for (size_t l = 0; l < kSuper; ++l)
          scratch[i + l] = at + l < d_ ? flip_one(g[at + l], uint32_t(words[l >> 6] >> (l & 63) & 1)) : T(0);
      for (size_t l = 0; l < kSuper; l += piece) {
        if (whole) transform_piece<T>(g + at + l, words + l / 64, scratch + i + l, piece);
        else fwht<T>(scratch + i + l, piece);
      }
    }
    for (size_t i = 0; i < length; i += segment_) stages<T>(scratch + i, segment_, piece);
  }

  // Blocks hold all their rows.
  template <class T> void sketch_blocks(const T* g, T* y, size_t n, int threads) const {
    const size_t length = most<size_t>(segment_, kSuper), pieces = (d_ + length - 1) / length;
    const T scale = T(scale_);
    parallel_with<T>(length, n * pieces, threads, [&](size_t item, Scratch<T>& scratch) {
      const size_t v = item / pieces, first = item % pieces * length;
      transform(g + v * d_, first, length, scratch.data());
      for (size_t k = row_from(first); k < b_ && rows_[k] < first + length; ++k)
        y[v * b_ + k] = scratch[rows_[k] - first] * scale;
    });
  }

  // Rows of a long transform are sums over its segments. Partial sums over chunks of segments are added in order, whoever
  // makes them; the number of chunks depends on (d, b) alone.
  template <class T> void sketch_segments(const T* g, T* y, size_t n, int threads) const {
    const size_t used = (d_ + segment_ - 1) / segment_;
    const size_t chunks = most<size_t>(1, least<size_t>(8, used / 8));
    auto sum = [&](size_t v, size_t c, T* scratch, T* partial) {
      memset(partial, 0, b_ * sizeof(T));
      for (size_t t = used * c / chunks; t < used * (c + 1) / chunks; ++t) {
        transform(g + v * d_, t * segment_, segment_, scratch);
        collect(scratch, uint32_t(t), partial);
      }
    };
    auto fold = [&](size_t v, size_t c, const T* partial) {
      const T scale = c + 1 == chunks ? T(scale_) : T(1);
      T* out = y + v * b_;
      for (size_t k = 0; k < b_; ++k) out[k] = (c == 0 ? partial[k] : out[k] + partial[k]) * scale;
    };
    if (size_t(threads) <= n) {
      parallel_with<T>(segment_ + b_, n, threads, [&](size_t v, Scratch<T>& scratch) {
        for (size_t c = 0; c < chunks; ++c) {
          sum(v, c, scratch.data(), &scratch[segment_]);
          fold(v, c, &scratch[segment_]);
        }
      });
      return;
    }
    Scratch<T> partial(n * chunks * b_);
    parallel_with<T>(segment_, n * chunks, threads, [&](size_t item, Scratch<T>& scratch) {
      sum(item / chunks, item % chunks, scratch.data(), &partial[item * b_]);
    });
    for (size_t item = 0; item < n * chunks; ++item) fold(item / chunks, item % chunks, &partial[item * b_]);
  }

  template <class T> void desketch_blocks(const T* s, T* out, size_t n, T scale, bool add, int threads) const {
    const size_t length = most<size_t>(segment_, kSuper), pieces = (d_ + length - 1) / length;
    parallel_with<T>(length, n * pieces, threads, [&](size_t item, Scratch<T>& scratch) {
      const size_t v = item / pieces, first = item % pieces * length;
      scratch.zero();
      for (size_t k = row_from(first); k < b_ && rows_[k] < first + length; ++k)
        scratch[rows_[k] - first] = s[v * b_ + k] * scale * T(scale_);
      for (size_t i = 0; i < length; i += segment_) fwht<T>(&scratch[i], segment_);
      write_signed(scratch.data(), out + v * d_, first, length, add);
    });
  }

  template <class T> void desketch_segments(const T* s, T* out, size_t n, T scale, bool add, int threads) const {
    const size_t segments = (d_ + segment_ - 1) / segment_;
    const Placement placement(rows_, shift_, segment_);
    Scratch<T> scaled(n * b_ + 16);
    for (size_t v = 0; v < n; ++v)
      for (size_t i = 0; i < b_; ++i) scaled[v * b_ + i] = s[v * b_ + placement.order[i]] * scale * T(scale_);
    parallel_with<T>(segment_, n * segments, threads, [&](size_t item, Scratch<T>& scratch) {
      const size_t v = item / segments, segment = item % segments;
      size_t first = 0, other = placement.firsts;
      for (size_t at = 0; at < segment_; at += kSuper) {
        first = place(placement, first, at, &scaled[v * b_], uint32_t(segment), &scratch[at]);
        other = add_others(placement, other, at, &scaled[v * b_], uint32_t(segment), &scratch[at]);
        transform_piece<T>(&scratch[at], nullptr, &scratch[at], kSuper);
      }
      stages<T>(scratch.data(), segment_, kSuper);
      write_signed(scratch.data(), out + v * d_, segment * segment_, segment_, add);
    });
  }

  // The sign (-1)^<hi, segment> of a row.
  uint32_t negative(uint32_t row, uint32_t segment) const { return parity(row & uint32_t(count_ - 1) & segment); }

#if defined(__AVX512F__)
  // Sixteen of them, as top bits.
  __m512i negatives(__m512i rows, uint32_t segment) const {
    const uint32_t mask = uint32_t(count_ - 1);
    __m512i f = _mm512_and_si512(rows, _mm512_set1_epi32(int(mask & segment)));
    for (int shift = 16; shift; shift >>= 1)
      if ((mask >> shift) != 0 || shift == 1) f = _mm512_xor_si512(f, _mm512_srl_epi32(f, _mm_cvtsi32_si128(shift)));
    return _mm512_slli_epi32(f, 31);
  }
#elif defined(__AVX2__)
  // Eight of them: counting bits takes as long one by one as folding takes for all.
  __m256i negatives(__m256i rows, uint32_t segment) const {
    const uint32_t mask = uint32_t(count_ - 1);
    __m256i f = _mm256_and_si256(rows, _mm256_set1_epi32(int(mask & segment)));
    for (int shift = 16; shift; shift >>= 1)
      if ((mask >> shift) != 0 || shift == 1) f = _mm256_xor_si256(f, _mm256_srl_epi32(f, _mm_cvtsi32_si128(shift)));
    return _mm256_slli_epi32(f, 31);
  }
  static __m256i eight(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
#endif

  template <class T> void collect(const T* scratch, uint32_t segment, T* sum) const {
    size_t k = 0;
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4)
      for (; k + 16 <= b_; k += 16) {
        alignas(64) uint32_t lo[16];
        const __m512i r = _mm512_loadu_si512(&rows_[k]);
        _mm512_store_si512(lo, _mm512_srl_epi32(r, _mm_cvtsi32_si128(int(shift_))));
        const __m512i y = _mm512_xor_si512((__m512i)gather<T>(scratch, lo), negatives(r, segment));
        store<T>(sum + k, load<T>(sum + k) + (vec<T>)y);
      }
#elif defined(__AVX2__)
    if constexpr (sizeof(T) == 4)
      for (; k + 8 <= b_; k += 8) {
        alignas(32) uint32_t lo[8];
        const __m256i r = eight(&rows_[k]);
        _mm256_store_si256(reinterpret_cast<__m256i*>(lo), _mm256_srl_epi32(r, _mm_cvtsi32_si128(int(shift_))));
        const __m256i y = _mm256_xor_si256((__m256i)gather<T>(scratch, lo), negatives(r, segment));
        store<T>(sum + k, load<T>(sum + k) + (vec<T>)y);
      }
#endif
    for (; k < b_; ++k) sum[k] += flip_one(scratch[rows_[k] >> shift_], negative(rows_[k], segment));
  }

  // to = places at .. at + kSuper - 1 with the first row of each, zero where there is none; returns the next of the firsts.
  template <class T> size_t place(const Placement& p, size_t i, size_t at, const T* x, uint32_t segment, T* to) const {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4) {
      for (size_t l = 0; l < kSuper; l += 16) {
        const __mmask16 taken = __mmask16(p.taken[(at + l) / 64] >> (l % 64));
        const __m512i rows = _mm512_loadu_si512(&p.row[i]), signs = negatives(rows, segment);
        const __m512i y = _mm512_xor_si512(_mm512_loadu_si512(x + i), signs);
        _mm512_store_si512(to + l, _mm512_maskz_expand_epi32(taken, y));
        i += size_t(__builtin_popcount(taken));
      }
      return i;
    }
#endif
    memset(to, 0, kSuper * sizeof(T));
    i = eights(p, i, p.firsts, at, x, segment, [&](uint32_t lo, T y) { to[lo] = y; });
    for (; i < p.firsts && p.row[i] >> shift_ < at + kSuper; ++i)
      to[(p.row[i] >> shift_) - at] = flip_one(x[i], negative(p.row[i], segment));
    return i;
  }

  template <class T> size_t add_others(const Placement& p, size_t i, size_t at, const T* x, uint32_t segment, T* to) const {
    i = eights(p, i, b_, at, x, segment, [&](uint32_t lo, T y) { to[lo] += y; });
    for (; i < b_ && p.row[i] >> shift_ < at + kSuper; ++i)
      to[(p.row[i] >> shift_) - at] += flip_one(x[i], negative(p.row[i], segment));
    return i;
  }

  // Give the rows from i on to `put`, in order, as long as eight of them fit before `end` and into the superblock.
  template <class T, class Put>
  size_t eights(const Placement& p, size_t i, size_t end, size_t at, const T* x, uint32_t segment, Put put) const {
#if defined(__AVX2__) && !defined(__AVX512F__)
    if constexpr (sizeof(T) == 4)
      for (; i + 8 <= end && p.row[i + 7] >> shift_ < at + kSuper; i += 8) {
        alignas(32) uint32_t lo[8];
        alignas(32) T y[8];
        const __m256i rows = eight(&p.row[i]), places = _mm256_srl_epi32(rows, _mm_cvtsi32_si128(int(shift_)));
        _mm256_store_si256(reinterpret_cast<__m256i*>(lo), _mm256_sub_epi32(places, _mm256_set1_epi32(int(at))));
        store<T>(y, (vec<T>)_mm256_xor_si256(eight(x + i), negatives(rows, segment)));
#pragma GCC unroll 8
        for (int l = 0; l < 8; ++l) put(lo[l], y[l]);
      }
#else
    (void)p, (void)end, (void)at, (void)x, (void)segment, (void)put;
#endif
    return i;
  }

  template <class T> void write_signed(const T* x, T* out, size_t first, size_t length, bool add) const {
    constexpr size_t L = size_t(kLanes<T>);
    const bool streams = !add && worth_streaming(d_);
    uint64_t words[64];
    alignas(64) T stage[kSuper];
    for (size_t i = 0; i < length && first + i < d_; i += kSuper) {
      T* to = out + first + i;
      const size_t have = least<size_t>(kSuper, d_ - first - i);
      signs_.superblock(uint32_t((first + i) / kSuper), words);
      for (size_t l = 0; l < kSuper; l += L) store<T>(stage + l, flip(load<T>(x + i + l), words[l >> 6] >> (l & 63)));
      if (streams) stream_copy(stage, to, have);
      else if (add) for (size_t l = 0; l < have; ++l) to[l] += stage[l];
      else copy_n(stage, have, to);
    }
    end_streams();
  }

  size_t d_, b_, size_, segment_;
  double scale_;
  size_t count_;
  uint32_t shift_;
  Signs signs_;
  List<uint32_t> rows_;
};

}  // namespace desketch::ISA
