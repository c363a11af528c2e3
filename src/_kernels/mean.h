// Rows of float32 added up in float64, each times a factor, one row after the other.
//
// A product and a sum are two roundings each, and every number is added in the order of the rows: the same bits whatever the
// threads, the instruction set and the number of rows that come at once.
#pragma once
#include "parallel.h"

namespace desketch::ISA {

inline void add_rows(const WeightedRows& rows, double* total, int threads) {
  constexpr size_t kTile = 512;  // numbers of the total that stay in the first cache
  parallel((rows.b + kTile - 1) / kTile, threads, [&](size_t tile) {
    const size_t from = tile * kTile, upto = least(rows.b, from + kTile);
    for (size_t row = 0; row < rows.n; ++row) {
      const float* x = rows.values + row * rows.b;
      const double factor = rows.factors[row];
      for (size_t i = from; i < upto; ++i) total[i] += factor * double(x[i]);
    }
  });
}

}  // namespace desketch::ISA
