// All kernels for one instruction set: compiled once per set, with ISA naming the namespace.
#include <stdexcept>

#include "dense.h"
#include "sampling.h"
#include "sparse.h"
#include "srht.h"

namespace desketch {
namespace ISA {

template <class Kernel> struct Typed final : Operator {
  explicit Typed(const Params& p) : kernel(p) {}
  void sketch(const float* g, float* y, size_t n, int threads) const override { kernel.sketch(g, y, n, threads); }
  void sketch(const double* g, double* y, size_t n, int threads) const override { kernel.sketch(g, y, n, threads); }
  void desketch(const float* s, float* out, size_t n, double scale, bool add, int threads) const override {
    kernel.desketch(s, out, n, scale, add, threads);
  }
  void desketch(const double* s, double* out, size_t n, double scale, bool add, int threads) const override {
    kernel.desketch(s, out, n, scale, add, threads);
  }
  Kernel kernel;
};

template <class Kernel> std::unique_ptr<Operator> make(const Params& p) { return std::unique_ptr<Operator>(new Typed<Kernel>(p)); }

struct Entry { const char* family; Factory factory; };
constexpr Entry kFamilies[] = {
    {"gaussian", make<Dense<GaussianRow>>}, {"ams", make<Dense<AmsRow>>}, {"srht", make<Srht>},
    {"countsketch", make<Sparse>},          {"sparse1", make<Sparse>},    {"sparse2", make<Sparse>},
    {"uniform", make<Uniform>},
};

}  // namespace ISA

#define DESKETCH_JOIN(a, b) a##b
#define DESKETCH_DRAW(isa) DESKETCH_JOIN(draw_, isa)
std::unique_ptr<Operator> DESKETCH_DRAW(ISA)(const Params& p) {
  for (const ISA::Entry& entry : ISA::kFamilies)
    if (p.family == entry.family) return entry.factory(p);
  throw std::invalid_argument("no kernel for family " + p.family);
}

}  // namespace desketch
