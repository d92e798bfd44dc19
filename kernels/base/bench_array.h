// An array of floats for a benchmark, and the view of it that a kernel takes.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/base/philox.h"
#include "kernels/base/view.h"

namespace longstride::kernels {

class BenchArray {
 public:
  BenchArray(std::int64_t rows, std::int64_t columns)
      : rows_(rows), columns_(columns), values_(static_cast<std::size_t>(rows * columns)) {
    for (std::size_t i = 0; i < values_.size(); ++i)
      values_[i] = static_cast<float>(uniform_of(philox(1, i, 0, 0).word[0]) - 0.5);
  }
  View matrix() { return {values_.data(), Dtype::f32, 2, {rows_, columns_}, {columns_, 1}}; }
  View transposed() { return {values_.data(), Dtype::f32, 2, {columns_, rows_}, {1, columns_}}; }
  View flat() { return {values_.data(), Dtype::f32, 1, {rows_ * columns_}, {1}}; }
  float* data() { return values_.data(); }

 private:
  std::int64_t rows_, columns_;
  std::vector<float> values_;
};

}  // namespace longstride::kernels
