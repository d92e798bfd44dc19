// The small ones: fill, copy, add, sum, column_sum, gelu.
#include "kernels/elementwise/elementwise.h"

#include "kernels/column_sum/column_sum.h"
#include "kernels/gelu/gelu.h"
#include "tests/gpu/against_cpu.h"

namespace longstride::test {
namespace {

constexpr Dtype types[] = {Dtype::f32, Dtype::bf16, Dtype::f16};
constexpr std::int64_t counts[] = {1, 7, 1024, 100003};

// The same view without its first `skipped` elements: what is then not aligned must work too.
View after(View v, std::int64_t skipped) {
  v.data = static_cast<char*>(v.data) + skipped * static_cast<std::int64_t>(kernels::bytes_of(v.dtype));
  v.size[0] -= skipped;
  return v;
}

TEST(ElementwiseCuda, FillsCopiesAndConverts) {
  LONGSTRIDE_NEEDS_GPU();
  for (const std::int64_t count : counts)
    for (const Dtype from : types)
      for (const Dtype to : types) {
        Array x = Array::normal({count + 1}, from, 1), y({count + 1}, to);
        for (const std::int64_t skipped : {0, 1}) {
          kernels::cuda::copy({after(x.view(Side::gpu), skipped), after(y.view(Side::gpu), skipped)}, {});
          const std::vector<double> in = x.found(), out = y.found();
          for (std::size_t i = static_cast<std::size_t>(skipped); i < in.size(); ++i)
            ASSERT_EQ(out[i], rounded(in[i], to)) << i;
        }
        kernels::cuda::fill_zero({y.view(Side::gpu)}, {});
        for (const double z : y.found()) ASSERT_EQ(z, 0);
      }
}

TEST(ElementwiseCuda, AddsAndSums) {
  LONGSTRIDE_NEEDS_GPU();
  for (const std::int64_t count : counts)
    for (const Dtype dtype : types)
      for (const std::int64_t skipped : {0, 1}) {
        Array a = Array::normal({count + 1}, dtype, 1), b = Array::normal({count + 1}, dtype, 2);
        Array y({count + 1}, dtype), total = Array::normal({1}, Dtype::f64, 3);
        const auto operands = [&](Side side) {
          return kernels::AddArgs{after(a.view(side), skipped), after(b.view(side), skipped),
                                  after(y.view(side), skipped)};
        };
        kernels::cuda::add(operands(Side::gpu), {});
        const std::vector<double> in = a.found(), more = b.found(), out = y.found();
        for (std::size_t i = static_cast<std::size_t>(skipped); i < in.size(); ++i)
          ASSERT_EQ(out[i], rounded(in[i] + more[i], dtype)) << i;
        const DeviceArray<double> partials(static_cast<std::size_t>(kernels::SumArgs::chunks(count + 1)));
        std::vector<double> host_partials(partials.count());
        for (const bool squares : {false, true})
          compare("sum", kernels::cpu::sum, kernels::cuda::sum,
                  [&](Side side) {
                    View workspace;
                    workspace.data = side == Side::gpu ? partials.data() : host_partials.data();
                    return kernels::SumArgs{after(a.view(side), skipped), total.view(side), workspace, squares};
                  },
                  {{"total", &total}});
      }
}

TEST(ElementwiseCuda, SumsColumns) {
  LONGSTRIDE_NEEDS_GPU();
  for (const std::int64_t rows : {1, 33, 1000, 40000})
    for (const std::int64_t columns : {1, 5, 64, 130, 512, 1536})
      for (const std::int64_t padding : {0, 3, 8})
        for (const Dtype dtype : types) {
          if (rows * columns > 1 << 22) continue;
          Array x = Array::normal({rows, columns + padding}, dtype, 1);
          Array total = Array::normal({columns}, Dtype::f32, 2);
          const DeviceArray<float> partials(static_cast<std::size_t>(kernels::cuda::row_chunks(rows).chunks * columns));
          std::vector<double> host_partials(static_cast<std::size_t>(kernels::row_chunks(rows).chunks * columns));
          compare("column_sum " + std::to_string(rows) + " x " + std::to_string(columns), kernels::cpu::column_sum,
                  kernels::cuda::column_sum,
                  [&](Side side) {
                    View workspace;
                    workspace.data = side == Side::gpu ? static_cast<void*>(partials.data()) : host_partials.data();
                    return kernels::ColumnSumArgs{columns_of(x.view(side), 0, columns), total.view(side), workspace};
                  },
                  {{"total", &total}});
        }
}

TEST(GeluCuda, EqualsTheCpuForwardAndBackward) {
  LONGSTRIDE_NEEDS_GPU();
  for (const std::int64_t count : counts)
    for (const Dtype dtype : types)
      for (const double deviation : {1.0, 30.0}) {
        Array x = Array::normal({count}, dtype, 1, deviation), dy = Array::normal({count}, dtype, 2);
        Array y({count}, dtype), dx({count}, dtype);
        compare("gelu", kernels::cpu::gelu, kernels::cuda::gelu,
                [&](Side side) {
                  return kernels::GeluArgs{x.view(side), y.view(side)};
                },
                {{"y", &y}});
        compare("gelu_backward", kernels::cpu::gelu_backward, kernels::cuda::gelu_backward,
                [&](Side side) {
                  return kernels::GeluBackwardArgs{dy.view(side), x.view(side), dx.view(side)};
                },
                {{"dx", &dx}});
      }
}

// Where exp overflows and the product must still be 0 or x.
TEST(GeluCuda, StaysFiniteFarFromZero) {
  LONGSTRIDE_NEEDS_GPU();
  for (const Dtype dtype : types) {
    Array x = Array::normal({64}, dtype, 1, 20000), y({64}, dtype), dx({64}, dtype),
          ones = Array::normal({64}, dtype, 1, 0, 1);
    kernels::cuda::gelu({x.view(Side::gpu), y.view(Side::gpu)}, {});
    kernels::cuda::gelu_backward({ones.view(Side::gpu), x.view(Side::gpu), dx.view(Side::gpu)}, {});
    const std::vector<double> in = x.found(), out = y.found(), slope = dx.found();
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (std::abs(in[i]) < 200) continue;
      EXPECT_EQ(out[i], in[i] > 0 ? in[i] : 0) << in[i];
      EXPECT_EQ(slope[i], in[i] > 0 ? 1 : 0) << in[i];
    }
  }
}

}  // namespace
}  // namespace longstride::test
