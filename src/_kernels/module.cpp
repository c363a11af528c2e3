// desketch._kernels: Plan, a drawn operator on float32 and float64 rows.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <stdexcept>
#include <vector>

#include "operator.h"

namespace nb = nanobind;
namespace {

using namespace desketch;
using Input = nb::ndarray<nb::ro, nb::c_contig, nb::ndim<2>, nb::device::cpu>;
using Output = nb::ndarray<nb::c_contig, nb::ndim<2>, nb::device::cpu>;

struct Isa { const char* name; bool here; Factory draw; };

const std::vector<Isa>& all_isas() {  // best first
  static const std::vector<Isa> isas = [] {
    std::vector<Isa> list;
#ifdef DESKETCH_X86
    __builtin_cpu_init();
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    list.push_back({"avx512", avx512, draw_avx512});
    list.push_back({"avx2", bool(__builtin_cpu_supports("avx2")), draw_avx2});
#endif
    list.push_back({"generic", true, draw_generic});
    return list;
  }();
  return isas;
}

std::vector<std::string> isas() {
  std::vector<std::string> names;
  for (const Isa& isa : all_isas())
    if (isa.here) names.emplace_back(isa.name);
  return names;
}

class Plan {
 public:
  Plan(const std::string& family, nb::bytes key, const std::string& isa, int64_t d, int64_t b, int64_t nnz, int64_t blocked,
       int64_t size, int64_t segment, double scale)
      : d_(size_t(d)), b_(size_t(b)) {
    Params p{family, {}, d, b, nnz, blocked, size, segment, scale};
    if (key.size() != 16) throw std::invalid_argument("a key is 16 bytes");
    const auto* bytes = static_cast<const unsigned char*>(key.data());
    for (int i = 0; i < 16; ++i) p.key[i / 4] |= uint32_t(bytes[i]) << (8 * (i % 4));
    for (const Isa& candidate : all_isas())
      if (candidate.here && isa == candidate.name) operator_ = candidate.draw(p);
    if (!operator_) throw std::invalid_argument("no instruction set " + isa + " on this machine");
  }

  void sketch(const Input& g, const Output& y, int threads) const {
    check(g, y, d_, b_);
    with_type(g, y, [&](auto* x, auto* out, size_t n) { operator_->sketch(x, out, n, threads); });
  }

  void desketch(const Input& s, const Output& w, double scale, bool add, int threads) const {
    check(s, w, b_, d_);
    with_type(s, w, [&](auto* x, auto* out, size_t n) { operator_->desketch(x, out, n, scale, add, threads); });
  }

 private:
  static void check(const Input& x, const Output& y, size_t in, size_t out) {
    if (x.shape(1) != in || y.shape(1) != out || x.shape(0) != y.shape(0) || x.dtype() != y.dtype())
      throw std::invalid_argument("rows, lengths and types must agree");
  }

  template <class Work> static void with_type(const Input& x, const Output& y, Work work) {
    const size_t n = x.shape(0);
    const bool single = x.dtype() == nb::dtype<float>();
    if (!single && x.dtype() != nb::dtype<double>()) throw std::invalid_argument("float32 or float64");
    const void* from = x.data();
    void* to = y.data();
    nb::gil_scoped_release release;
    if (single) work(static_cast<const float*>(from), static_cast<float*>(to), n);
    else work(static_cast<const double*>(from), static_cast<double*>(to), n);
  }

  size_t d_, b_;
  std::unique_ptr<Operator> operator_;
};

}  // namespace

NB_MODULE(_kernels, m) {
  m.doc() = "Compiled sketches; desketch.sketches is the interface.";
  m.def("isas", &isas, "Instruction sets usable here, best first.");
  nb::class_<Plan>(m, "Plan")
      .def(nb::init<const std::string&, nb::bytes, const std::string&, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, double>(),
           nb::arg("family"), nb::arg("key"), nb::arg("isa"), nb::kw_only(), nb::arg("d"), nb::arg("b"), nb::arg("nnz") = 1,
           nb::arg("blocked") = 0, nb::arg("size") = 0, nb::arg("segment") = 0, nb::arg("scale") = 1.0)
      .def("sketch", &Plan::sketch)
      .def("desketch", &Plan::desketch);
}
