// One test body for an op on every device and in every type: on the CPU in f64 and f32, on a GPU in f32, bf16 and f16.
//
// The reference is a plain loop, templated on the type that it computes in. In double it is exact; in float, with
// results rounded to the tested type, it gives the error of a straightforward computation. The op may have twice that,
// in its largest element and in root mean square.
#pragma once
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "framework/core/context.h"
#include "framework/core/device/memory.h"
#include "framework/core/device/stream.h"
#include "framework/ops/run.h"
#include "kernels/base/tensor_checks.h"
#include "tests/ops/as_exact.h"
#include "tests/support/drawn_normals.h"
#include "tests/support/rounding.h"

namespace longstride::testing {

// The parameters of a test: a device and the compute type.
struct Precision {
  Device device;
  Dtype dtype;
};

inline const Precision precisions[] = {{Device::cpu, Dtype::f64},
                                       {Device::cpu, Dtype::f32},
                                       {Device::cuda, Dtype::f32},
                                       {Device::cuda, Dtype::bf16},
                                       {Device::cuda, Dtype::f16}};

// cpu_f64, gpu_bf16 and so on; ctest labels the latter `gpu` (tests/CMakeLists.txt).
inline std::string name_of(const Precision& p) {
  return std::string(p.device == Device::cpu ? "cpu_" : "gpu_") + ::longstride::kernels::name_of(p.dtype);
}
inline void PrintTo(const Precision& p, std::ostream* out) { *out << name_of(p); }  // in ctest's lists

#define LONGSTRIDE_OP_TESTS(suite)                                                            \
  INSTANTIATE_TEST_SUITE_P(On, suite, ::testing::ValuesIn(::longstride::testing::precisions), \
                           [](const auto& i) { return ::longstride::testing::name_of(i.param); })

// Off for compute-sanitizer's initcheck, which treats poison as an ordinary value.
inline bool poisons() {
  const char* setting = std::getenv("LONGSTRIDE_TEST_POISON");
  return setting == nullptr || std::string_view(setting) != "0";
}

// An argument of an op: values rounded to a type, in device memory. Outputs are initially NaN.
class Operand {
 public:
  Operand(const Queue& queue, const Shape& shape, Dtype dtype, std::vector<double> values)
      : queue_(queue), values_(std::move(values)) {
    const std::size_t bytes = static_cast<std::size_t>(shape.count()) * kernels::bytes_of(dtype);
    memory_ = std::make_shared<Block>(queue.device(), bytes);
    tensor_ = Tensor(memory_->data(), dtype, shape);
    reset();
  }
  operator const Tensor&() const { return tensor_; }
  const Tensor* operator->() const { return &tensor_; }
  const std::vector<double>& values() const { return values_; }  // the initial ones
  double at(std::int64_t i) const { return values_[static_cast<std::size_t>(i)]; }

  // Restores the initial values.
  void reset() {
    if (std::isnan(values_.front()) && !poisons()) return;
    const std::vector<std::byte> raw = encoded(values_, tensor_.dtype());
    queue_.copy_to_device(tensor_.data(), raw.data(), raw.size());
    queue_.synchronize();
  }
  std::vector<std::byte> raw() const {
    std::vector<std::byte> raw(tensor_.bytes());
    queue_.copy_to_host(raw.data(), tensor_.data(), raw.size());
    queue_.synchronize();
    return raw;
  }
  std::vector<double> found() const { return decoded(raw(), tensor_.dtype()); }

 private:
  Queue queue_;
  std::vector<double> values_;
  std::shared_ptr<Block> memory_;
  Tensor tensor_;
};

class OpTest : public ::testing::TestWithParam<Precision> {
 protected:
  static constexpr std::size_t arena_bytes = std::size_t{256} << 20;

  void SetUp() override {
    if (GetParam().device == Device::cuda && device_count() == 0) GTEST_SKIP() << "no GPU";
    const std::size_t library = library_workspace_bytes(device());
    stream_ = std::make_unique<Stream>(device());
    memory_ = Block(device(), arena_bytes + library);
    arena_ = Arena(memory_.data(), arena_bytes);
    ctx.device = device();
    ctx.arena = &arena_;
    ctx.launch = {stream_->stream(), memory_.data() + arena_bytes, library};
    ctx.compute = compute();
    ctx.exact = exact();
  }

  Device device() const { return GetParam().device; }
  Dtype compute() const { return GetParam().dtype; }
  Dtype exact() const { return kernels::exact_type(device(), compute()); }

  // Normal numbers, of the compute type unless another is given.
  Operand normals(const Shape& shape, std::uint32_t stream, double deviation = 1) {
    return normals(shape, compute(), stream, deviation);
  }
  Operand normals(const Shape& shape, Dtype dtype, std::uint32_t stream, double deviation = 1, double mean = 0) {
    std::vector<double> values(static_cast<std::size_t>(shape.count()));
    const std::vector<double>& drawn = drawn_normals(7, stream, values.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = rounded(static_cast<float>(mean + deviation * drawn[i]), dtype);
    return with_values(shape, dtype, std::move(values));
  }
  Operand with_values(const Shape& shape, Dtype dtype, std::vector<double> values) {
    return {*stream_, shape, dtype, std::move(values)};
  }
  Operand filled(const Shape& shape, Dtype dtype, double value) {
    return with_values(shape, dtype, std::vector<double>(static_cast<std::size_t>(shape.count()), value));
  }
  Operand result(const Shape& shape) { return result(shape, compute()); }
  Operand result(const Shape& shape, Dtype dtype) { return filled(shape, dtype, std::nan("")); }

  // Runs it several times, on the CPU with several numbers of threads, on a GPU also as a graph, in which nothing waits
  // or allocates, and expects the same bits each time. While planning it takes the same scratch and writes nothing.
  template <class Op>
  void repeat(Op&& op, const std::vector<Operand*>& written) {
    const int threads = omp_get_max_threads();
    std::vector<std::vector<std::byte>> first, untouched;
    const auto expect_bits = [&](const std::string& how, const std::vector<std::vector<std::byte>>& expected) {
      std::size_t i = 0;
      for (const Operand* o : written) {
        EXPECT_EQ(o->raw(), expected[i]) << "output " << i << ", " << how << ": other bits";
        ++i;
      }
    };
    const auto reset = [&] {
      for (Operand* o : written) o->reset();
      arena_ = Arena(memory_.data(), arena_bytes);
    };
    omp_set_num_threads(3);  // on which the last run takes its scratch
    reset();
    for (const Operand* o : written) untouched.push_back(o->raw());
    Arena planned;
    Context plan = ctx;
    plan.arena = &planned;
    op(plan);
    expect_bits("planning", untouched);
    for (const int n : {1, 2, 3}) {
      omp_set_num_threads(n);
      reset();
      op(ctx);
      if (first.empty())
        for (const Operand* o : written) first.push_back(o->raw());
      expect_bits(std::to_string(n) + " threads", first);
    }
    omp_set_num_threads(threads);
    EXPECT_EQ(planned.high_water(), arena_.high_water());
    EXPECT_EQ(arena_.scratch_used(), 0u);
    if (device() == Device::cpu) return;
    reset();
    Graph graph;
    graph.capture(*stream_, [&] { op(ctx); });
    graph.replay(*stream_);
    expect_bits("a graph", first);
  }
  template <class Args>
  void run(const Args& args, const std::vector<Operand*>& written) {
    repeat([&](Context& c) { ops::run(c, args); }, written);
  }

  // plain(T{}) returns all elements of `found` as a plain loop in T computes them. If the op sums values that it has
  // stored, two computations of one value may have rounded it to different neighbours; `slack` allows for that.
  template <class Plain>
  void expect_as_exact_as_plain(const std::string& name, const Operand& found, Plain&& plain, double slack = 0) const {
    expect_as_exact_as_plain(name, found->dtype(), found.found(), plain, slack);
  }
  template <class Plain>
  void expect_as_exact_as_plain(const std::string& name, Dtype dtype, const std::vector<double>& values, Plain&& plain,
                                double slack = 0) const {
    expect_as_exact(name, dtype, values, plain(double{}), plain(float{}), slack);
  }

  Context ctx;

 private:
  std::unique_ptr<Stream> stream_;
  Block memory_;
  Arena arena_;
};

}  // namespace longstride::testing
