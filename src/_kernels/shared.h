// What the kernels of all instruction sets share, compiled once, for any processor.
//
// An inline function or a template of the standard library that two objects both emit is kept once by the linker, from
// whichever object it likes: from the AVX-512 one, say, on a machine without. So the kernels use none of them. What they need
// is declared here and defined in shared.cpp, or lives in their own namespace.
#pragma once
#include <cstddef>
#include <cstdint>

namespace desketch {

// Run body(context, t) for t = 0 .. threads-1 on as many threads as can be had, the caller's (t = 0) among them, and wait for
// all. The first exception that leaves a body is thrown again here.
void on_threads(size_t threads, void (*body)(void*, size_t), void* context);

// Sort, drop repetitions, and return how many are left.
size_t sort_unique(uint32_t* values, size_t count);

// Memory at the start of an alignment; throws std::bad_alloc.
void* allocate(size_t alignment, size_t bytes);

// Memory for a long result, on huge pages, and back. The last few that came back are kept, up to 256 MiB unless told otherwise, and given again: a
// fresh 64 MB costs more in page faults than a sketch costs in work.
void* take_long(size_t bytes);
void give_long(void* data, size_t bytes) noexcept;

// Let the n-th call of allocate from now fail (0: none), to see in tests what becomes of it; returns what was left of the
// last such order.
size_t fail_allocation(size_t n);

}  // namespace desketch
