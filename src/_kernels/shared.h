// What the kernels of all instruction sets share, compiled once, for any processor.
//
// An inline function or a template of the standard library that two objects both emit is kept once by the linker, from
// whichever object it likes: from the AVX-512 one, say, on a machine without. So the kernels use none of them. What they need
// is declared here and defined in shared.cpp, or lives in their own namespace.
#pragma once
#include <cstddef>
#include <cstdint>

namespace desketch {

// Run body(context) on up to `threads` threads at once, the caller's among them, and wait for all. The first exception that
// leaves a body is thrown again here.
void on_threads(int threads, void (*body)(void*), void* context);

// Sort, drop repetitions, and return how many are left.
size_t sort_unique(uint32_t* values, size_t count);

// Memory at the start of an alignment; throws std::bad_alloc.
void* allocate(size_t alignment, size_t bytes);

// Let the n-th call of allocate from now fail (0: none), to see in tests what becomes of it.
void fail_allocation(size_t n);

}  // namespace desketch
