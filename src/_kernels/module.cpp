// desketch._kernels: Plan, a drawn operator on float32 and float64 rows, the rotation of the one-bit code and the search of the trellis code.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "crc.h"
#include "operator.h"
#include "shared.h"

namespace nb = nanobind;
namespace {

using namespace desketch;
using Input = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;  // rows along the last axis
using Output = nb::ndarray<nb::c_contig, nb::device::cpu>;
using Address = uintptr_t;  // of rows in memory whose owner gives an address for less than an array

struct Isa { const char* name; bool here; Draw draw; Rotate rotate; Decode decode; SearchPaths search; AddRows add_rows; };

const std::vector<Isa>& all_isas() {  // best first
  static const std::vector<Isa> isas = [] {
    std::vector<Isa> list;
#ifdef DESKETCH_X86
    __builtin_cpu_init();
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    list.push_back({"avx512", avx512, draw_avx512, rotate_avx512, decode_avx512, search_avx512, add_rows_avx512});
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    list.push_back({"avx2", avx2, draw_avx2, rotate_avx2, decode_avx2, search_avx2, add_rows_avx2});
#endif
    list.push_back({"generic", true, draw_generic, rotate_generic, decode_generic, search_generic, add_rows_generic});
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

const Isa& isa_named(const std::string& name) {
  for (const Isa& isa : all_isas())
    if (isa.here && name == isa.name) return isa;
  throw std::invalid_argument("no instruction set " + name + " on this machine");
}

void read_key(const nb::bytes& key, uint32_t words[4]) {
  if (key.size() != 16) throw std::invalid_argument("a key is 16 bytes");
  const auto* bytes = static_cast<const unsigned char*>(key.data());
  for (int i = 0; i < 4; ++i) words[i] = 0;
  for (int i = 0; i < 16; ++i) words[i / 4] |= uint32_t(bytes[i]) << (8 * (i % 4));
}

// A variable of the environment, for a tenth of what os.environ takes.
const char* variable(const char* name) { return std::getenv(name); }

class Plan {
 public:
  Plan(const std::string& family, nb::bytes key, const std::string& isa, int64_t d, int64_t b, int64_t nnz, int64_t blocked,
       int64_t size, int64_t segment, double scale)
      : d_(size_t(d)), b_(size_t(b)) {
    Params p{family.c_str(), {}, d, b, nnz, blocked, size, segment, scale};
    read_key(key, p.key);
    operator_.reset(isa_named(isa).draw(p));
    if (!operator_) throw std::invalid_argument("no kernel for family " + family);
  }

  void sketch(const Input& g, const Output& y, int threads) const {
    const size_t n = rows(g, y, d_, b_);
    sketch_at(Address(g.data()), Address(y.data()), n, g.dtype() == nb::dtype<float>(), threads);
  }

  void desketch(const Input& s, const Output& w, double scale, bool add, int threads) const {
    const size_t n = rows(s, w, b_, d_);
    desketch_at(Address(s.data()), Address(w.data()), n, s.dtype() == nb::dtype<float>(), scale, add, threads);
  }

  void sketch_at(Address g, Address y, size_t n, bool single, int threads) const {
    with_type(g, y, single, [&](auto* x, auto* out) { operator_->sketch(x, out, n, threads); });
  }

  void desketch_at(Address s, Address w, size_t n, bool single, double scale, bool add, int threads) const {
    with_type(s, w, single, [&](auto* x, auto* out) { operator_->desketch(x, out, n, scale, add, threads); });
  }

 private:
  static size_t rows(const Input& x, const Output& y, size_t in, size_t out) {
    const bool real = x.dtype() == nb::dtype<float>() || x.dtype() == nb::dtype<double>();
    if (!real || x.dtype() != y.dtype()) throw std::invalid_argument("float32 or float64, both alike");
    const bool last = x.ndim() && y.ndim() && x.shape(x.ndim() - 1) == in && y.shape(y.ndim() - 1) == out;
    if (!last || x.size() / in != y.size() / out) throw std::invalid_argument("rows and lengths must agree");
    return x.size() / in;
  }

  template <class Work> static void with_type(Address x, Address y, bool single, Work work) {
    nb::gil_scoped_release release;
    if (single) work(reinterpret_cast<const float*>(x), reinterpret_cast<float*>(y));
    else work(reinterpret_cast<const double*>(x), reinterpret_cast<double*>(y));
  }

  size_t d_, b_;
  std::unique_ptr<Operator> operator_;
};

using Salts = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Rotated = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void rotate(nb::bytes key, const std::string& isa, const Salts& salts, const Rows& x, const Rotated& y, bool back, int threads) {
  Turn turn{{}, salts.data(), x.shape(0), x.shape(1), back};
  read_key(key, turn.key);
  const bool alike = y.shape(0) == turn.n && y.shape(1) == turn.b && salts.shape(0) == turn.n;
  if (!alike || !turn.b || turn.b >> 31) throw std::invalid_argument("one salt a row, x and y alike, rows of 1 .. 2^31 - 1 numbers");
  const Rotate work = isa_named(isa).rotate;
  nb::gil_scoped_release release;
  work(turn, x.data(), y.data(), threads);
}

using Payloads = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Scales = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void decode(nb::bytes key, const std::string& isa, const Salts& salts, const Scales& scales, const Payloads& payloads, size_t start,
            const Rotated& y, int threads) {
  Turn turn{{}, salts.data(), y.shape(0), y.shape(1), true};
  read_key(key, turn.key);
  const bool alike = payloads.shape(0) == turn.n && salts.shape(0) == turn.n && scales.shape(0) == turn.n;
  const bool whole = start <= payloads.shape(1) && payloads.shape(1) - start == (turn.b + 7) / 8;
  if (!alike || !whole || !turn.b || turn.b >> 31) throw std::invalid_argument("one salt, scale and payload a row, a bit for each of 1 .. 2^31 - 1 numbers");
  const Decode work = isa_named(isa).decode;
  nb::gil_scoped_release release;
  work(turn, {payloads.data() + start, payloads.shape(1), scales.data()}, y.data(), threads);
}

using Goals = nb::ndarray<const int32_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const int8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Bits = nb::ndarray<uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void search(const std::string& isa, const Goals& goals, const Table& table, const Bits& bits, int threads) {
  const Paths paths{goals.data(), table.data(), goals.shape(0), goals.shape(1), goals.shape(2)};
  const bool alike = table.shape(0) == 1024 && table.shape(1) == paths.V && bits.shape(0) == paths.n;
  if (!alike || bits.shape(1) != (paths.T + 7) / 8) throw std::invalid_argument("a table of 1024 rows of V numbers, a bit for every V goals");
  const SearchPaths work = isa_named(isa).search;
  nb::gil_scoped_release release;
  work(paths, bits.data(), threads);
}

using Factors = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Total = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void add_rows(const std::string& isa, const Rows& values, const Factors& factors, const Total& total, int threads) {
  const WeightedRows rows{values.data(), factors.data(), values.shape(0), values.shape(1)};
  if (factors.shape(0) != rows.n || total.shape(0) != rows.b) throw std::invalid_argument("one factor a row, a total as long as a row");
  const AddRows work = isa_named(isa).add_rows;
  nb::gil_scoped_release release;
  work(rows, total.data(), threads);
}

// The CRC-16 of an object with a buffer (bytes, memoryview), from what came before on.
uint16_t checked(nb::handle data, uint16_t begun) {
  Py_buffer view;
  if (PyObject_GetBuffer(data.ptr(), &view, PyBUF_SIMPLE)) throw nb::python_error();
  const uint16_t crc = crc16(static_cast<const uint8_t*>(view.buf), size_t(view.len), begun);
  PyBuffer_Release(&view);
  return crc;
}

// A long result as bytes; its memory is kept for the next one when nobody holds it any more.
nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>> long_result(size_t bytes) {
  struct Block { void* data; size_t bytes; };
  auto block = std::make_unique<Block>(Block{take_long(bytes), bytes});
  nb::capsule owner(block.get(), [](void* held) noexcept {
    const std::unique_ptr<Block> one(static_cast<Block*>(held));
    give_long(one->data, one->bytes);
  });
  const Block* held = block.release();
  return {held->data, {bytes}, owner};
}

}  // namespace

NB_MODULE(_kernels, m) {
  nb::set_leak_warnings(false);  // whoever keeps a sketch to the end (torch's graphs do) has made no mistake
  m.doc() = "Compiled sketches; desketch.sketches is the interface.";
  m.def("isas", &isas, "Instruction sets usable here, best first.");
  m.def("variable", &variable, "A variable of the environment, or None.");
  m.def("rotate", &rotate, "y = Q x, or Q^T x, row by row.");
  m.def("decode", &decode, "One-bit messages, bits from byte `start` of a payload on: scale times signs, rotated back.");
  m.def("search", &search, "The bits of the trellis code whose vectors are nearest to rows of whole numbers; `bits` are zero before.");
  m.def("add_rows", &add_rows, "total += sum of factor times row, in float64, row after row.");
  m.def("crc16", &checked, "The CRC-16 of bytes, continued: binascii.crc_hqx.");
  m.def("long_result", &long_result, "Uninitialised bytes whose memory is used again.");
  m.def("fail_allocation", &fail_allocation, "Let the n-th allocation from now fail: for tests.");
  nb::class_<Plan>(m, "Plan")
      .def(nb::init<const std::string&, nb::bytes, const std::string&, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, double>(),
           nb::arg("family"), nb::arg("key"), nb::arg("isa"), nb::kw_only(), nb::arg("d"), nb::arg("b"), nb::arg("nnz") = 1,
           nb::arg("blocked") = 0, nb::arg("size") = 0, nb::arg("segment") = 0, nb::arg("scale") = 1.0)
      .def("sketch", &Plan::sketch)
      .def("desketch", &Plan::desketch)
      .def("sketch_at", &Plan::sketch_at)
      .def("desketch_at", &Plan::desketch_at);
}
