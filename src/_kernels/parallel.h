// Work shared by threads, each with its own working memory.
#pragma once
#include "memory.h"

namespace desketch::ISA {

// One state per thread, or fewer where memory is short; at least one, or the failure is thrown.
template <class State> struct States {
  template <class Make> States(Make make, size_t count) {
    list.reserve(count);
    for (size_t t = 0; t < count; ++t) try {
        list.push_back(new State(make()));
      } catch (...) {
        if (t == 0) throw;
        break;
      }
  }
  ~States() {
    for (State* state : list) delete state;
  }
  List<State*> list;
};

// Run work(item, state) for item = 0 .. items-1 on up to `threads` threads, each with its own state made by `make`. Items never
// share an output.
//
// All memory is taken before a thread starts, by the caller: where none is left a new thread cannot even throw (glibc ends the
// process for want of the exception's thread-local data).
template <class Make, class Work> void parallel_each(Make make, size_t items, int threads, Work work) {
  using State = decltype(make());
  const States<State> states(make, threads > 1 ? most<size_t>(1, least(items, size_t(threads))) : 1);
  struct Job {
    size_t items, next;
    const List<State*>& states;
    Work& work;
  } job{items, 0, states.list, work};
  on_threads(states.list.size(), [](void* context, size_t t) {
    Job& job = *static_cast<Job*>(context);
    for (size_t item; (item = __atomic_fetch_add(&job.next, 1, __ATOMIC_RELAXED)) < job.items;) job.work(item, *job.states[t]);
  }, &job);
}

// The same with a scratch of `size` numbers as the state.
template <class T, class Work> void parallel_with(size_t size, size_t items, int threads, Work work) {
  parallel_each([&] { return Scratch<T>(size); }, items, threads, work);
}

template <class Work> void parallel(size_t items, int threads, Work work) {
  struct Nothing {};
  parallel_each([] { return Nothing(); }, items, threads, [&](size_t item, Nothing&) { work(item); });
}

}  // namespace desketch::ISA
