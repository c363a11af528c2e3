// Working memory, long reads called ahead, and streams that write past the caches.
#pragma once
#include <stdlib.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "shared.h"
#include "simd.h"

namespace desketch::ISA {

// Uninitialised numbers at the start of a cache line; many of them on huge pages, so that strides do not miss the TLB.
template <class T> class Scratch {
 public:
  explicit Scratch(size_t count) : bytes_(count * sizeof(T)) {
    const size_t unit = bytes_ >= kHugePage / 8 ? kHugePage : kLine;
    data_ = static_cast<T*>(allocate(unit, most<size_t>(bytes_, 1)));
#if defined(__linux__)
    if (unit == kHugePage) madvise(data_, (bytes_ + unit - 1) / unit * unit, MADV_HUGEPAGE);
#endif
  }
  ~Scratch() { free(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void zero() { if (bytes_) memset(data_, 0, bytes_); }
  T* data() { return data_; }
  T& operator[](size_t i) { return data_[i]; }

 private:
  static constexpr size_t kLine = 64, kHugePage = size_t(1) << 21;
  size_t bytes_;
  T* data_;
};

template <class T> inline void copy_n(const T* x, size_t n, T* out) {
  if (n) memcpy(out, x, n * sizeof(T));
}

// A growing list of plain values; List(n) holds n zeros.
template <class T> class List {
 public:
  List() = default;
  explicit List(size_t count) { resize(count); }
  ~List() { free(data_); }
  List(const List&) = delete;
  List& operator=(const List&) = delete;
  List(List&& other) noexcept : data_(other.data_), size_(other.size_), room_(other.room_) {
    other.data_ = nullptr, other.size_ = other.room_ = 0;
  }

  void reserve(size_t room) {
    if (room <= room_) return;
    T* data = static_cast<T*>(allocate(kLine, room * sizeof(T)));
    if (size_) memcpy(static_cast<void*>(data), data_, size_ * sizeof(T));
    free(data_);
    data_ = data, room_ = room;
  }
  void resize(size_t count) {
    reserve(count);
    if (count > size_) memset(static_cast<void*>(data_ + size_), 0, (count - size_) * sizeof(T));
    size_ = count;
  }
  void push_back(const T& value) {
    if (size_ == room_) reserve(2 * room_ + 8);
    memcpy(static_cast<void*>(data_ + size_++), &value, sizeof(T));
  }

  void clear() { size_ = 0; }
  void zero() { if (size_) memset(static_cast<void*>(data_), 0, size_ * sizeof(T)); }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }

 private:
  static_assert(__is_trivially_copyable(T), "values are moved as bytes");
  static constexpr size_t kLine = 64;
  T* data_ = nullptr;
  size_t size_ = 0, room_ = 0;
};

// The place of the first of the ascending values that is not below x.
inline size_t lower_bound(const List<uint32_t>& values, uint32_t x) {
  size_t first = 0, count = values.size();
  while (count) {
    const size_t half = count / 2;
    if (values[first + half] < x) first += half + 1, count -= half + 1;
    else count = half;
  }
  return first;
}

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
  const size_t head = least(n, (kLine - reinterpret_cast<uintptr_t>(out) % kLine) % kLine / sizeof(T));
  const size_t body = (n - head) / (kLine / sizeof(T)) * (kLine / sizeof(T));
  copy_n(x, head, out);
  for (size_t i = head; i < head + body; i += L) stream<T>(out + i, load<T>(x + i));
  copy_n(x + head + body, n - head - body, out + head + body);
}
inline void end_streams() {
#if defined(__AVX512F__) || defined(__AVX2__)
  _mm_sfence();
#endif
}

}  // namespace desketch::ISA
