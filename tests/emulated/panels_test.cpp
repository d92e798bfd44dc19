// Hopper's products by panels on emulated blocks, compared with the CPU's op.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/philox.h"
#include "kernels/base/row_chunks.h"
#include "kernels/gemm/activation.h"
#include "kernels/gemm/gemm_gelu_sm90.h"
#include "kernels/gemm/gemm_panels_sm90.h"
#include "tests/support/rounding.h"

namespace longstride::kernels {
namespace {

using longstride::testing::decoded;
using longstride::testing::encoded;
using longstride::testing::rounded;

// An array in doubles, and what a call of one precision has made of it.
struct Operand {
  kernels::Shape shape;
  Dtype dtype;  // on a GPU
  std::vector<double> values;
  std::vector<std::byte> memory = {};

  static Operand normal(const kernels::Shape& shape, Dtype dtype, std::uint32_t stream, double deviation = 1) {
    Operand made{shape, dtype, std::vector<double>(static_cast<std::size_t>(shape.count()))};
    for (std::size_t i = 0; i < made.values.size(); ++i)
      made.values[i] = rounded(deviation * normal_of(philox(7, i, stream, domain_of(Purpose::test, 0))), dtype);
    return made;
  }
  Tensor as(Dtype type) {
    memory = encoded(values, type);
    return {memory.data(), type, shape};
  }
};

struct Results {
  std::vector<double> c, activated, sums;
  bool operator==(const Results&) const = default;
};

struct Product {
  std::int64_t rows, columns, depth;
  Epilogue epilogue;
  bool adds;
  Operand a = Operand::normal({rows, depth}, Dtype::bf16, 1),
          b = Operand::normal({depth, columns}, Dtype::bf16, 2, 1 / std::sqrt(static_cast<double>(depth))),
          turned = Operand::normal({columns, depth}, Dtype::bf16, 3, 1 / std::sqrt(static_cast<double>(depth))),
          bias = Operand::normal({columns}, Dtype::bf16, 4), more = Operand::normal({rows, columns}, Dtype::bf16, 5),
          c = Operand::normal({rows, columns}, Dtype::bf16, 6),
          active = Operand::normal({rows, columns}, Dtype::bf16, 7), sums = Operand::normal({columns}, Dtype::f32, 8);
  std::vector<double> scratch = {};

  // In one precision throughout, or with vectors in f32 as on a GPU.
  GemmArgs args(Dtype matrices, Dtype vectors) {
    GemmArgs args;
    args.a = a.as(matrices);
    args.b = adds_bias(epilogue) ? turned.as(matrices).transposed() : b.as(matrices);
    args.c = c.as(matrices);
    args.epilogue = epilogue;
    if (adds_bias(epilogue)) args.bias = bias.as(matrices);
    if (adds) args.addend = more.as(matrices);
    if (epilogue == Epilogue::bias_gelu) args.activated = active.as(matrices);
    if (!is_backward(epilogue)) return args;
    args.activated = more.as(matrices);
    args.column_sums = sums.as(vectors);
    const std::int64_t chunks = row_chunks(matrices == vectors ? Device::cpu : Device::cuda, rows).chunks;
    scratch.assign(static_cast<std::size_t>(chunks * columns), std::nan(""));
    args.scratch = Tensor(scratch.data(), vectors, {chunks, columns});
    return args;
  }
  Results results(Dtype matrices, Dtype vectors) {
    Results found{decoded(c.memory, matrices), {}, {}};
    if (epilogue == Epilogue::bias_gelu) found.activated = decoded(active.memory, matrices);
    if (is_backward(epilogue)) found.sums = decoded(sums.memory, vectors);
    return found;
  }
  Results exact() {
    cpu::gemm(args(Dtype::f64, Dtype::f64), {});
    return results(Dtype::f64, Dtype::f64);
  }
  // In fp32, rounding the product, and what the activation makes of it; sums are of rounded values.
  Results naive() {
    GemmArgs product = args(Dtype::f32, Dtype::f32);
    product.activated = product.column_sums = product.scratch = {};
    product.epilogue = adds_bias(epilogue) ? Epilogue::bias : Epilogue::none;
    cpu::gemm(product, {});
    Results found{decoded(c.memory, Dtype::f32), {}, {}};
    for (double& x : found.c) x = rounded(x, Dtype::bf16);
    if (epilogue == Epilogue::bias_gelu)
      for (const double x : found.c) found.activated.push_back(rounded(gelu_of(x), Dtype::bf16));
    if (!is_backward(epilogue)) return found;
    found.sums = sums.values;
    for (std::size_t i = 0; i < found.c.size(); ++i) {
      const double slope = epilogue == Epilogue::gelu_backward ? gelu_slope_of(more.values[i]) : more.values[i] > 0;
      found.c[i] = rounded(found.c[i] * slope, Dtype::bf16);
      found.sums[i % static_cast<std::size_t>(columns)] += found.c[i];
    }
    return found;
  }
  Results emulated(int multiprocessors, std::uint64_t seed) {
    cuda::emulation = {seed, multiprocessors};
    const GemmArgs call = args(Dtype::bf16, Dtype::f32);
    const bool fused = epilogue == Epilogue::bias_gelu || is_backward(epilogue);
    EXPECT_TRUE(fused ? cuda::sm90::supports_fused(call) : cuda::sm90::supports_panels(call));
    fused ? cuda::sm90::gemm_fused(call, {}) : cuda::sm90::gemm_panels(call, {});
    return results(Dtype::bf16, Dtype::f32);
  }
};

void expect_close(const std::string& what, const std::vector<double>& found, const std::vector<double>& naive,
                  const std::vector<double>& exact) {
  double error = 0, naive_error = 0, squares = 0, naive_squares = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double e = std::abs(found[i] - exact[i]), n = std::abs(naive[i] - exact[i]);
    error = e > error || std::isnan(e) ? e : error;
    naive_error = std::max(naive_error, n);
    squares += e * e;
    naive_squares += n * n;
  }
  EXPECT_LE(error, 2 * naive_error) << what;
  EXPECT_LE(squares, 4 * naive_squares) << what;
}

struct PanelShape {
  std::int64_t rows, columns, depth;
  int multiprocessors;
};
void PrintTo(const PanelShape& s, std::ostream* out) {  // in ctest's lists
  *out << s.rows << " rows, " << s.columns << " columns, depth " << s.depth << ", " << s.multiprocessors
       << " multiprocessors";
}
constexpr PanelShape panel_shapes[] = {
    {500, 256, 128, 2},   // one block per panel
    {1100, 256, 64, 4},   // two
    {800, 640, 320, 11},  // two, and a multiprocessor without one
    {400, 128, 512, 1},   // the greatest depth
};

class EmulatedPanels : public ::testing::TestWithParam<PanelShape> {};

TEST_P(EmulatedPanels, AreAsGoodAsNaiveInEveryOrder) {
  const PanelShape& shape = GetParam();
  for (const Epilogue epilogue :
       {Epilogue::none, Epilogue::bias, Epilogue::bias_gelu, Epilogue::gelu_backward, Epilogue::relu_backward})
    for (const bool adds : {false, true}) {
      if (adds && epilogue != Epilogue::none) continue;
      const std::string what = "epilogue " + std::to_string(static_cast<int>(epilogue)) + (adds ? ", addend" : "");
      Product call{shape.rows, shape.columns, shape.depth, epilogue, adds};
      const Results exact = call.exact(), naive = call.naive(), found = call.emulated(shape.multiprocessors, 1);
      expect_close(what, found.c, naive.c, exact.c);
      expect_close(what + ", activated", found.activated, naive.activated, exact.activated);
      expect_close(what + ", sums", found.sums, naive.sums, exact.sums);
      EXPECT_TRUE(call.emulated(shape.multiprocessors, 2) == found) << what;
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, EmulatedPanels, ::testing::ValuesIn(panel_shapes), [](const auto& test) {
  const PanelShape& s = test.param;
  return std::to_string(s.rows) + "_x_" + std::to_string(s.columns) + "_x_" + std::to_string(s.depth);
});

}  // namespace
}  // namespace longstride::kernels
