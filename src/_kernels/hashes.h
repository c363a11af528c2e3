// The hash families of spec v1: signs (a BCH code), buckets (a linear hash) and samples, each with Philox on top.
#pragma once
#include "memory.h"
#include "philox.h"

namespace desketch::ISA {

enum Role : uint32_t { kSeed, kBucket, kSign, kSample };
inline Stream stream_of(const uint32_t key[4], uint32_t table, Role role) { return Stream(key, 4 * table + role); }

inline uint32_t parity(uint32_t x) { return uint32_t(__builtin_parity(x)); }

constexpr int kIndexBits = 31, kSuper = 4096;  // coordinates in a superblock: 64 words of 64 signs

// x -> x^3 over GF(2^32) as a quadratic map: cubes of the unit vectors and its polar form.
struct CubeForm {
  uint32_t cube[kIndexBits], polar[kIndexBits][kIndexBits];
  static uint32_t multiply(uint32_t x, uint32_t y) {
    uint32_t product = 0;
    for (; y; y >>= 1, x = (x << 1) ^ (x >> 31 ? 0x8Du : 0u)) if (y & 1) product ^= x;
    return product;
  }
  CubeForm() {
    for (int i = 0; i < kIndexBits; ++i) {
      const uint32_t e = 1u << i, e2 = multiply(e, e);
      cube[i] = multiply(e2, e);
      for (int j = 0; j < kIndexBits; ++j) {
        const uint32_t f = 1u << j;
        polar[i][j] = multiply(e2, f) ^ multiply(e, multiply(f, f));
      }
    }
  }
  static const CubeForm& get() { static const CubeForm form; return form; }
};

// The word whose bit l is <m, l>, for six-bit m and l.
inline uint64_t linear_word(uint32_t m) {
  constexpr uint64_t pattern[6] = {0xAAAAAAAAAAAAAAAAull, 0xCCCCCCCCCCCCCCCCull, 0xF0F0F0F0F0F0F0F0ull,
                                   0xFF00FF00FF00FF00ull, 0xFFFF0000FFFF0000ull, 0xFFFFFFFF00000000ull};
  uint64_t word = 0;
  for (int k = 0; k < 6; ++k) word ^= pattern[k] & -uint64_t(m >> k & 1);
  return word;
}

// sign(x) = s0 ^ <s1, x> ^ <s2, x^3> ^ bit x of the sign stream; 1 means -1.
//
// With x = a + y, a = 4096 p and y < 4096: Q(a + y) = Q(a) ^ Q(y) ^ B(a, y) and B is bilinear. So the 64 words of a superblock
// are those of superblock 0, xored with one word (B over the low six bits) and with all ones where one more word has a bit.
class Signs {
 public:
  Signs(const uint32_t key[4], uint32_t table, int64_t n) : words_(stream_of(key, table, kSign)) {
    uint32_t seed[64];
    philox(stream_of(key, table, kSeed), 0, seed);
    const uint32_t s0 = seed[0], s1 = seed[1], s2 = seed[2];
    const CubeForm& form = CubeForm::get();
    uint32_t polar[kIndexBits] = {};  // bit j of polar[i]: B(e_i, e_j)
    bits_ = 0;
    while (bits_ < kIndexBits && (int64_t(1) << bits_) < n) ++bits_;
    for (int i = 0; i < bits_; ++i) {
      unit_[i] = (s1 >> i & 1) ^ parity(s2 & form.cube[i]);
      for (int j = 0; j < i; ++j) polar[i] |= parity(s2 & form.polar[i][j]) << j;
    }
    uint64_t word = 0;  // Q over 0 .. 63, by doubling
    for (int k = 0; k < 6 && k < bits_; ++k) {
      const int half = 1 << k;
      const uint64_t low = (uint64_t(1) << half) - 1;
      word |= ((word ^ linear_word(polar[k]) ^ -uint64_t(unit_[k])) & low) << half;
    }
    first_[0] = word ^ -uint64_t(s0 & 1);
    for (int k = 0; k < 6; ++k)
      for (int r = 0; r < 1 << k; ++r) {
        const uint32_t m = k + 6 < bits_ ? polar[k + 6] : 0, u = k + 6 < bits_ ? unit_[k + 6] : 0;
        first_[(1 << k) + r] = first_[r] ^ linear_word(m & 63) ^ -uint64_t(u ^ parity(m & (uint32_t(r) << 6)));
      }
    for (int i = 12; i < bits_; ++i) polar_[i] = polar[i];
  }

  // The 64 words of signs of coordinates 4096 p .. 4096 p + 4095.
  void superblock(uint32_t p, uint64_t out[64]) const {
    philox(words_, 2 * p, reinterpret_cast<uint32_t*>(out));
    philox(words_, 2 * p + 1, reinterpret_cast<uint32_t*>(out) + 64);
    uint32_t m = 0, q = 0;
    for (uint32_t rest = p; rest; rest &= rest - 1) {
      const int i = __builtin_ctz(rest) + 12;
      m ^= polar_[i];
      q ^= unit_[i] ^ parity(polar_[i] & (p << 12) & ((1u << i) - 1));
    }
    const uint64_t low = linear_word(m & 63), high = linear_word(m >> 6 & 63) ^ -uint64_t(q);
    for (int r = 0; r < 64; ++r) out[r] ^= first_[r] ^ low ^ -uint64_t(high >> r & 1);
  }

 private:
  Stream words_;
  int bits_;
  uint32_t unit_[kIndexBits] = {}, polar_[kIndexBits] = {};
  uint64_t first_[64];
};

// h(x) = a_0 + sum over bits k of x of a_{k+1} + (word x of the bucket stream) M / 2^32, mod M.
//
// The sum over six bits of x is one look-up.
class Buckets {
 public:
  Buckets(const uint32_t key[4], uint32_t table, uint32_t modulus)
      : words_(stream_of(key, table, kBucket)), modulus_(modulus) {
    uint32_t seed[128], a[37] = {};
    philox(stream_of(key, table, kSeed), 0, seed);
    philox(stream_of(key, table, kSeed), 1, seed + 64);
    for (int k = 0; k < 32; ++k) {
      const uint64_t v = seed[4 + 2 * k] | uint64_t(seed[5 + 2 * k]) << 32;
      a[k] = uint32_t((unsigned __int128)(v)*modulus >> 64);
    }
    first_ = a[0];
    for (int digit = 0; digit < kDigits; ++digit) {
      uint32_t* sum = sum_[digit];
      sum[0] = 0;
      for (int k = 0; k < 6; ++k)
        for (int l = 0; l < 1 << k; ++l) sum[(1 << k) + l] = reduce(sum[l] + a[6 * digit + k + 1]);
    }
  }

  // The buckets of 64 q .. 64 q + 63.
  void group(uint32_t q, uint32_t out[64]) const {
    uint32_t base = first_, w[64];
    for (int digit = 1; digit < kDigits; ++digit) base = reduce(base + sum_[digit][q >> 6 * (digit - 1) & 63]);
    philox(words_, q, w);
    for (int l = 0; l < 64; l += kWords) {
      const words linear = reduce(load_words(sum_[0] + l) + base);
      store_words(out + l, reduce(linear + multiply(load_words(w + l), modulus_).high));
    }
  }

 private:
  static constexpr int kDigits = 6;
  // x mod M for x < 2 M: below M the difference wraps around, and is the larger one.
  uint32_t reduce(uint32_t x) const { return least(x, x - modulus_); }
  words reduce(words x) const { return smaller(x, x - modulus_); }
  Stream words_;
  uint32_t modulus_, first_, sum_[kDigits][64];
};

// Where the lowest bit is; anything if there is none.
inline uint32_t first_bit(uint64_t word) { return uint32_t(__builtin_ctzll(word | uint64_t(1) << 63)); }

// b of n numbers, uniformly without replacement, ascending: the first different values of the sample stream.
inline List<uint32_t> sample_rows(const uint32_t key[4], int64_t n, int64_t b) {
  const int64_t draws = least(b, n - b);
  const Stream words = stream_of(key, 0, kSample);
  const uint32_t threshold = uint32_t((uint64_t(1) << 32) % uint64_t(n));
  uint32_t w[64], q = 0;
  List<uint32_t> rows;
  rows.reserve(size_t(b) + 64);
  if (draws == b && n / 8 > 16 * b + 4096) {  // few of many: sorting takes O(b) memory
    rows.resize(size_t(b));
    size_t kept = 0, used = 64;
    while (kept < size_t(b)) {
      for (size_t missing = size_t(b) - kept; missing; --missing) {
        if (used == 64) philox(words, q++, w), used = 0;
        const uint64_t product = uint64_t(w[used++]) * uint64_t(n);
        if (uint32_t(product) >= threshold) rows[kept++] = uint32_t(product >> 32);
      }
      kept = sort_unique(rows.begin(), kept);
    }
    return rows;
  }
  const size_t pieces = size_t(n + 63) / 64;
  Scratch<uint64_t> taken(pieces);
  taken.zero();
  for (int64_t missing = draws; missing > 0;) {
    philox(words, q++, w);
    for (int l = 0; l < 64 && missing; ++l) {
      const uint64_t product = uint64_t(w[l]) * uint64_t(n);
      if (uint32_t(product) < threshold) continue;
      const uint32_t value = uint32_t(product >> 32);
      uint64_t& word = taken[value >> 6];
      missing -= int64_t(~word >> (value & 63) & 1);
      word |= uint64_t(1) << (value & 63);
    }
  }
  const uint64_t invert = draws == b ? 0 : ~uint64_t(0);
  rows.resize(size_t(b) + 64);  // two are written whether there or not: words with more bits are rare
  size_t k = 0;
  for (size_t i = 0; i < pieces && k < size_t(b); ++i) {
    const uint64_t word = taken[i] ^ invert, after = word & (word - 1);
    const uint32_t base = uint32_t(i << 6);
    rows[k] = base + first_bit(word), rows[k + 1] = base + first_bit(after);
    size_t j = k + 2;
    for (uint64_t rest = after & (after - 1); rest; rest &= rest - 1) rows[j++] = base + first_bit(rest);
    k += size_t(__builtin_popcountll(word));
  }
  rows.resize(size_t(b));
  return rows;
}

}  // namespace desketch::ISA
