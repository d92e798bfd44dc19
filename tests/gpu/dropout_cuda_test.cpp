#include "kernels/dropout/dropout.h"

#include "tests/gpu/against_cpu.h"

namespace longstride::test {
namespace {

kernels::DropoutArgs settings(std::int64_t first, float p, const std::int64_t* step) {
  kernels::DropoutArgs args;
  args.p = p;
  args.seed = 0xFEDCBA9876543210ull;
  args.layer = 77;
  args.step = step;
  args.first_element = first;
  return args;
}

struct Types {
  Dtype branch, y;
};
constexpr Types all_types[] = {{Dtype::f32, Dtype::f32},  {Dtype::bf16, Dtype::f32}, {Dtype::f16, Dtype::f32},
                               {Dtype::f32, Dtype::bf16}, {Dtype::f32, Dtype::f16},  {Dtype::bf16, Dtype::bf16}};

// Wherever a micro-batch starts, and beyond 2^32 elements too.
TEST(DropoutCuda, DropsExactlyWhatTheCpuDrops) {
  LONGSTRIDE_NEEDS_GPU();
  const std::int64_t step = 123456;
  const DeviceArray<std::int64_t> gpu_step(std::vector<std::int64_t>{step});
  for (const std::int64_t first : {std::int64_t{0}, std::int64_t{4096}, std::int64_t{5}, (std::int64_t{1} << 34) + 3})
    for (const std::int64_t count : {1, 7, 4096, 100003})
      for (const float p : {0.01f, 0.4f, 0.9f})
        for (const Types& types : all_types) {
          Array ones = Array::normal({count}, types.branch, 1, 0, 1), y({count}, types.y);
          kernels::DropoutArgs args = settings(first, p, gpu_step.data());
          args.branch = ones.view(Side::gpu);
          args.y = y.view(Side::gpu);
          kernels::cuda::dropout(args, {});
          args.branch = ones.view(Side::single);
          args.y = y.view(Side::single);
          args.step = &step;
          kernels::cpu::dropout(args, {});
          const std::vector<double> found = y.found();
          const float* expected = args.y.as<const float>();
          for (std::size_t i = 0; i < found.size(); ++i)
            ASSERT_EQ(found[i], rounded(expected[i], types.y)) << "element " << i << " from " << first << ", p " << p;
        }
}

TEST(DropoutCuda, AddsTheResidual) {
  LONGSTRIDE_NEEDS_GPU();
  const std::int64_t step = 3;
  const DeviceArray<std::int64_t> gpu_step(std::vector<std::int64_t>{step});
  for (const Types& types : all_types)
    for (const float p : {0.0f, 0.25f})
      for (const std::int64_t count : {5, 4097}) {
        Array branch = Array::normal({count}, types.branch, 1), residual = Array::normal({count}, types.y, 2);
        Array y({count}, types.y);
        compare("dropout", kernels::cpu::dropout, kernels::cuda::dropout,
                [&](Side side) {
                  // With p = 0 the step is not read.
                  kernels::DropoutArgs args = settings(8, p,
                                                       p == 0              ? nullptr
                                                       : side == Side::gpu ? gpu_step.data()
                                                                           : &step);
                  args.branch = branch.view(side);
                  args.residual = residual.view(side);
                  args.y = y.view(side);
                  return args;
                },
                {{"y", &y}});
      }
}

}  // namespace
}  // namespace longstride::test
