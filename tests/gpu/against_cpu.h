// Compares a CUDA kernel with its CPU twin. Three copies of the arrays hold the same values: double and float for the
// CPU, and the GPU's types on the GPU. The CPU's double result is the reference. The float result, rounded to the
// output's type, gives the error of a straightforward computation; the GPU may have twice that, in its largest element
// and in root mean square. Sums over a stored array use the values as stored.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/cuda_types.cuh"
#include "kernels/base/philox.h"
#include "tests/gpu/gpu.h"
#include "tests/support/rounding.h"

namespace longstride::test {

using kernels::Dtype;
using kernels::Shape;
using kernels::Tensor;

enum class Side { exact, single, gpu };

using longstride::testing::half_step_of;
using longstride::testing::rounded;

class Array {
 public:
  // An output: NaN everywhere.
  Array(const Shape& shape, Dtype dtype)
      : shape_(shape), dtype_(dtype), gpu_(std::make_shared<DeviceArray<unsigned char>>(bytes())) {
    initial_.assign(count(), std::numeric_limits<double>::quiet_NaN());
    reset();
  }
  // Normal numbers, rounded to dtype.
  static Array normal(const Shape& shape, Dtype dtype, std::uint32_t stream, double deviation = 1, double mean = 0) {
    Array a(shape, dtype);
#pragma omp parallel for if (a.count() > parallel_count)
    for (std::size_t i = 0; i < a.count(); ++i)
      a.initial_[i] = rounded(mean + deviation * kernels::normal_of(kernels::philox(
                                                     7, i, stream, kernels::domain_of(kernels::Purpose::test, 0))),
                              dtype);
    a.reset();
    return a;
  }
  static Array of(const Shape& shape, Dtype dtype, std::vector<double> values) {
    Array a(shape, dtype);
    a.initial_ = std::move(values);
    a.reset();
    return a;
  }
  static Array bytes_below(const Shape& shape, std::uint32_t limit, std::uint32_t stream) {
    Array a(shape, Dtype::u8);
    for (std::size_t i = 0; i < a.count(); ++i)
      a.initial_[i] = kernels::philox(7, i, stream, kernels::domain_of(kernels::Purpose::test, 1)).word[0] % limit;
    a.reset();
    return a;
  }

  // Restores the initial values of all three copies.
  void reset() {
    exact_ = initial_;
    single_.assign(initial_.begin(), initial_.end());
    const std::vector<std::byte> raw = longstride::testing::encoded(initial_, dtype_);
    if (dtype_ == Dtype::u8) small_.assign(initial_.begin(), initial_.end());
    kernels::cuda::check(cudaMemcpy(gpu_->data(), raw.data(), raw.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }

  Tensor view(Side side) {
    // Sums of squares are f64 on every side.
    const bool stored = side == Side::gpu || dtype_ == Dtype::u8 || dtype_ == Dtype::f64;
    const Dtype dtype = stored ? dtype_ : side == Side::exact ? Dtype::f64 : Dtype::f32;
    void* const data = side == Side::gpu      ? static_cast<void*>(gpu_->data())
                       : dtype_ == Dtype::u8  ? static_cast<void*>(small_.data())
                       : side == Side::exact  ? static_cast<void*>(exact_.data())
                       : dtype_ == Dtype::f64 ? static_cast<void*>(single_double())
                                              : static_cast<void*>(single_.data());
    return Tensor(data, dtype, shape_);
  }

  std::size_t count() const { return static_cast<std::size_t>(shape_.count()); }
  Dtype dtype() const { return dtype_; }
  std::vector<unsigned char> raw() const { return gpu_->host(); }
  std::vector<double> found() const {
    std::vector<std::byte> raw(bytes());
    kernels::cuda::check(cudaMemcpy(raw.data(), gpu_->data(), raw.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return longstride::testing::decoded(raw, dtype_);
  }
  const std::vector<double>& exact() const { return exact_; }

  // For an f64 result that is computed from f32 values: how often each of these has been rounded.
  void come_from_f32(int roundings) { f32_roundings_ = roundings; }

  // Rounds the naive values as a computation that stores them in this type would.
  void store_naive() {
    for (float& x : single_) x = static_cast<float>(rounded(x, dtype_));
  }
  // This array is `initial` plus the column sums of `values` as stored. The naive sums therefore use the naive values,
  // rounded as stored.
  void sums_columns_of(Array& values) {
    std::copy(initial_.begin(), initial_.end(), single_.begin());
    const std::size_t columns = count();
    double largest = 0;
    for (std::size_t i = 0; i < values.count(); ++i) {
      single_[i % columns] += static_cast<float>(rounded(values.single_[i], values.dtype_));
      largest = std::max(largest, std::abs(values.exact_[i]));
    }
    // Two computations of one value may round it to different neighbours.
    neighbours_ = values.dtype_ == Dtype::f32 ? 0 : 2 * half_step_of(values.dtype_) * largest;
  }

  void expect_close(const std::string& name) const {
    const std::vector<double> gpu = found();
    double error = 0, naive = 0, magnitude = 0, error_squares = 0, naive_squares = 0, squares = 0;
    for (std::size_t i = 0; i < count(); ++i) {
      const double e = std::abs(gpu[i] - exact_[i]);
      const double n = dtype_ == Dtype::f64 ? 0 : std::abs(rounded(single_[i], dtype_) - exact_[i]);
      error = e > error || std::isnan(e) ? e : error;
      naive = std::max(naive, n);
      error_squares += e * e;
      naive_squares += n * n;
      squares += exact_[i] * exact_[i];
      magnitude = std::max(magnitude, std::abs(exact_[i]));
    }
    EXPECT_LE(error, 2 * naive + magnitude * roundings() + neighbours_)
        << name << ": largest element " << magnitude << ", naive error " << naive;
    const auto rms = [&](double sum) { return std::sqrt(sum / static_cast<double>(count())); };
    EXPECT_LE(rms(error_squares), 2 * rms(naive_squares) + rms(squares) * roundings() + neighbours_)
        << name << ", root mean square: elements " << rms(squares) << ", naive error " << rms(naive_squares);
  }

 private:
  static constexpr std::size_t parallel_count = 10000;

  // The difference that another order of the same arithmetic may cause, relative to the largest element: sums of up to
  // 1,000 numbers in f32 differ by sqrt(1000) roundings, 16-bit results by one step.
  double roundings() const {
    if (dtype_ == Dtype::f64) return 1e-12 + f32_roundings_ * half_step_of(Dtype::f32);
    return (dtype_ == Dtype::f32 ? 32 : 2) * half_step_of(dtype_);
  }
  std::size_t bytes() const { return count() * kernels::bytes_of(dtype_); }
  double* single_double() {
    single_double_.assign(initial_.begin(), initial_.end());
    return single_double_.data();
  }

  Shape shape_;
  Dtype dtype_;
  double neighbours_ = 0;
  int f32_roundings_ = 0;
  std::vector<double> initial_, exact_, single_double_;
  std::vector<float> single_;
  std::vector<unsigned char> small_;
  std::shared_ptr<DeviceArray<unsigned char>> gpu_;
};

struct Named {
  const char* name;
  Array* array;
};

// Runs both kernels with make(side) and compares the outputs, then runs the GPU's kernel again and expects the same
// bits. as_stored: adjusts naive values that depend on others that the GPU first stores in a low-precision type.
template <class Args, class Make>
void compare(
    const std::string& what, void (*cpu)(const Args&, const kernels::Launch&),
    void (*cuda)(const Args&, const kernels::Launch&), Make&& make, const std::vector<Named>& outputs,
    const std::function<void()>& as_stored = [] {}) {
  const DeviceArray<unsigned char> workspace(std::size_t{32} << 20);
  const kernels::Launch launch{nullptr, workspace.data(), workspace.bytes()};
  std::vector<std::vector<unsigned char>> first;
  for (int repetition = 0; repetition < 3; ++repetition) {
    for (const Named& o : outputs) o.array->reset();
    cuda(make(Side::gpu), launch);
    kernels::cuda::check(cudaDeviceSynchronize(), what.c_str());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (repetition == 0)
        first.push_back(outputs[i].array->raw());
      else
        EXPECT_EQ(outputs[i].array->raw(), first[i]) << what << ' ' << outputs[i].name << ": other bits";
    }
  }
  cpu(make(Side::exact), {});
  cpu(make(Side::single), {});
  as_stored();
  for (const Named& o : outputs) o.array->expect_close(what + ' ' + o.name);
}

}  // namespace longstride::test
