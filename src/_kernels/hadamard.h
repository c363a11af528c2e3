// Walsh-Hadamard transforms: as many stages in registers as fit, then in the first cache, then beyond.
//
// Butterflies run at distance 1, 2, 4, ... whatever the vector width, so every path adds in the same order.
#pragma once
#include "hashes.h"

namespace desketch::ISA {

// Lane l of the result is lane l ^ H of x.
template <int... l> struct Indices {};
template <class T, int n = kLanes<T>, int... l> struct Counted : Counted<T, n - 1, n - 1, l...> {};
template <class T, int... l> struct Counted<T, 0, l...> { using type = Indices<l...>; };
template <class T> using LanesOf = typename Counted<T>::type;
template <class T, int H, int... l> inline vec<T> exchange(vec<T> x, Indices<l...>) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(x, x, (l ^ H)...);
#else
  return __builtin_shuffle(x, typename Vector<T>::bits{typename Bits<T>::type(l ^ H)...});
#endif
}

// x_l + x_{l+H}, and x_{l-H} - x_l in the other half of the lanes. Where a fused product costs no more than a sum, the product
// with +-1 is exact and saves flipping the signs.
template <class T, int H> inline vec<T> lane_butterfly(vec<T> x) {
  vec<T> unit;
  for (int l = 0; l < kLanes<T>; ++l) unit[l] = T(l & H ? -1 : 1);
  const vec<T> other = exchange<T, H>(x, LanesOf<T>());
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) return _mm512_fmadd_ps(x, unit, other);
  else return _mm512_fmadd_pd(x, unit, other);
#else
  constexpr typename Bits<T>::type top = typename Bits<T>::type(1) << (8 * sizeof(T) - 1);
  return other + (vec<T>)((typename Vector<T>::bits)x ^ ((typename Vector<T>::bits)unit & top));
#endif
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

// The stages inside kRadix vectors, on src with the signs of a superblock (or without, words = nullptr). A signed source comes
// from far, and is called ahead.
template <class T> inline void first_pass(const T* src, const uint64_t* words, T* x, size_t n) {
  constexpr size_t L = size_t(kLanes<T>);
  for (size_t i = 0; i < n; i += kFirst<T>) {
    vec<T> v[kRadix];
#pragma GCC unroll 16
    for (size_t k = 0; k < kRadix; ++k) {
      const size_t at = i + k * L;
      v[k] = load<T>(src + at);
      if (words) {
        call_ahead(src + at);
        v[k] = flip(v[k], words[at >> 6] >> (at & 63));
      }
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

// Stages inside pieces that stay in the first cache, signed as in first_pass; n <= kSuper.
template <class T> void transform_piece(const T* src, const uint64_t* words, T* x, size_t n) {
  first_pass<T>(src, words, x, n);
  stages<T>(x, n, kFirst<T>);
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
  const size_t piece = least<size_t>(n, kSuper);
  for (size_t i = 0; i < n; i += piece) transform_piece<T>(x + i, nullptr, x + i, piece);
  stages<T>(x, n, piece);
}

}  // namespace desketch::ISA
