// Uniform sampling: gather or scatter b signed coordinates.
#pragma once
#include "hashes.h"
#include "operator.h"
#include "parallel.h"

namespace desketch::ISA {

class Uniform {
 public:
  explicit Uniform(const Params& p) : d_(size_t(p.d)), b_(size_t(p.b)), scale_(p.scale), rows_(sample_rows(p.key, p.d, p.b)) {
    const Signs signs(p.key, 0, p.b);
    signs_.resize((b_ + kSuper - 1) / kSuper * 64);
    for (size_t q = 0; q < signs_.size() / 64; ++q) signs.superblock(uint32_t(q), &signs_[64 * q]);
  }

  template <class T> void sketch(const T* g, T* y, size_t n, int threads) const {
    const T scale = T(scale_);
    parallel(n, threads, [&](size_t v) {
      const T* x = g + v * d_;
      T* out = y + v * b_;
      for (size_t k = 0; k < b_; ++k) {
        if (k + kAhead < b_) __builtin_prefetch(x + rows_[k + kAhead]);
        out[k] = flip_one(x[rows_[k]], sign(k)) * scale;
      }
    });
  }

  template <class T> void desketch(const T* s, T* out, size_t n, double scale, bool add, int threads) const {
    const T outer = T(scale), inner = T(scale_);
    const size_t spans = (d_ + kSpan - 1) / kSpan;
    parallel(n * spans, threads, [&](size_t item) {
      const size_t v = item / spans, first = item % spans * kSpan, last = least(d_, first + kSpan);
      T* w = out + v * d_;
      size_t k = lower_bound(rows_, uint32_t(first));
      auto entry = [&](size_t i) { return flip_one(s[v * b_ + i] * outer * inner, sign(i)); };
      if (add) {
        for (; k < b_ && rows_[k] < last; ++k) w[rows_[k]] += entry(k);
        return;
      }
      alignas(64) T stage[kSuper] = {};  // zero but for the rows of one superblock
      for (size_t at = first; at < last; at += kSuper) {
        const size_t end = least<size_t>(last, at + kSuper), begin = k;
        for (; k < b_ && rows_[k] < end; ++k) stage[rows_[k] - at] = entry(k);
        if (worth_streaming(d_)) stream_copy(stage, w + at, end - at);
        else copy_n(stage, end - at, w + at);
        for (size_t i = begin; i < k; ++i) stage[rows_[i] - at] = T(0);
      }
      end_streams();
    });
  }

 private:
  static constexpr size_t kSpan = 1 << 16, kAhead = 32;
  uint32_t sign(size_t k) const { return uint32_t(signs_[k >> 6] >> (k & 63) & 1); }
  size_t d_, b_;
  double scale_;
  List<uint32_t> rows_;
  List<uint64_t> signs_;
};

}  // namespace desketch::ISA
