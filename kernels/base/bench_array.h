// An array of floats for a benchmark, also available as the tensor that a kernel takes.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/base/op.h"
#include "kernels/base/philox.h"

namespace longstride::kernels {

class BenchArray {
 public:
  BenchArray(std::int64_t rows, std::int64_t columns)
      : rows_(rows), columns_(columns), values_(static_cast<std::size_t>(rows * columns)) {
    for (std::size_t i = 0; i < values_.size(); ++i)
      values_[i] = static_cast<float>(uniform_of(philox(1, i, 0, 0).word[0]) - 0.5);
  }
  Tensor matrix() { return {values_.data(), Dtype::f32, {rows_, columns_}}; }
  Tensor transposed() { return matrix().transposed(); }
  Tensor flat() { return {values_.data(), Dtype::f32, {rows_ * columns_}}; }
  float* data() { return values_.data(); }

 private:
  std::int64_t rows_, columns_;
  std::vector<float> values_;
};

}  // namespace longstride::kernels
