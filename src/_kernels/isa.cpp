// All kernels for one instruction set: compiled once per set, with ISA naming the namespace.
#include <string.h>

#include "dense.h"
#include "mean.h"
#include "rotation.h"
#include "sampling.h"
#include "sparse.h"
#include "srht.h"
#include "trellis.h"

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

template <class Kernel> Operator* make(const Params& p) { return new Typed<Kernel>(p); }

struct Entry { const char* family; Draw draw; };
constexpr Entry kFamilies[] = {
    {"gaussian", make<Dense<GaussianRow>>}, {"ams", make<Dense<AmsRow>>}, {"srht", make<Srht>},
    {"countsketch", make<Sparse>},          {"sparse1", make<Sparse>},    {"sparse2", make<Sparse>},
    {"uniform", make<Uniform>},
};

}  // namespace ISA

#define DESKETCH_JOIN(a, b) a##b
#define DESKETCH_NAME(verb, isa) DESKETCH_JOIN(verb, isa)
Operator* DESKETCH_NAME(draw_, ISA)(const Params& p) {
  for (const ISA::Entry& entry : ISA::kFamilies)
    if (strcmp(p.family, entry.family) == 0) return entry.draw(p);
  return nullptr;
}

void DESKETCH_NAME(rotate_, ISA)(const Turn& turn, const float* x, float* y, int threads) {
  ISA::rotate(turn, x, y, threads);
}

void DESKETCH_NAME(decode_, ISA)(const Turn& turn, const OneBit& signs, float* y, int threads) {
  ISA::decode(turn, signs, y, threads);
}

void DESKETCH_NAME(search_, ISA)(const Paths& paths, uint8_t* bits, int threads) { ISA::search(paths, bits, threads); }

void DESKETCH_NAME(add_rows_, ISA)(const WeightedRows& rows, double* total, int threads) {
  ISA::add_rows(rows, total, threads);
}

}  // namespace desketch
