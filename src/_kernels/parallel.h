// Work shared by threads, each with its own working memory.
#pragma once
#include <atomic>
#include <thread>
#include <vector>

#include "memory.h"

namespace desketch::ISA {

// Run work(item, scratch) for item = 0 .. items-1 on up to `threads` threads, each with its own scratch of `size` numbers.
// Items never share an output.
template <class T, class Work> void parallel_with(size_t size, size_t items, int threads, Work work) {
  std::atomic<size_t> next{0};
  auto loop = [&] {
    Scratch<T> scratch(size);
    for (size_t item; (item = next++) < items;) work(item, scratch);
  };
  if (size_t(threads) > items) threads = int(items);
  std::vector<std::thread> pool;
  for (int t = 1; t < threads; ++t) pool.emplace_back(loop);
  loop();
  for (auto& thread : pool) thread.join();
}

template <class Work> void parallel(size_t items, int threads, Work work) {
  parallel_with<char>(0, items, threads, [&](size_t item, Scratch<char>&) { work(item); });
}

}  // namespace desketch::ISA
