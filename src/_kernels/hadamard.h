// SRHT: signs, Walsh-Hadamard transforms in cache-sized pieces, and only the sampled rows ever written.
//
// Butterflies run at distance 1, 2, 4, ... whatever the vector width, so every path adds in the same order.
#pragma once
#include "hashes.h"
#include "operator.h"
#include "parallel.h"

namespace desketch::ISA {

template <class T, int H> inline vec<T> lane_butterfly(vec<T> x) {
  constexpr int L = kLanes<T>;
  typename Vector<T>::bits order, negative;
  constexpr typename Bits<T>::type top = typename Bits<T>::type(1) << (8 * sizeof(T) - 1);
  for (int l = 0; l < L; ++l) order[l] = typename Bits<T>::type(l ^ H), negative[l] = l & H ? top : 0;
  return __builtin_shuffle(x, order) + (vec<T>)((typename Vector<T>::bits)x ^ negative);
}

template <class T> inline vec<T> lanes(vec<T> x) {
  constexpr int L = kLanes<T>;
  x = lane_butterfly<T, 1>(x);
  if constexpr (L > 2) x = lane_butterfly<T, 2>(x);
  if constexpr (L > 4) x = lane_butterfly<T, 4>(x);
  if constexpr (L > 8) x = lane_butterfly<T, 8>(x);
  return x;
}

// log2(R) stages on R vectors.
template <class T, int R> inline void across(vec<T> (&x)[R]) {
#pragma GCC unroll 5
  for (int h = 1; h < R; h *= 2)
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
      if (!(i & h)) {
        const vec<T> a = x[i], b = x[i + h];
        x[i] = a + b, x[i + h] = a - b;
      }
}

template <class T, int R> inline void pass(T* x, size_t n, size_t h) {
  constexpr size_t L = size_t(kLanes<T>);
  for (size_t base = 0; base < n; base += R * h)
    for (size_t i = base; i < base + h; i += L) {
      vec<T> v[R];
#pragma GCC unroll 16
      for (int k = 0; k < R; ++k) {
        v[k] = load<T>(x + i + size_t(k) * h);
      }
      across<T, R>(v);
#pragma GCC unroll 16
      for (int k = 0; k < R; ++k) store<T>(x + i + size_t(k) * h, v[k]);
    }
}

constexpr int kRadix = kVectorBytes == 64 ? 16 : 8;  // vectors that fit the registers
template <class T> constexpr size_t kFirst = kRadix * size_t(kLanes<T>);  // numbers in one step of the first pass

// The stages inside kRadix vectors, on src with the signs of a superblock (or without, words = nullptr).
template <class T> inline void first_pass(const T* src, const uint64_t* words, T* x, size_t n) {
  constexpr size_t L = size_t(kLanes<T>);
  for (size_t i = 0; i < n; i += kFirst<T>) {
    vec<T> v[kRadix];
#pragma GCC unroll 16
    for (size_t k = 0; k < kRadix; ++k) {
      const size_t at = i + k * L;
      v[k] = load<T>(src + at);
      if (words) v[k] = flip(v[k], words[at >> 6] >> (at & 63));
      v[k] = lanes<T>(v[k]);
    }
    across<T, kRadix>(v);
#pragma GCC unroll 16
    for (size_t k = 0; k < kRadix; ++k) store<T>(x + i + k * L, v[k]);
  }
}

// Stages at distance h, 2h, ..., n/2, a few at a time in registers; at most 8 lines apart by a multiple of 4096 bytes, because
// such lines share one set of the first cache.
template <class T> void stages(T* x, size_t n, size_t h) {
  while (h < n) {
    const size_t left = n / h;
    if (kRadix == 16 && left >= 16 && h * sizeof(T) < 4096) pass<T, kRadix>(x, n, h), h *= kRadix;
    else if (left >= 8) pass<T, 8>(x, n, h), h *= 8;
    else if (left == 4) pass<T, 4>(x, n, h), h *= 4;
    else pass<T, 2>(x, n, h), h *= 2;
  }
}

// All stages after the first pass: inside pieces that stay in the first cache, then across them.
template <class T> void later_stages(T* x, size_t n) {
  constexpr size_t kPiece = kFirst<T> * (kRadix == 16 ? 16 : 64);
  const size_t piece = std::min(n, kPiece);
  for (size_t i = 0; i < n; i += piece) stages<T>(x + i, piece, kFirst<T>);
  stages<T>(x, n, piece);
}

template <class T> void fwht(T* x, size_t n) {
  if (n < kFirst<T>) {
    for (size_t h = 1; h < n; h *= 2)
      for (size_t i = 0; i < n; ++i)
        if (!(i & h)) {
          const T a = x[i], b = x[i + h];
          x[i] = a + b, x[i + h] = a - b;
        }
    return;
  }
  first_pass<T>(x, nullptr, x, n);
  later_stages<T>(x, n);
}

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
    const size_t length = std::max<size_t>(segment_, kSuper), pieces = (d_ + length - 1) / length;
    Scratch<T> scaled(n * b_);
    for (size_t k = 0; k < n * b_; ++k) scaled[k] = s[k] * T(scale) * T(scale_);
    parallel_with<T>(length, n * pieces, threads, [&](size_t item, Scratch<T>& scratch) {
      const size_t v = item / pieces, piece = item % pieces;
      scratch.zero();
      if (count_ == 1) place_rows(&scaled[v * b_], piece * length, length, scratch.data());
      else scatter_rows(&scaled[v * b_], uint32_t(piece), scratch.data());
      for (size_t i = 0; i < length; i += segment_) fwht<T>(scratch.data() + i, segment_);
      write_signed(scratch.data(), out + v * d_, piece * length, length, add);
    });
  }

 private:
  size_t row_from(size_t row) const {
    return size_t(std::lower_bound(rows_.begin(), rows_.end(), uint32_t(row)) - rows_.begin());
  }

  // scratch = the signed coordinates first .. first + length - 1, transformed in pieces of a segment.
  template <class T> void transform(const T* g, size_t first, size_t length, T* scratch) const {
    const bool vector = segment_ >= kFirst<T>;
    uint64_t words[64];
    for (size_t i = 0; i < length; i += kSuper) {
      const size_t at = first + i;
      if (at >= d_) {
        std::memset(scratch + i, 0, (length - i) * sizeof(T));
        break;
      }
      signs_.superblock(uint32_t(at / kSuper), words);
      const size_t have = std::min<size_t>(kSuper, d_ - at);
      if (have == kSuper && vector) {
        first_pass<T>(g + at, words, scratch + i, kSuper);
        continue;
      }
      for (size_t l = 0; l < kSuper; ++l)
        scratch[i + l] = l < have ? flip_one(g[at + l], uint32_t(words[l >> 6] >> (l & 63) & 1)) : T(0);
      if (vector) first_pass<T>(scratch + i, nullptr, scratch + i, kSuper);
    }
    for (size_t i = 0; i < length; i += segment_)
      if (vector) later_stages<T>(scratch + i, segment_);
      else fwht<T>(scratch + i, segment_);
  }

  template <class T> void write_signed(T* x, T* out, size_t first, size_t length, bool add) const {
    constexpr size_t L = size_t(kLanes<T>);
    uint64_t words[64];
    const bool streams = !add && worth_streaming(d_);
    for (size_t i = 0; i < length && first + i < d_; i += kSuper, x += kSuper) {
      T* to = out + first + i;
      const size_t have = std::min<size_t>(kSuper, d_ - first - i);
      signs_.superblock(uint32_t((first + i) / kSuper), words);
      for (size_t l = 0; l < kSuper; l += L) store<T>(x + l, flip(load<T>(x + l), words[l >> 6] >> (l & 63)));
      if (streams) stream_copy(x, to, have);
      else if (add) for (size_t l = 0; l < have; ++l) to[l] += x[l];
      else std::copy_n(x, have, to);
    }
    end_streams();
  }

  template <class T> void sketch_blocks(const T* g, T* y, size_t n, int threads) const {
    const size_t length = std::max<size_t>(segment_, kSuper), pieces = (d_ + length - 1) / length;
    const T scale = T(scale_);
    parallel_with<T>(length, n * pieces, threads, [&](size_t item, Scratch<T>& scratch) {
      const size_t v = item / pieces, first = item % pieces * length;
      transform(g + v * d_, first, length, scratch.data());
      for (size_t k = row_from(first); k < b_ && rows_[k] < first + length; ++k)
        y[v * b_ + k] = scratch[rows_[k] - first] * scale;
    });
  }

  // The signs (-1)^<hi, segment> of all hi, as top bits.
  template <class T> std::vector<typename Bits<T>::type> flips(uint32_t segment) const {
    std::vector<typename Bits<T>::type> sign(count_);
    for (size_t hi = 0; hi < count_; ++hi)
      sign[hi] = typename Bits<T>::type(parity(uint32_t(hi) & segment)) << (8 * sizeof(T) - 1);
    return sign;
  }

  // Partial sums over groups of segments; their number depends on (d, b) alone.
  template <class T> void sketch_segments(const T* g, T* y, size_t n, int threads) const {
    const size_t used = (d_ + segment_ - 1) / segment_;
    const size_t chunks = std::max<size_t>(1, std::min<size_t>(8, used / 8));
    Scratch<T> partial(n * chunks * b_);
    partial.zero();
    parallel_with<T>(segment_, n * chunks, threads, [&](size_t item, Scratch<T>& scratch) {
      const size_t v = item / chunks, c = item % chunks;
      T* sum = &partial[item * b_];
      for (size_t t = used * c / chunks; t < used * (c + 1) / chunks; ++t) {
        transform(g + v * d_, t * segment_, segment_, scratch.data());
        collect(scratch.data(), uint32_t(t), sum);
      }
    });
    const T scale = T(scale_);
    for (size_t v = 0; v < n; ++v)
      for (size_t k = 0; k < b_; ++k) {
        T sum = partial[v * chunks * b_ + k];
        for (size_t c = 1; c < chunks; ++c) sum += partial[(v * chunks + c) * b_ + k];
        y[v * b_ + k] = sum * scale;
      }
  }

#if defined(__AVX512F__)
  // Where rows k .. k + 15 lie in a segment, and their signs (-1)^<hi, segment> as top bits.
  struct Sixteen { __m512i lo, sign; };
  Sixteen sixteen(size_t k, uint32_t segment) const {
    const uint32_t mask = uint32_t(count_ - 1);
    const __m512i r = _mm512_loadu_si512(&rows_[k]);
    __m512i f = _mm512_and_si512(r, _mm512_set1_epi32(int(mask & segment)));
    for (int shift = 16; shift; shift >>= 1)
      if ((mask >> shift) != 0 || shift == 1) f = _mm512_xor_si512(f, _mm512_srl_epi32(f, _mm_cvtsi32_si128(shift)));
    return {_mm512_srl_epi32(r, _mm_cvtsi32_si128(int(shift_))), _mm512_slli_epi32(f, 31)};
  }
#endif

  template <class T> void collect(const T* scratch, uint32_t segment, T* sum) const {
    const uint32_t mask = uint32_t(count_ - 1);
    size_t k = 0;
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4)
      for (; k + 16 <= b_; k += 16) {
        const Sixteen r = sixteen(k, segment);
        const __m512i y = _mm512_xor_si512(_mm512_castps_si512(_mm512_i32gather_ps(r.lo, scratch, 4)), r.sign);
        _mm512_storeu_ps(sum + k, _mm512_add_ps(_mm512_loadu_ps(sum + k), _mm512_castsi512_ps(y)));
      }
#endif
    const auto sign = flips<T>(segment);
    for (; k < b_; ++k) {
      const uint32_t r = rows_[k];
      sum[k] += flip_one(scratch[r >> shift_], uint32_t(sign[r & mask] != 0));
    }
  }

  template <class T> void place_rows(const T* s, size_t first, size_t length, T* to) const {
    for (size_t k = row_from(first); k < b_ && rows_[k] < first + length; ++k) to[rows_[k] - first] = s[k];
  }

  template <class T> void scatter_rows(const T* s, uint32_t segment, T* to) const {
    const uint32_t mask = uint32_t(count_ - 1);
    size_t k = 0;
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4)
      for (; k + 16 <= b_; k += 16) {
        const Sixteen r = sixteen(k, segment);
        alignas(64) uint32_t lo[16];
        alignas(64) T x[16];
        _mm512_store_si512(lo, r.lo);
        _mm512_store_si512(x, _mm512_xor_si512(_mm512_loadu_si512(s + k), r.sign));
#pragma GCC unroll 16
        for (int l = 0; l < 16; ++l) to[lo[l]] += x[l];
      }
#endif
    const auto sign = flips<T>(segment);
    for (; k < b_; ++k) to[rows_[k] >> shift_] += flip_one(s[k], uint32_t(sign[rows_[k] & mask] != 0));
  }

  size_t d_, b_, size_, segment_;
  double scale_;
  size_t count_;
  uint32_t shift_;
  Signs signs_;
  std::vector<uint32_t> rows_;
};

}  // namespace desketch::ISA
