// Compares algorithms for one product: random operands in place of the real ones, the bits of the result as one number,
// and times.
#pragma once
#include <algorithm>

#include "kernels/base/cuda_launch.cuh"
#include "kernels/gemm/gemm.h"

namespace longstride::kernels::cuda {

class Rehearsal {
 public:
  // Overwrites a, b and, if given, bias, addend and scales.
  Rehearsal(const GemmArgs& args, const Launch& launch);
  ~Rehearsal();
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

  void clear_result() const;          // c = 0
  std::uint64_t result_bits() const;  // a hash of the result. Waits
  template <class F>
  float least_ms(int repeats, F&& f) const {  // waits
    float least = 0;
    for (int i = 0; i < repeats; ++i) {
      begin();
      f();
      const float ms = end();
      least = i == 0 ? ms : std::min(least, ms);
    }
    return least;
  }

 private:
  void begin() const;
  float end() const;

  Tensor c_;
  Launch launch_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  unsigned long long* bits_ = nullptr;  // in the library's workspace, which is unused between two products
};

}  // namespace longstride::kernels::cuda
