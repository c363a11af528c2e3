// Gaussian and AMS: rows are made a superblock of columns at a time and used at once, never stored.
#pragma once
#include "hashes.h"
#include "operator.h"
#include "parallel.h"

namespace desketch::ISA {

// 64 normals from 64 words by Box-Muller in float32 additions, products and square roots alone (spec v1).
inline void normals(const uint32_t w[64], float z[64]) {
  for (int half = 0; half < 64; half += 32)
    for (int l = half; l < half + 16; ++l) {
      const uint32_t angle = w[l + 16];
      const float f = float(int32_t(w[l] >> 1)) + 0.5f;
      int32_t bits;
      memcpy(&bits, &f, 4);
      bits -= 0x3F3504F3;
      const float exponent = float(31 - (bits >> 23));
      const int32_t mantissa = (bits & 0x7FFFFF) + 0x3F3504F3;
      float m;
      memcpy(&m, &mantissa, 4);
      const float t = m - 1.0f;
      float q = 0.11953793466091156f;
      q = q * t + -0.18750451505184174f;
      q = q * t + 0.20496486127376556f;
      q = q * t + -0.24898795783519745f;
      q = q * t + 0.3331545293331146f;
      q = q * t + -0.5000149011611938f;
      const float r = __builtin_sqrtf(exponent * float(0.69314718055994530942) - (t + t * t * q));
      const float phi = float(int32_t(angle << 2)) * float(3.14159265358979323846 / 8589934592.0);
      const float u = phi * phi;
      float s = -0.0001922443916555494f;
      s = s * u + 0.008329201489686966f;
      s = s * u + -0.16666582226753235f;
      float c = -0.0013567276764661074f;
      c = c * u + 0.041653718799352646f;
      c = c * u + -0.4999984800815582f;
      const float sine = phi + phi * u * s, cosine = 1.0f + u * c;
      const float first = r * (cosine - sine), second = r * (cosine + sine);
      uint32_t a, b;
      memcpy(&a, &first, 4), memcpy(&b, &second, 4);
      a ^= angle & 0x80000000u, b ^= (angle << 1) & 0x80000000u;
      memcpy(&z[l], &a, 4), memcpy(&z[l + 16], &b, 4);
    }
}

// A generator makes row k; `fill` makes `blocks` groups of 64 columns; `dot` and `axpy` use one group.
class GaussianRow {
 public:
  struct Tile { float z[kSuper]; };
  static constexpr size_t kSpan = 1;  // superblocks that share the set-up of a row
  GaussianRow(const uint32_t key[4], uint32_t row, int64_t) : words_(stream_of(key, row, kSample)) {}
  void fill(uint32_t p, size_t blocks, Tile& tile) const {
    for (size_t r = 0; r < blocks; ++r) {
      uint32_t w[64];
      philox(words_, uint32_t(64 * p + r), w);
      normals(w, tile.z + 64 * r);
    }
  }
  template <class T> static void dot(const Tile& tile, size_t r, const T* g, vec<T>* sum) {
    constexpr int L = kLanes<T>;
    for (int l = 0; l < 64 / L; ++l) sum[l] += entry<T>(tile.z + 64 * r + l * L) * load<T>(g + l * L);
  }
  template <class T> static void axpy(const Tile& tile, size_t r, T s, T* out) {
    constexpr int L = kLanes<T>;
    for (int l = 0; l < 64 / L; ++l) store<T>(out + l * L, load<T>(out + l * L) + entry<T>(tile.z + 64 * r + l * L) * s);
  }

 private:
  template <class T> static vec<T> entry(const float* z) {
    vec<T> x;
    for (int l = 0; l < kLanes<T>; ++l) x[l] = T(z[l]);
    return x;
  }
  Stream words_;
};
template <> inline vec<float> GaussianRow::entry<float>(const float* z) { return load<float>(z); }

class AmsRow {
 public:
  struct Tile { uint64_t signs[64]; };
  static constexpr size_t kSpan = 16;
  AmsRow(const uint32_t key[4], uint32_t row, int64_t d) : signs_(key, row, d) {}
  void fill(uint32_t p, size_t, Tile& tile) const { signs_.superblock(p, tile.signs); }
  template <class T> static void dot(const Tile& tile, size_t r, const T* g, vec<T>* sum) {
    constexpr int L = kLanes<T>;
    for (int l = 0; l < 64 / L; ++l) sum[l] += flip(load<T>(g + l * L), tile.signs[r] >> (l * L));
  }
  template <class T> static void axpy(const Tile& tile, size_t r, T s, T* out) {
    constexpr int L = kLanes<T>;
    const vec<T> x = s - vec<T>{};
    for (int l = 0; l < 64 / L; ++l) store<T>(out + l * L, load<T>(out + l * L) + flip(x, tile.signs[r] >> (l * L)));
  }

 private:
  Signs signs_;
};

template <class Row> class Dense {
 public:
  explicit Dense(const Params& p) : d_(size_t(p.d)), b_(size_t(p.b)), scale_(p.scale) { copy_n(p.key, 4, key_); }

  template <class T> void sketch(const T* g, T* y, size_t n, int threads) const {
    const size_t group = most<size_t>(1, least<size_t>(n, 64)), groups = (n + group - 1) / group;
    const size_t height = most<size_t>(1, 32 / group), tiles = (b_ + height - 1) / height;
    const size_t whole = d_ / 64, blocks = (d_ + 63) / 64;
    List<T> tails(n * 64);
    for (size_t v = 0; v < n; ++v) copy_n(g + v * d_ + whole * 64, d_ - whole * 64, &tails[v * 64]);
    struct State {
      List<Row> rows;
      List<T> sums;
    };
    auto make = [&] {
      State state{{}, List<T>(height * group * 64)};
      state.rows.reserve(height);
      return state;
    };
    parallel_each(make, groups * tiles, threads, [&](size_t item, State& state) {
      const size_t v0 = item / tiles * group, v1 = least(n, v0 + group);
      const size_t k0 = item % tiles * height, k1 = least(b_, k0 + height);
      List<Row>& rows = state.rows;
      List<T>& sums = state.sums;
      rows.clear(), sums.zero();
      for (size_t k = k0; k < k1; ++k) rows.push_back(Row(key_, uint32_t(k), int64_t(d_)));
      typename Row::Tile tile;
      for (size_t first = 0; first < blocks; first += 64)
        for (size_t k = k0; k < k1; ++k) {
          const size_t here = least<size_t>(64, blocks - first);
          rows[k - k0].fill(uint32_t(first / 64), here, tile);
          for (size_t v = v0; v < v1; ++v)
            add_dots(tile, g + v * d_ + first * 64, least(here, whole - first), here, &tails[v * 64],
                     &sums[((k - k0) * (v1 - v0) + v - v0) * 64]);
        }
      for (size_t k = k0; k < k1; ++k)
        for (size_t v = v0; v < v1; ++v) y[v * b_ + k] = total(&sums[((k - k0) * (v1 - v0) + v - v0) * 64]) * T(scale_);
    });
  }

  template <class T> void desketch(const T* s, T* out, size_t n, double scale, bool add, int threads) const {
    const T outer = T(scale), inner = T(scale_);
    const size_t blocks = (d_ + 63) / 64, supers = (blocks + 63) / 64;
    const size_t span = most<size_t>(1, least(Row::kSpan, supers / 8));
    const size_t widest = least(span * kSuper, blocks * 64);
    parallel_each([&] { return List<T>(n * widest); }, (supers + span - 1) / span, threads, [&](size_t item, List<T>& sums) {
      const size_t p0 = item * span, p1 = least(supers, p0 + span);
      const size_t first = p0 * kSuper, last = least(d_, p1 * kSuper), width = (last - first + 63) / 64 * 64;
      sums.zero();
      typename Row::Tile tile;
      for (size_t v = 0; add && v < n; ++v) copy_n(out + v * d_ + first, last - first, &sums[v * width]);
      for (size_t k = 0; k < b_; ++k) {
        const Row row(key_, uint32_t(k), int64_t(d_));
        for (size_t p = p0; p < p1; ++p) {
          const size_t here = least<size_t>(64, blocks - p * 64);
          row.fill(uint32_t(p), here, tile);
          for (size_t v = 0; v < n; ++v)
            for (size_t r = 0; r < here; ++r)
              Row::template axpy<T>(tile, r, s[v * b_ + k] * outer * inner, &sums[v * width + (p - p0) * kSuper + r * 64]);
        }
      }
      for (size_t v = 0; v < n; ++v) copy_n<T>(&sums[v * width], last - first, out + v * d_ + first);
    });
  }

 private:
  template <class T>
  static void add_dots(const typename Row::Tile& tile, const T* g, size_t whole, size_t blocks, const T* tail, T* sums) {
    constexpr int L = kLanes<T>;
    vec<T> sum[64 / L];
    for (int l = 0; l < 64 / L; ++l) sum[l] = load<T>(sums + l * L);
    for (size_t r = 0; r < whole; ++r) Row::template dot<T>(tile, r, g + r * 64, sum);
    if (whole < blocks) Row::template dot<T>(tile, whole, tail, sum);
    for (int l = 0; l < 64 / L; ++l) store<T>(sums + l * L, sum[l]);
  }

  template <class T> static T total(T* sums) {
    for (int h = 32; h; h /= 2)
      for (int l = 0; l < h; ++l) sums[l] += sums[l + h];
    return sums[0];
  }

  size_t d_, b_;
  double scale_;
  uint32_t key_[4];
};

}  // namespace desketch::ISA
