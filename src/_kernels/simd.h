// Vectors of one instruction set, sign flips by bits, and Philox4x32-10 in groups of 64 words.
//
// Everything here is exact (integer operations, IEEE additions), so every instruction set gives the same bits.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>
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

template <class T> struct Bits;
template <> struct Bits<float> { using type = uint32_t; };
template <> struct Bits<double> { using type = uint64_t; };

template <class T> struct Vector {
  typedef T type __attribute__((vector_size(kVectorBytes)));
  typedef typename Bits<T>::type bits __attribute__((vector_size(kVectorBytes)));
};
template <class T> using vec = typename Vector<T>::type;
template <class T> constexpr int kLanes = kVectorBytes / int(sizeof(T));

template <class T> inline vec<T> load(const T* p) { vec<T> v; std::memcpy(&v, p, sizeof v); return v; }
template <class T> inline void store(T* p, vec<T> v) { std::memcpy(p, &v, sizeof v); }

// Write past the caches: for outputs that are not read again soon.
template <class T> inline void stream(T* p, vec<T> v) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(p), (__m512i)v);
#elif defined(__AVX2__)
  _mm256_stream_si256(reinterpret_cast<__m256i*>(p), (__m256i)v);
#else
  store(p, v);
#endif
}
inline bool worth_streaming(size_t count) { return kVectorBytes > 16 && count >= (size_t(1) << 20); }
// Copy n numbers past the caches to any address: whole cache lines are streamed, the ends are stored.
template <class T> inline void stream_copy(const T* x, T* out, size_t n) {
  constexpr size_t L = size_t(kLanes<T>), kLine = 64;
  const size_t head = std::min(n, (kLine - reinterpret_cast<uintptr_t>(out) % kLine) % kLine / sizeof(T));
  const size_t body = (n - head) / (kLine / sizeof(T)) * (kLine / sizeof(T));
  std::copy_n(x, head, out);
  for (size_t i = head; i < head + body; i += L) stream<T>(out + i, load<T>(x + i));
  std::copy(x + head + body, x + n, out + head + body);
}
inline void end_streams() {
#if defined(__AVX512F__) || defined(__AVX2__)
  _mm_sfence();
#endif
}

// Negate lane l of x where bit l of `bits` is set.
inline vec<float> flip(vec<float> x, uint64_t bits) {
#if defined(__AVX512F__)
  return (vec<float>)_mm512_mask_xor_epi32((__m512i)x, __mmask16(bits), (__m512i)x, _mm512_set1_epi32(int(0x80000000u)));
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
#else
  using V = Vector<double>::bits;
  V lane, word;
  for (int l = 0; l < kLanes<double>; ++l) lane[l] = 1ull << l, word[l] = bits;
  return (vec<double>)(((V)((word & lane) == lane) & 0x8000000000000000ull) ^ (V)x);
#endif
}
template <class T> inline T flip_one(T x, uint32_t negative) {
  typename Bits<T>::type u;
  std::memcpy(&u, &x, sizeof u);
  u ^= typename Bits<T>::type(negative) << (8 * sizeof(T) - 1);
  std::memcpy(&x, &u, sizeof u);
  return x;
}

// One of the 2^32 streams of a key.
struct Stream {
  uint32_t k0, k1, number, c2, c3;
  Stream(const uint32_t key[4], uint32_t number) : k0(key[0]), k1(key[1]), number(number), c2(key[2]), c3(key[3]) {}
};

constexpr uint32_t kM0 = 0xD2511F53, kM1 = 0xCD9E8D57, kW0 = 0x9E3779B9, kW1 = 0xBB67AE85;

// Words 64 q .. 64 q + 63: out[16 j + l] is output j of block 16 q + l.
inline void philox(const Stream& s, uint32_t q, uint32_t out[64]) {
#if defined(__AVX512F__)
  const __m512i m0 = _mm512_set1_epi32(int(kM0)), m1 = _mm512_set1_epi32(int(kM1));
  const __m512i iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  __m512i c0 = _mm512_add_epi32(_mm512_set1_epi32(int(16 * q)), iota), c1 = _mm512_set1_epi32(int(s.number));
  __m512i c2 = _mm512_set1_epi32(int(s.c2)), c3 = _mm512_set1_epi32(int(s.c3));
  uint32_t k0 = s.k0, k1 = s.k1;
  for (int round = 0; round < 10; ++round, k0 += kW0, k1 += kW1) {
    const __m512i e0 = _mm512_mul_epu32(c0, m0), o0 = _mm512_mul_epu32(_mm512_srli_epi64(c0, 32), m0);
    const __m512i e1 = _mm512_mul_epu32(c2, m1), o1 = _mm512_mul_epu32(_mm512_srli_epi64(c2, 32), m1);
    const __m512i hi0 = _mm512_mask_shuffle_epi32(o0, 0x5555, e0, _MM_PERM_ENUM(0xF5));
    const __m512i hi1 = _mm512_mask_shuffle_epi32(o1, 0x5555, e1, _MM_PERM_ENUM(0xF5));
    c0 = _mm512_ternarylogic_epi32(hi1, c1, _mm512_set1_epi32(int(k0)), 0x96);
    c2 = _mm512_ternarylogic_epi32(hi0, c3, _mm512_set1_epi32(int(k1)), 0x96);
    c1 = _mm512_mask_shuffle_epi32(e1, 0xAAAA, o1, _MM_PERM_ENUM(0xA0));
    c3 = _mm512_mask_shuffle_epi32(e0, 0xAAAA, o0, _MM_PERM_ENUM(0xA0));
  }
  _mm512_storeu_si512(out, c0), _mm512_storeu_si512(out + 16, c1);
  _mm512_storeu_si512(out + 32, c2), _mm512_storeu_si512(out + 48, c3);
#elif defined(__AVX2__)
  const __m256i m0 = _mm256_set1_epi32(int(kM0)), m1 = _mm256_set1_epi32(int(kM1));
  const __m256i iota = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  for (int half = 0; half < 2; ++half) {
    __m256i c0 = _mm256_add_epi32(_mm256_set1_epi32(int(16 * q + 8 * half)), iota);
    __m256i c1 = _mm256_set1_epi32(int(s.number)), c2 = _mm256_set1_epi32(int(s.c2)), c3 = _mm256_set1_epi32(int(s.c3));
    uint32_t k0 = s.k0, k1 = s.k1;
    for (int round = 0; round < 10; ++round, k0 += kW0, k1 += kW1) {
      const __m256i e0 = _mm256_mul_epu32(c0, m0), o0 = _mm256_mul_epu32(_mm256_srli_epi64(c0, 32), m0);
      const __m256i e1 = _mm256_mul_epu32(c2, m1), o1 = _mm256_mul_epu32(_mm256_srli_epi64(c2, 32), m1);
      const __m256i hi0 = _mm256_blend_epi32(_mm256_shuffle_epi32(e0, 0xF5), o0, 0xAA);
      const __m256i hi1 = _mm256_blend_epi32(_mm256_shuffle_epi32(e1, 0xF5), o1, 0xAA);
      c0 = _mm256_xor_si256(_mm256_xor_si256(hi1, c1), _mm256_set1_epi32(int(k0)));
      c2 = _mm256_xor_si256(_mm256_xor_si256(hi0, c3), _mm256_set1_epi32(int(k1)));
      c1 = _mm256_blend_epi32(e1, _mm256_shuffle_epi32(o1, 0xA0), 0xAA);
      c3 = _mm256_blend_epi32(e0, _mm256_shuffle_epi32(o0, 0xA0), 0xAA);
    }
    const __m256i c[4] = {c0, c1, c2, c3};
    for (int j = 0; j < 4; ++j) _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 16 * j + 8 * half), c[j]);
  }
#else
  uint32_t c0[16], c1[16], c2[16], c3[16];
  for (uint32_t l = 0; l < 16; ++l) c0[l] = 16 * q + l, c1[l] = s.number, c2[l] = s.c2, c3[l] = s.c3;
  uint32_t k0 = s.k0, k1 = s.k1;
  for (int round = 0; round < 10; ++round, k0 += kW0, k1 += kW1)
    for (int l = 0; l < 16; ++l) {
      const uint64_t p0 = uint64_t(kM0) * c0[l], p1 = uint64_t(kM1) * c2[l];
      c0[l] = uint32_t(p1 >> 32) ^ c1[l] ^ k0, c1[l] = uint32_t(p1);
      c2[l] = uint32_t(p0 >> 32) ^ c3[l] ^ k1, c3[l] = uint32_t(p0);
    }
  std::memcpy(out, c0, 64), std::memcpy(out + 16, c1, 64), std::memcpy(out + 32, c2, 64), std::memcpy(out + 48, c3, 64);
#endif
}

// Run work(item, scratch) for item = 0 .. items-1 on up to `threads` threads, each with its own scratch of `size` numbers.
// Items never share an output.
template <class T, class Work> void parallel_with(size_t size, size_t items, int threads, Work work) {
  std::atomic<size_t> next{0};
  auto loop = [&] {
    std::vector<T> scratch(size);
    for (size_t item; (item = next++) < items;) work(item, scratch);
  };
  if (size_t(threads) > items) threads = int(items);
  std::vector<std::thread> pool;
  for (int t = 1; t < threads; ++t) pool.emplace_back(loop);
  loop();
  for (auto& thread : pool) thread.join();
}

template <class Work> void parallel(size_t items, int threads, Work work) {
  parallel_with<char>(0, items, threads, [&](size_t item, std::vector<char>&) { work(item); });
}

}  // namespace desketch::ISA
