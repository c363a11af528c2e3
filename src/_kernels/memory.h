// Working memory, long reads called ahead, and streams that write past the caches.
#pragma once
#include <cstdlib>
#include <new>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "simd.h"

namespace desketch::ISA {

// Uninitialised numbers at the start of a cache line; many of them on huge pages, so that strides do not miss the TLB.
template <class T> class Scratch {
 public:
  explicit Scratch(size_t count) : bytes_(count * sizeof(T)) {
    const size_t unit = bytes_ >= kHugePage / 8 ? kHugePage : kLine, room = std::max(unit, (bytes_ + unit - 1) / unit * unit);
    data_ = static_cast<T*>(std::aligned_alloc(unit, room));
    if (!data_) throw std::bad_alloc();
#if defined(__linux__)
    if (unit == kHugePage) madvise(data_, room, MADV_HUGEPAGE);
#endif
  }
  ~Scratch() { std::free(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void zero() { std::memset(data_, 0, bytes_); }
  T* data() { return data_; }
  T& operator[](size_t i) { return data_[i]; }

 private:
  static constexpr size_t kLine = 64, kHugePage = size_t(1) << 21;
  size_t bytes_;
  T* data_;
};

// Call for the line a page further on: hardware follows a long read, but starts anew at every page.
template <class T> inline void call_ahead(const T* p) { __builtin_prefetch(reinterpret_cast<const char*>(p) + 4096, 0, 2); }

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

}  // namespace desketch::ISA
