// The seam between Python and the kernels: a drawn operator R, the rotation of the one-bit code, the search of the trellis code, sums of rows, per instruction set.
#pragma once
#include <cstddef>
#include <cstdint>

namespace desketch {

struct Params {
  const char* family;
  uint32_t key[4];
  int64_t d, b;
  int64_t nnz, blocked;    // sparse families
  int64_t size, segment;   // srht: numbers in a transform, numbers transformed at a time
  double scale;            // R = diag(scale) R0, R0 with entries 0, +-1 or N(0, 1)
};

struct Operator {
  Operator();
  virtual ~Operator();
  virtual void sketch(const float* g, float* y, size_t n, int threads) const = 0;
  virtual void sketch(const double* g, double* y, size_t n, int threads) const = 0;
  // out = R^T (scale s), or out += R^T (scale s)
  virtual void desketch(const float* s, float* out, size_t n, double scale, bool add, int threads) const = 0;
  virtual void desketch(const double* s, double* out, size_t n, double scale, bool add, int threads) const = 0;
};

// n rows of b numbers, row i rotated (forth or back) by stream salts[i] of the key.
struct Turn {
  uint32_t key[4];
  const uint32_t* salts;
  size_t n, b;
  bool back;
};

// n one-bit messages: row i is scales[i] times the signs of its bits (low bit first, set: negative), rotated back.
struct OneBit {
  const uint8_t* bits;
  size_t stride;  // bytes from one row's bits to the next
  const float* scales;
};

// n rows of T times V whole numbers, for each of which the nearest vector of the trellis code is sought; the table has 1024 rows of V.
struct Paths {
  const int32_t* goals;
  const int8_t* table;
  size_t n, T, V;
};

// n rows of b numbers, and what each is multiplied by when they are added up.
struct WeightedRows {
  const float* values;
  const double* factors;
  size_t n, b;
};

using Draw = Operator* (*)(const Params&);  // nullptr for a family it does not know
using Rotate = void (*)(const Turn&, const float* x, float* y, int threads);
using Decode = void (*)(const Turn&, const OneBit&, float* y, int threads);
using SearchPaths = void (*)(const Paths&, uint8_t* bits, int threads);
using AddRows = void (*)(const WeightedRows&, double* total, int threads);

Operator* draw_generic(const Params&);
void rotate_generic(const Turn&, const float*, float*, int);
void decode_generic(const Turn&, const OneBit&, float*, int);
void search_generic(const Paths&, uint8_t*, int);
void add_rows_generic(const WeightedRows&, double*, int);
#ifdef DESKETCH_X86
Operator* draw_avx2(const Params&);
Operator* draw_avx512(const Params&);
void rotate_avx2(const Turn&, const float*, float*, int);
void rotate_avx512(const Turn&, const float*, float*, int);
void decode_avx2(const Turn&, const OneBit&, float*, int);
void decode_avx512(const Turn&, const OneBit&, float*, int);
void search_avx2(const Paths&, uint8_t*, int);
void search_avx512(const Paths&, uint8_t*, int);
void add_rows_avx2(const WeightedRows&, double*, int);
void add_rows_avx512(const WeightedRows&, double*, int);
#endif

}  // namespace desketch
