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

}  // namespace desketch
