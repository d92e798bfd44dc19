#include "kernels/copy_rows/copy_rows.h"

#include "tests/gpu/against_cpu.h"

namespace longstride::test {
namespace {

// Columns of every width class: whole vectors, and what is left over.
TEST(CopyRowsCuda, EqualsTheCpu) {
  LONGSTRIDE_NEEDS_GPU();
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16})
    for (const std::int64_t width : {1, 3, 16, 64, 200})
      for (const auto& [groups, rows] : {std::pair{1, 1}, std::pair{2, 70}, std::pair{4, 1000}}) {
        Array joined = Array::normal({rows, groups * width}, dtype, 3);
        Array split({groups, rows, width}, dtype);
        compare("copy_rows", kernels::cpu::copy_rows, kernels::cuda::copy_rows,
                [&](Side side) {
                  kernels::CopyRowsArgs args{split.view(side), split.view(side)};
                  args.from.data = joined.view(side).data;
                  args.from.stride[0] = width;
                  args.from.stride[1] = groups * width;
                  return args;
                },
                {{"split", &split}});
      }
}

}  // namespace
}  // namespace longstride::test
