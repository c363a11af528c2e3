// Work shared by threads, each with its own working memory.
#pragma once
#include "memory.h"

namespace desketch::ISA {

// Run work(item, scratch) for item = 0 .. items-1 on up to `threads` threads, each with its own scratch of `size` numbers.
// Items never share an output. A failed thread leaves its items undone: the failure is thrown here when all have ended.
template <class T, class Work> void parallel_with(size_t size, size_t items, int threads, Work work) {
  struct Job {
    size_t size, items, next;
    Work& work;
  } job{size, items, 0, work};
  if (size_t(threads) > items) threads = int(items);
  on_threads(threads, [](void* context) {
    Job& mine = *static_cast<Job*>(context);
    Scratch<T> scratch(mine.size);
    for (size_t item; (item = __atomic_fetch_add(&mine.next, 1, __ATOMIC_RELAXED)) < mine.items;) mine.work(item, scratch);
  }, &job);
}

template <class Work> void parallel(size_t items, int threads, Work work) {
  parallel_with<char>(0, items, threads, [&](size_t item, Scratch<char>&) { work(item); });
}

}  // namespace desketch::ISA
