// Fills, copies, additions and sums of contiguous arrays.
#pragma once
#include "kernels/base/view.h"

namespace longstride::kernels {

struct FillZeroArgs {
  View x;  // any type
};

struct CopyArgs {
  View from;  // any type
  View to;    // of the same count and type; on a GPU, where both are floating types, of any: rounded
};

struct AddArgs {
  View a;
  View b;
  View y;  // a + b; may be a or b
};

// total (1) f64 += sum of f(x), with f(x) = x or x^2, added in f64 in a fixed order: chunks of `chunk` elements, then
// the chunks. Independent of the number of threads.
struct SumArgs {
  static constexpr std::int64_t chunk = 16384;
  static constexpr std::int64_t chunks(std::int64_t count) { return (count + chunk - 1) / chunk; }
  View x;
  View total;     // (1) f64
  View partials;  // (chunks(count of x)) f64: workspace
  bool squares = false;
};

namespace cpu {
void fill_zero(const FillZeroArgs&, const Launch&);
void copy(const CopyArgs&, const Launch&);
void add(const AddArgs&, const Launch&);
void sum(const SumArgs&, const Launch&);
}  // namespace cpu
namespace cuda {
void fill_zero(const FillZeroArgs&, const Launch&);
void copy(const CopyArgs&, const Launch&);
void add(const AddArgs&, const Launch&);
void sum(const SumArgs&, const Launch&);
}  // namespace cuda

}  // namespace longstride::kernels
