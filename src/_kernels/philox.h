// Philox4x32-10 in groups of 64 words, as many blocks at a time as a vector has lanes.
#pragma once
#include "simd.h"

namespace desketch::ISA {

typedef uint32_t words __attribute__((vector_size(kVectorBytes)));
constexpr int kWords = kVectorBytes / 4;

inline words load_words(const uint32_t* p) { words v; memcpy(&v, p, sizeof v); return v; }
inline void store_words(uint32_t* p, words v) { memcpy(p, &v, sizeof v); }

inline words smaller(words x, words y) { return x < y ? x : y; }

struct Product { words high, low; };

// The 64-bit products of all lanes with m: those of the even lanes and those of the odd ones, shuffled into halves.
inline Product multiply(words x, uint32_t m) {
#if defined(__AVX512F__)
  const __m512i f = _mm512_set1_epi32(int(m));
  const __m512i even = _mm512_mul_epu32((__m512i)x, f), odd = _mm512_mul_epu32(_mm512_srli_epi64((__m512i)x, 32), f);
  return {(words)_mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_ENUM(0xF5)),
          (words)_mm512_mask_shuffle_epi32(even, 0xAAAA, odd, _MM_PERM_ENUM(0xA0))};
#elif defined(__AVX2__)
  const __m256i f = _mm256_set1_epi32(int(m));
  const __m256i even = _mm256_mul_epu32((__m256i)x, f), odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)x, 32), f);
  return {(words)_mm256_blend_epi32(_mm256_shuffle_epi32(even, 0xF5), odd, 0xAA),
          (words)_mm256_blend_epi32(even, _mm256_shuffle_epi32(odd, 0xA0), 0xAA)};
#else
  Product p;
  for (int l = 0; l < kWords; ++l) {
    const uint64_t product = uint64_t(x[l]) * m;
    p.high[l] = uint32_t(product >> 32), p.low[l] = uint32_t(product);
  }
  return p;
#endif
}

constexpr int kRounds = 10;

// One of the 2^32 streams of a key, with the keys of its rounds.
struct Stream {
  uint32_t number, c2, c3, k0[kRounds], k1[kRounds];
  Stream(const uint32_t key[4], uint32_t number) : number(number), c2(key[2]), c3(key[3]) {
    constexpr uint32_t kW0 = 0x9E3779B9, kW1 = 0xBB67AE85;
    for (uint32_t round = 0; round < kRounds; ++round) k0[round] = key[0] + round * kW0, k1[round] = key[1] + round * kW1;
  }
};

// Words 64 q .. 64 q + 63: out[16 j + l] is output j of block 16 q + l.
inline void philox(const Stream& s, uint32_t q, uint32_t out[64]) {
  constexpr uint32_t kM0 = 0xD2511F53, kM1 = 0xCD9E8D57;
  for (int first = 0; first < 16; first += kWords) {
    words c0, c1 = words{} + s.number, c2 = words{} + s.c2, c3 = words{} + s.c3;
    for (int l = 0; l < kWords; ++l) c0[l] = uint32_t(first + l);
    c0 += 16 * q;
#pragma GCC unroll 10
    for (int round = 0; round < kRounds; ++round) {
      const Product p0 = multiply(c0, kM0), p1 = multiply(c2, kM1);
      c0 = p1.high ^ (c1 ^ s.k0[round]), c1 = p1.low;
      c2 = p0.high ^ (c3 ^ s.k1[round]), c3 = p0.low;
    }
    store_words(out + first, c0), store_words(out + 16 + first, c1);
    store_words(out + 32 + first, c2), store_words(out + 48 + first, c3);
  }
}

}  // namespace desketch::ISA
