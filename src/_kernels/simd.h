// Vectors of one instruction set, gathers, and sign flips by bits.
//
// Everything here is exact (integer operations, IEEE additions), so every instruction set gives the same bits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string.h>
#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace desketch::ISA {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <class T> constexpr T least(T x, T y) { return y < x ? y : x; }
template <class T> constexpr T most(T x, T y) { return x < y ? y : x; }

template <class T> struct Bits;
template <> struct Bits<float> { using type = uint32_t; };
template <> struct Bits<double> { using type = uint64_t; };

template <class T> struct Vector {
  typedef T type __attribute__((vector_size(kVectorBytes)));
  typedef typename Bits<T>::type bits __attribute__((vector_size(kVectorBytes)));
};
template <class T> using vec = typename Vector<T>::type;
template <class T> constexpr int kLanes = kVectorBytes / int(sizeof(T));

template <class T> inline vec<T> load(const T* p) { vec<T> v; memcpy(&v, p, sizeof v); return v; }
template <class T> inline void store(T* p, vec<T> v) { memcpy(p, &v, sizeof v); }

// out[l] = table[rows[l]]. The instructions merge into a register: it is zeroed, so as not to wait for its last value.
template <class T> inline vec<T> gather(const T* table, const uint32_t* rows) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4)
    return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), __mmask16(-1), _mm512_loadu_si512(rows), table, 4);
  else
    return _mm512_mask_i32gather_pd(_mm512_setzero_pd(), __mmask8(-1), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows)), table, 8);
#elif defined(__AVX2__)
  const vec<T> all = (vec<T>)_mm256_set1_epi32(-1);
  if constexpr (sizeof(T) == 4)
    return _mm256_mask_i32gather_ps(_mm256_setzero_ps(), table, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows)), all, 4);
  else
    return _mm256_mask_i32gather_pd(_mm256_setzero_pd(), table, _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows)), all, 8);
#else
  vec<T> x;
  for (int l = 0; l < kLanes<T>; ++l) x[l] = table[rows[l]];
  return x;
#endif
}

// Negate lane l of x where bit l of `bits` is set.
inline vec<float> flip(vec<float> x, uint64_t bits) {
#if defined(__AVX512F__)
  return (vec<float>)_mm512_mask_xor_epi32((__m512i)x, __mmask16(bits), (__m512i)x, _mm512_set1_epi32(int(0x80000000u)));
#elif defined(__AVX2__)
  const __m256i up = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);  // bit l to the top of lane l
  const __m256i word = _mm256_sllv_epi32(_mm256_set1_epi32(int(bits)), up);
  return (vec<float>)_mm256_xor_si256((__m256i)x, _mm256_and_si256(word, _mm256_set1_epi32(INT32_MIN)));
#else
  using V = Vector<float>::bits;
  V lane, word;
  for (int l = 0; l < kLanes<float>; ++l) lane[l] = 1u << l, word[l] = uint32_t(bits);
  return (vec<float>)(((V)((word & lane) == lane) & 0x80000000u) ^ (V)x);
#endif
}
inline vec<double> flip(vec<double> x, uint64_t bits) {
#if defined(__AVX512F__)
  return (vec<double>)_mm512_mask_xor_epi64((__m512i)x, __mmask8(bits), (__m512i)x, _mm512_set1_epi64(INT64_MIN));
#elif defined(__AVX2__)
  const __m256i up = _mm256_setr_epi64x(63, 62, 61, 60);
  const __m256i word = _mm256_sllv_epi64(_mm256_set1_epi64x(int64_t(bits)), up);
  return (vec<double>)_mm256_xor_si256((__m256i)x, _mm256_and_si256(word, _mm256_set1_epi64x(INT64_MIN)));
#else
  using V = Vector<double>::bits;
  V lane, word;
  for (int l = 0; l < kLanes<double>; ++l) lane[l] = 1ull << l, word[l] = bits;
  return (vec<double>)(((V)((word & lane) == lane) & 0x8000000000000000ull) ^ (V)x);
#endif
}
template <class T> inline T flip_one(T x, uint32_t negative) {
  typename Bits<T>::type u;
  memcpy(&u, &x, sizeof u);
  u ^= typename Bits<T>::type(negative) << (8 * sizeof(T) - 1);
  memcpy(&x, &u, sizeof u);
  return x;
}

}  // namespace desketch::ISA
