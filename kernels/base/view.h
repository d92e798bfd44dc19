// A raw view: pointer, element type, sizes and strides (in elements), at most four dimensions. It owns
// nothing and checks nothing: the framework validates once, the kernels trust.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"

namespace longstride::kernels {

struct View {
  static constexpr int max_rank = 4;

  void* data = nullptr;
  Dtype dtype = Dtype::f32;
  int rank = 0;  // 0: absent (an optional argument that was not given)
  std::int64_t size[max_rank] = {};
  std::int64_t stride[max_rank] = {};

  bool given() const { return rank > 0; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  std::int64_t count() const {
    std::int64_t n = rank > 0 ? 1 : 0;
    for (int d = 0; d < rank; ++d) n *= size[d];
    return n;
  }
};

class Meter;  // kernels/base/meter.h

// Where a kernel runs. On the CPU there is nothing to say: threads are OpenMP's.
struct Launch {
  void* stream = nullptr;     // cudaStream_t
  void* workspace = nullptr;  // device memory that a library call may use until the next one on this stream
  std::size_t workspace_bytes = 0;
  // A GPU run before the first, to choose algorithms by time: results do not matter, and every argument, inputs too,
  // may be overwritten. The host may wait.
  bool rehearsal = false;
  Meter* meter = nullptr;  // told of every range of work; for measuring
};

// Calls f(T{}) with T the floating type of `dtype` among those the CPU computes in.
template <class F>
void with_float_type(Dtype dtype, F&& f) {
  if (dtype == Dtype::f64)
    f(double{});
  else
    f(float{});
}

}  // namespace longstride::kernels
