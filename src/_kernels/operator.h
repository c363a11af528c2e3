// The seam between Python and the kernels: a drawn operator R, and one factory per instruction set.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace desketch {

struct Params {
  std::string family;
  uint32_t key[4];
  int64_t d, b;
  int64_t nnz, blocked;    // sparse families
  int64_t size, segment;   // srht: numbers in a transform, numbers transformed at a time
  double scale;            // R = diag(scale) R0, R0 with entries 0, +-1 or N(0, 1)
};

struct Operator {
  virtual ~Operator() = default;
  virtual void sketch(const float* g, float* y, size_t n, int threads) const = 0;
  virtual void sketch(const double* g, double* y, size_t n, int threads) const = 0;
  // out = R^T (scale s), or out += R^T (scale s)
  virtual void desketch(const float* s, float* out, size_t n, double scale, bool add, int threads) const = 0;
  virtual void desketch(const double* s, double* out, size_t n, double scale, bool add, int threads) const = 0;
};

using Factory = std::unique_ptr<Operator> (*)(const Params&);

std::unique_ptr<Operator> draw_generic(const Params&);
#ifdef DESKETCH_X86
std::unique_ptr<Operator> draw_avx2(const Params&);
std::unique_ptr<Operator> draw_avx512(const Params&);
#endif

}  // namespace desketch
