// A scan and its backward pass on emulated blocks, compared with the recurrence.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_types.cuh"
#include "kernels/scan/scan.h"
#include "tests/ops/as_exact.h"
#include "tests/ops/scan/scan_input.h"

namespace longstride::testing {

class EmulatedScan {
 public:
  EmulatedScan(const ScanShape& shape, Dtype compute) : shape_(shape), compute_(compute) {
    in_ = drawn_scan(shape, compute, Dtype::f32);
    forward_.form = backward_.form = shape.form;
    forward_.run = backward_.run = shape.run;
    forward_.direction = backward_.direction = shape.both ? kernels::Direction::both : kernels::Direction::past;
    forward_.q = backward_.q = rows(in_.q, shape.keys());
    forward_.k = backward_.k = rows(in_.k, shape.keys());
    forward_.v = backward_.v = rows(in_.v, shape.values());
    forward_.o = backward_.o = rows({}, shape.values());
    backward_.dout = rows(in_.dout, shape.values());
    backward_.dq = rows({}, shape.keys());
    backward_.dk = rows({}, shape.keys());
    backward_.dv = rows({}, shape.values());
    forward_.decay = backward_.decay = given(in_.decay, shape.decays());
    forward_.beta = backward_.beta = given(in_.beta, shape.rows());
    if (shape.groups)
      forward_.begin = backward_.begin =
          tensor({in_.bounds.begin(), in_.bounds.end()}, {shape.batch, 1, shape.n}, Dtype::i32);
    if (shape.normalised) forward_.denominator = backward_.denominator = result({shape.batch, shape.heads, shape.n});
    if (forward_.decay.given() && !shape.known) backward_.ddecay = result(shape.decays());
    if (forward_.beta.given()) backward_.dbeta = result(shape.rows());
    if (shape.both) return;
    forward_.chunk_states = backward_.chunk_states =
        result({shape.batch * shape.heads, kernels::scan_states(kernels::Device::cuda, kernels::problem_of(forward_)),
                shape.key_size, shape.columns()});
    if (!shape.states) return;
    forward_.first_state = given(in_.first_state, shape.state());
    forward_.last_state = result(shape.state());
    backward_.dlast_state = given(in_.dlast_state, shape.state());
    backward_.dfirst_state = result(shape.state());
  }

  // All that is written, as it is in memory, with events in the seed's order.
  std::vector<std::byte> run(std::uint64_t seed) {
    kernels::cuda::emulation.seed = seed;
    for (const Tensor& x : results()) std::memset(x.data(), 0xFF, span(x));
    run_within_scratch(forward_, [](const auto& args) { kernels::cuda::scan(args, {}); });
    run_within_scratch(backward_, [](const auto& args) { kernels::cuda::scan_backward(args, {}); });
    std::vector<std::byte> written;
    for (const Tensor& x : results()) {
      const auto* bytes = x.as<const std::byte>();
      written.insert(written.end(), bytes, bytes + span(x));
    }
    return written;
  }

  void expect_the_recurrence() const {
    SCOPED_TRACE(shape_.text() + " in " + kernels::name_of(compute_));
    const std::map<std::string, Tensor> found = {{"o", forward_.o},
                                                 {"denominator", forward_.denominator},
                                                 {"last state", forward_.last_state},
                                                 {"dq", backward_.dq},
                                                 {"dk", backward_.dk},
                                                 {"dv", backward_.dv},
                                                 {"ddecay", backward_.ddecay},
                                                 {"dbeta", backward_.dbeta},
                                                 {"dfirst state", backward_.dfirst_state}};
    each_scan_result(in_, compute_, [&](const char* name, const auto& right, const auto& naive, double slack) {
      if (found.at(name).given()) expect_as_exact(name, compute_, values_of(found.at(name)), right, naive, slack);
    });
  }

 private:
  using Tensor = kernels::Tensor;
  static std::size_t at(std::int64_t x) { return static_cast<std::size_t>(x); }

  Tensor tensor(const std::vector<double>& values, const Shape& shape, Dtype dtype) {
    memory_.emplace_back((at(shape.count()) * kernels::bytes_of(dtype) + 15) / 16);
    if (!values.empty()) {
      const std::vector<std::byte> raw = encoded(values, dtype);
      std::memcpy(memory_.back().data(), raw.data(), raw.size());
    }
    return {memory_.back().data(), dtype, shape};
  }
  Tensor given(const std::vector<double>& values, const Shape& shape) {
    return values.empty() ? Tensor() : tensor(values, shape, Dtype::f32);
  }
  Tensor result(const Shape& shape) { return tensor({}, shape, Dtype::f32); }
  // Heads and positions that are not neighbours, as where q, k and v are parts of one row.
  Tensor rows(const std::vector<double>& values, const Shape& shape) {
    const std::int64_t size = shape[3], gap = 16, row = (size + gap) * shape[2] + gap;
    const Tensor there = tensor({}, {shape[0], shape[1], row}, compute_);
    const Tensor x(there.data(), compute_, shape, {shape[1] * row, row, size + gap, 1});
    const std::vector<std::byte> raw = encoded(values, compute_);
    const std::size_t bytes = at(size) * kernels::bytes_of(compute_);
    for (std::size_t r = 0; r < raw.size() / bytes; ++r) std::memcpy(row_of(x, r), raw.data() + r * bytes, bytes);
    return x;
  }
  static std::byte* row_of(const Tensor& x, std::size_t r) {
    const auto n = at(x.size(1)), heads = at(x.size(2));
    const std::size_t element =
        r / heads / n * at(x.stride(0)) + r / heads % n * at(x.stride(1)) + r % heads * at(x.stride(2));
    return x.as<std::byte>() + element * kernels::bytes_of(x.dtype());
  }
  static bool dense(const Tensor& x) { return x.contiguous(); }
  static std::size_t span(const Tensor& x) {
    return dense(x) ? x.bytes() : at(x.size(0) * x.stride(0)) * kernels::bytes_of(x.dtype());
  }
  static std::vector<double> values_of(const Tensor& x) {
    std::vector<std::byte> raw(x.bytes());
    const std::size_t bytes = at(x.size(-1)) * kernels::bytes_of(x.dtype());
    for (std::size_t r = 0; r < raw.size() / bytes; ++r)
      std::memcpy(raw.data() + r * bytes, dense(x) ? x.as<const std::byte>() + r * bytes : row_of(x, r), bytes);
    return decoded(raw, x.dtype());
  }
  std::vector<Tensor> results() const {
    std::vector<Tensor> all;
    for (const Tensor* x :
         {&forward_.o, &forward_.denominator, &forward_.chunk_states, &forward_.last_state, &backward_.dq,
          &backward_.dk, &backward_.dv, &backward_.ddecay, &backward_.dbeta, &backward_.dfirst_state})
      if (x->given()) all.push_back(*x);
    return all;
  }
  template <class Args, class F>
  static void run_within_scratch(Args args, F&& run) {
    args.check(kernels::Device::cuda);
    const Tensor needed = args.scratch_on(kernels::Device::cuda);
    constexpr std::uint64_t untouched = 0x7FF7FFF77FF7FFF7;  // NaN in every type
    const std::size_t words = needed.bytes() / 8;
    std::vector<std::uint64_t> scratch(words + 8, untouched);
    args.scratch = Tensor(scratch.data(), Dtype::u8, needed.shape());
    run(args);
    EXPECT_EQ(std::count(scratch.begin() + static_cast<std::ptrdiff_t>(words), scratch.end(), untouched), 8)
        << "more scratch is used than was asked for";
  }

  ScanShape shape_;
  Dtype compute_;
  ScanInput in_;
  struct alignas(16) Word {
    std::byte bytes[16];
  };
  std::deque<std::vector<Word>> memory_;
  kernels::ScanArgs forward_{};
  kernels::ScanBackwardArgs backward_{};
};

// The first run is as exact as the recurrence; in another order of events the bits are the same.
inline void expect_the_recurrence(const ScanShape& shape, Dtype compute, int runs = 1) {
  EmulatedScan scan(shape, compute);
  const std::vector<std::byte> first = scan.run(1);
  scan.expect_the_recurrence();
  for (int seed = 2; seed <= runs; ++seed)
    EXPECT_TRUE(scan.run(static_cast<std::uint64_t>(seed)) == first) << "other bits, " << shape.text();
}

}  // namespace longstride::testing
