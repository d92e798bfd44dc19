// The kernels around a scan on emulated blocks, compared with the CPU's in fp32: sums in another order alone.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/base/philox.h"
#include "kernels/gated_norm/gated_norm.h"
#include "kernels/repeat_heads/repeat_heads.h"
#include "kernels/scale_heads/scale_heads.h"
#include "kernels/scan_gates/scan_gates.h"
#include "kernels/short_convolution/short_convolution.h"

namespace longstride::kernels {
namespace {

// Numbers of one tensor, with whose memory a kernel is called.
class Numbers {
 public:
  Numbers(const Shape& shape, std::uint32_t stream) : shape_(shape) {
    for (std::int64_t i = 0; i < shape.count(); ++i)
      values_.push_back(
          static_cast<float>(normal_of(philox(7, static_cast<std::uint64_t>(i), stream, domain_of(Purpose::test, 0)))));
  }
  operator Tensor() { return {values_.data(), Dtype::f32, shape_}; }
  const std::vector<float>& values() const { return values_; }

 private:
  Shape shape_;
  std::vector<float> values_;
};

void expect_equal(const Numbers& found, const Numbers& expected, const char* name) {
  double largest = 0;
  for (const float x : expected.values()) largest = std::max(largest, std::abs(static_cast<double>(x)));
  for (std::size_t i = 0; i < expected.values().size(); ++i)
    ASSERT_NEAR(found.values()[i], expected.values()[i], 1e-5 * (1 + largest)) << name << " " << i;
}

template <class Args>
Args with_scratch(Args args, Device device, std::vector<float>& memory) {
  const Tensor needed = args.scratch_on(device);
  memory.assign(static_cast<std::size_t>(needed.given() ? needed.count() : 0), NAN);
  if (needed.given()) args.scratch = Tensor(memory.data(), Dtype::f32, needed.shape());
  return args;
}

TEST(EmulatedScanOps, Gates) {
  for (const auto& [rows, columns] : {std::pair{1, 1}, {70, 8}, {131, 70}})
    for (const ScanGate gate : {ScanGate::softplus, ScanGate::step, ScanGate::log_sigmoid, ScanGate::sigmoid}) {
      const Shape shape{rows, columns}, row{columns};
      Numbers x(shape, 1), dy(shape, 2), rate(row, 3), bias(row, 4);
      const bool rates = gate == ScanGate::softplus, biases = gate != ScanGate::sigmoid;
      const auto forward = [&](auto&& gates) {
        Numbers y(shape, 9);
        gates(ScanGatesArgs{gate, x, y, rates ? Tensor(rate) : Tensor{}, biases ? Tensor(bias) : Tensor{}, 0.5}, {});
        return y;
      };
      expect_equal(forward(cuda::scan_gates), forward(cpu::scan_gates), "y");
      const auto backward = [&](auto&& gates, Device device) {
        std::vector<Numbers> out = {{shape, 9}, {row, 5}, {row, 6}};
        std::vector<float> memory;
        gates(with_scratch(ScanGatesBackwardArgs{.gate = gate,
                                                 .dy = dy,
                                                 .x = x,
                                                 .dx = out[0],
                                                 .rate = rates ? Tensor(rate) : Tensor{},
                                                 .bias = biases ? Tensor(bias) : Tensor{},
                                                 .drate = rates ? Tensor(out[1]) : Tensor{},
                                                 .dbias = biases ? Tensor(out[2]) : Tensor{},
                                                 .factor = 0.5},
                           device, memory),
              {});
        return out;
      };
      const auto found = backward(cuda::scan_gates_backward, Device::cuda),
                 expected = backward(cpu::scan_gates_backward, Device::cpu);
      for (std::size_t i = 0; i < found.size(); ++i) expect_equal(found[i], expected[i], "a gradient");
    }
}

TEST(EmulatedScanOps, GatedNorm) {
  struct Form {
    bool normed, gated, gate_first;
    int sets;
  };
  for (const auto& [rows, size] : {std::pair{1, 2}, {70, 7}, {132, 100}, {70, 64}, {40, 132}})
    for (const auto& [normed, gated, gate_first, sets] :
         {Form{true, true, false, 1}, {true, false, false, 2}, {false, true, false, 1}, {true, true, true, 2}}) {
      if (rows % sets != 0) continue;
      const Shape shape{rows, size}, row{sets, size};
      Numbers x(shape, 1), dy(shape, 2), gain(row, 3), gate(shape, 4);
      const Tensor gain_of = normed ? Tensor(gain) : Tensor{}, gate_of = gated ? Tensor(gate) : Tensor{};
      const auto forward = [&](auto&& norm) {
        Numbers y(shape, 9);
        norm(GatedNormArgs{x, y, gain_of, gate_of, gate_first}, {});
        return y;
      };
      expect_equal(forward(cuda::gated_norm), forward(cpu::gated_norm), "y");
      const auto backward = [&](auto&& norm, Device device) {
        std::vector<Numbers> out = {{shape, 9}, {row, 5}, {shape, 6}};
        std::vector<float> memory;
        norm(with_scratch(GatedNormBackwardArgs{.dy = dy,
                                                .x = x,
                                                .dx = out[0],
                                                .gain = gain_of,
                                                .gate = gate_of,
                                                .dgain = gain_of.given() ? Tensor(out[1]) : Tensor{},
                                                .dgate = gate_of.given() ? Tensor(out[2]) : Tensor{},
                                                .gate_first = gate_first},
                          device, memory),
             {});
        return out;
      };
      const auto found = backward(cuda::gated_norm_backward, Device::cuda),
                 expected = backward(cpu::gated_norm_backward, Device::cpu);
      for (std::size_t i = 0; i < found.size(); ++i) expect_equal(found[i], expected[i], "a gradient");
    }
}

TEST(EmulatedScanOps, ShortConvolution) {
  for (const std::int64_t width : {2, 3, 4})
    for (const bool documents : {false, true}) {
      // With one channel a thread, and with four.
      const std::int64_t batch = 2, n = 75, channels = width == 3 ? 5 : 12;
      const Shape shape{batch, n, channels}, kept{batch, width - 1, channels}, taps{channels, width};
      Numbers x(shape, 1), dy(shape, 2), weight(taps, 3), before(kept, 4), shifts({channels}, 7);
      const Tensor bias = width < 4 ? Tensor(shifts) : Tensor{};
      std::vector<std::int32_t> bounds;
      for (std::int64_t i = 0; i < batch * n; ++i) bounds.push_back(static_cast<std::int32_t>(i % n / 17 * 17));
      const Tensor begin = documents ? Tensor(bounds.data(), Dtype::i32, {batch, 1, n}) : Tensor{};
      const auto forward = [&](auto&& convolution) {
        std::vector<Numbers> out = {{shape, 9}, {kept, 9}};
        convolution(
            ShortConvolutionArgs{
                .x = x, .weight = weight, .y = out[0], .before = before, .after = out[1], .begin = begin, .bias = bias},
            {});
        return out;
      };
      const auto backward = [&](auto&& convolution, Device device) {
        std::vector<Numbers> out = {{shape, 9}, {taps, 5}, {{channels}, 8}};
        std::vector<float> memory;
        convolution(with_scratch(ShortConvolutionBackwardArgs{.dy = dy,
                                                              .x = x,
                                                              .weight = weight,
                                                              .dx = out[0],
                                                              .dweight = out[1],
                                                              .before = before,
                                                              .begin = begin,
                                                              .bias = bias,
                                                              .dbias = bias.given() ? Tensor(out[2]) : Tensor{}},
                                 device, memory),
                    {});
        return out;
      };
      const auto y = forward(cuda::short_convolution), right = forward(cpu::short_convolution);
      const auto d = backward(cuda::short_convolution_backward, Device::cuda),
                 expected = backward(cpu::short_convolution_backward, Device::cpu);
      for (std::size_t i = 0; i < y.size(); ++i) expect_equal(y[i], right[i], "forward");
      for (std::size_t i = 0; i < d.size(); ++i) expect_equal(d[i], expected[i], "backward");
    }
}

TEST(EmulatedScanOps, RepeatedHeads) {
  Numbers x({2, 5, 3, 7}, 1), dy({2, 5, 6, 7}, 2);
  const auto made = [&](auto&& forward, auto&& backward) {
    std::vector<Numbers> out = {{{2, 5, 6, 7}, 8}, {{2, 5, 3, 7}, 9}};
    forward(RepeatHeadsArgs{x, out[0]}, {});
    backward(RepeatHeadsBackwardArgs{dy, out[1]}, {});
    return out;
  };
  const auto found = made(cuda::repeat_heads, cuda::repeat_heads_backward),
             expected = made(cpu::repeat_heads, cpu::repeat_heads_backward);
  for (std::size_t i = 0; i < found.size(); ++i) expect_equal(found[i], expected[i], "heads");
}

TEST(EmulatedScanOps, ScaledHeads) {
  const Shape shape{2, 9, 3, 40};
  for (const bool shared : {false, true}) {
    Numbers x(shape, 1), dy(shape, 2), add(shape, 3), scale(shared ? Shape{3} : Shape{2, 9, 3}, 4);
    const auto made = [&](auto&& forward, auto&& backward) {
      std::vector<Numbers> out = {{shape, 8}, {shape, 9}, {{2, 9, 3}, 10}};
      forward(ScaleHeadsArgs{x, scale, out[0], shared ? Tensor(add) : Tensor{}}, {});
      backward(ScaleHeadsBackwardArgs{dy, x, scale, out[1], out[2], shared}, {});
      return out;
    };
    const auto found = made(cuda::scale_heads, cuda::scale_heads_backward),
               expected = made(cpu::scale_heads, cpu::scale_heads_backward);
    for (std::size_t i = 0; i < found.size(); ++i) expect_equal(found[i], expected[i], "heads");
  }
}

}  // namespace
}  // namespace longstride::kernels
