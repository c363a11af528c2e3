// Threads, sorting and memory for the kernels of every instruction set.
#include "shared.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "operator.h"

namespace desketch {

// Out of line, so that they and the tables of the class are emitted here alone.
Operator::Operator() = default;
Operator::~Operator() = default;

void on_threads(size_t threads, void (*body)(void*, size_t), void* context) {
  std::exception_ptr failure;
  std::mutex guard;
  auto run = [&](size_t t) noexcept {
    try {
      body(context, t);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(guard);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> pool;
  try {
    pool.reserve(threads);
    for (size_t t = 1; t < threads; ++t) pool.emplace_back(run, t);
  } catch (const std::system_error&) {  // no more threads to be had: those that run share the work
  } catch (const std::bad_alloc&) {
  }
  run(0);
  for (std::thread& thread : pool) thread.join();
  if (failure) std::rethrow_exception(failure);
}

size_t sort_unique(uint32_t* values, size_t count) {
  std::sort(values, values + count);
  return size_t(std::unique(values, values + count) - values);
}

namespace {
std::atomic<size_t> failing{0};
}

size_t fail_allocation(size_t n) { return failing.exchange(n); }

void* allocate(size_t alignment, size_t bytes) {
  size_t left = failing.load(std::memory_order_relaxed);
  while (left && !failing.compare_exchange_weak(left, left - 1)) {}
  if (left == 1) throw std::bad_alloc();
  void* data = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (!data) throw std::bad_alloc();
  return data;
}

namespace {
constexpr size_t kPage = size_t(1) << 21;
constexpr size_t most_kept = size_t(256) << 20;
struct Long { void* data; size_t bytes; };
std::mutex long_guard;
Long kept[4] = {};  // the latest first

size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
}

void* take_long(size_t bytes) {
  {
    const std::lock_guard<std::mutex> lock(long_guard);
    for (Long& one : kept)
      if (one.data && one.bytes == whole_pages(bytes)) {
        void* data = one.data;
        one = {};
        return data;
      }
  }
  void* data = allocate(kPage, bytes);
#if defined(__linux__)
  madvise(data, whole_pages(bytes), MADV_HUGEPAGE);
#endif
  return data;
}

void give_long(void* data, size_t bytes) noexcept {
  Long next{data, whole_pages(bytes)};
  const std::lock_guard<std::mutex> lock(long_guard);
  size_t total = 0;
  for (Long& one : kept) {  // move up; whatever no longer fits is given back to the system
    std::swap(one, next);
    total += one.bytes;
    if (total > most_kept) std::free(one.data), total -= one.bytes, one = {};
    if (!next.data) return;
  }
  std::free(next.data);
}

}  // namespace desketch
