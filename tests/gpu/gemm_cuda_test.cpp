#include "kernels/gemm/gemm.h"

#include <tuple>

#include "kernels/column_sum/column_sum.h"
#include "kernels/gelu/gelu.h"
#include "tests/gpu/against_cpu.h"

namespace longstride::test {
namespace {

using kernels::Epilogue;
using kernels::GemmArgs;

struct Case {
  std::int64_t rows, columns, depth;
  bool a_transposed = false, b_transposed = false;
  std::int64_t padding = 0;  // columns that each stored row has beyond those multiplied
};

std::string text(const Case& c, Dtype in, Dtype out) {
  return std::to_string(c.rows) + " x " + std::to_string(c.columns) + " x " + std::to_string(c.depth) +
         (c.a_transposed ? " a^T" : "") + (c.b_transposed ? " b^T" : "") + " pad " + std::to_string(c.padding) + ' ' +
         kernels::name_of(in) + " -> " + kernels::name_of(out);
}

const Case cases[] = {{128, 256, 512},
                      {128, 256, 512, true, false},
                      {128, 256, 512, false, true},
                      {128, 256, 512, true, true},
                      {64, 96, 200, false, true, 8},
                      {64, 96, 200, true, false, 8},
                      {37, 53, 71},
                      {37, 53, 71, false, true, 3},
                      {37, 53, 71, true, false, 3},
                      {1, 256, 64, false, true},
                      {300, 1, 40, false, true},
                      {33, 17, 1, true, false}};

View matrix(Array& a, Side side, std::int64_t columns, bool is_transposed) {
  const View v = columns_of(a.view(side), 0, columns);
  return is_transposed ? transposed(v) : v;
}

void run_case(const Case& c, Dtype in, Dtype out, Epilogue epilogue, bool accumulate, bool in_place) {
  Array a = Array::normal({c.a_transposed ? c.depth : c.rows, (c.a_transposed ? c.rows : c.depth) + c.padding}, in, 1);
  Array b = Array::normal({c.b_transposed ? c.columns : c.depth, (c.b_transposed ? c.depth : c.columns) + c.padding},
                          in, 2, 1 / std::sqrt(static_cast<double>(c.depth)));
  Array bias = Array::normal({c.columns}, out, 3);
  Array result = accumulate ? Array::normal({c.rows, c.columns}, out, 4) : Array({c.rows, c.columns}, out);
  const bool backward = epilogue == Epilogue::gelu_backward;
  Array sums = Array::normal({c.columns}, Dtype::f32, 6);
  const DeviceArray<float> partials(static_cast<std::size_t>(kernels::cuda::row_chunks(c.rows).chunks * c.columns));
  std::vector<double> host_partials(static_cast<std::size_t>(kernels::row_chunks(c.rows).chunks * c.columns));
  Array activated = backward ? Array::normal({c.rows, c.columns}, out, 5) : Array({c.rows, c.columns}, out);
  const auto make = [&](Side side) {
    GemmArgs args;
    args.a = matrix(a, side, c.a_transposed ? c.rows : c.depth, c.a_transposed);
    args.b = matrix(b, side, c.b_transposed ? c.depth : c.columns, c.b_transposed);
    args.c = result.view(side);
    args.bias = bias.view(side);
    args.activated = in_place ? args.c : activated.view(side);
    args.epilogue = epilogue;
    if (backward) args.column_sums = sums.view(side);
    args.partials.data = side == Side::gpu ? static_cast<void*>(partials.data()) : host_partials.data();
    args.accumulate = accumulate;
    return args;
  };
  std::vector<Named> outputs{{"c", &result}};
  if (epilogue == Epilogue::bias_gelu && !in_place) outputs.push_back({"activated", &activated});
  if (backward) outputs.push_back({"column_sums", &sums});
  compare("gemm " + text(c, in, out) + " epilogue " + std::to_string(static_cast<int>(epilogue)), kernels::cpu::gemm,
          kernels::cuda::gemm, make, outputs, [&] {
            if (backward) sums.sums_columns_of(result);
          });
}

TEST(GemmCuda, EqualsTheCpuForEveryShapeTypeAndEpilogue) {
  LONGSTRIDE_NEEDS_GPU();
  for (const Case& c : cases)
    for (const Dtype in : {Dtype::bf16, Dtype::f16, Dtype::f32}) {
      run_case(c, in, in, Epilogue::none, false, false);
      run_case(c, in, Dtype::f32, Epilogue::none, false, false);
      run_case(c, in, Dtype::f32, Epilogue::none, true, false);
      run_case(c, in, in, Epilogue::bias, false, false);
      run_case(c, in, in, Epilogue::bias_gelu, false, false);
      run_case(c, in, in, Epilogue::bias_gelu, false, true);
      run_case(c, in, in, Epilogue::gelu_backward, false, false);
    }
}

// Products of several matrices of one shape, by themselves; where a matrix begins at an odd element too.
TEST(GemmCuda, StacksOfMatricesEqualTheCpus) {
  LONGSTRIDE_NEEDS_GPU();
  const auto turned_if = [](View v, bool turns) {
    if (!turns) return v;
    std::swap(v.size[1], v.size[2]);
    std::swap(v.stride[1], v.stride[2]);
    return v;
  };
  for (const auto& [rows, columns, depth] :
       {std::tuple<std::int64_t, std::int64_t, std::int64_t>{128, 256, 192}, {37, 53, 71}, {1, 9, 5}})
    for (const Dtype type : {Dtype::bf16, Dtype::f16, Dtype::f32})
      for (const bool a_turns : {false, true})
        for (const bool b_turns : {false, true}) {
          constexpr std::int64_t matrices = 5;
          Array a = Array::normal({matrices, a_turns ? depth : rows, a_turns ? rows : depth}, type, 1);
          Array b = Array::normal({matrices, b_turns ? columns : depth, b_turns ? depth : columns}, type, 2, 0.1);
          Array c({matrices, rows, columns}, type);
          compare("stacks", kernels::cpu::gemm, kernels::cuda::gemm,
                  [&](Side side) {
                    GemmArgs args;
                    args.a = turned_if(a.view(side), a_turns);
                    args.b = turned_if(b.view(side), b_turns);
                    args.c = c.view(side);
                    return args;
                  },
                  {{"c", &c}});
        }
}

// The gradients of weights sum over all positions.
TEST(GemmCuda, SumsOverManyPositionsEqualTheCpus) {
  LONGSTRIDE_NEEDS_GPU();
  for (const Dtype in : {Dtype::bf16, Dtype::f16, Dtype::f32})
    for (const bool accumulate : {false, true})
      run_case({96, 128, 20000, true, false}, in, Dtype::f32, Epilogue::none, accumulate, false);
}

// Shapes that Hopper's fused kernel takes: whole panels of columns, many rows, here no whole number of tiles.
TEST(GemmCuda, AFusedActivationGivesTheBitsOfThePassAfterTheProduct) {
  LONGSTRIDE_NEEDS_GPU();
  constexpr std::int64_t rows = 4200, columns = 2048;
  for (const Dtype d : {Dtype::bf16, Dtype::f16})
    for (const std::int64_t depth : {512, 192}) {
      SCOPED_TRACE(std::string(kernels::name_of(d)) + " of depth " + std::to_string(depth));
      Array a = Array::normal({rows, depth}, d, 1), bias = Array::normal({columns}, d, 3);
      Array b = Array::normal({columns, depth}, d, 2, 1 / std::sqrt(static_cast<double>(depth)));
      Array below = Array::normal({depth, columns}, d, 4, 1 / std::sqrt(static_cast<double>(depth)));
      Array c({rows, columns}, d), active({rows, columns}, d), separate({rows, columns}, d), after({rows, columns}, d);
      GemmArgs args;
      args.a = a.view(Side::gpu);
      args.b = transposed(b.view(Side::gpu));
      args.c = c.view(Side::gpu);
      args.bias = bias.view(Side::gpu);
      args.activated = active.view(Side::gpu);
      args.epilogue = Epilogue::bias_gelu;
      kernels::cuda::gemm(args, {});
      args.c = separate.view(Side::gpu);
      args.epilogue = Epilogue::bias;
      kernels::cuda::gemm(args, {});
      kernels::cuda::gelu({separate.view(Side::gpu), after.view(Side::gpu)}, {});
      EXPECT_EQ(c.raw(), separate.raw());
      EXPECT_EQ(active.raw(), after.raw());
      args.c = args.activated = separate.view(Side::gpu);  // nothing kept for backward
      args.epilogue = Epilogue::bias_gelu;
      kernels::cuda::gemm(args, {});
      EXPECT_EQ(separate.raw(), after.raw());

      Array sums = Array::normal({columns}, Dtype::f32, 5), sums_after = Array::normal({columns}, Dtype::f32, 5);
      const DeviceArray<float> partials(static_cast<std::size_t>(kernels::cuda::row_chunks(rows).chunks * columns));
      View workspace = sums.view(Side::gpu);
      workspace.data = partials.data();
      GemmArgs back;
      back.a = a.view(Side::gpu);
      back.b = below.view(Side::gpu);
      back.c = separate.view(Side::gpu);
      kernels::cuda::gemm(back, {});
      kernels::cuda::gelu_backward({back.c, active.view(Side::gpu), back.c}, {});
      kernels::cuda::column_sum({back.c, sums_after.view(Side::gpu), workspace}, {});
      back.c = c.view(Side::gpu);
      back.activated = active.view(Side::gpu);
      back.epilogue = Epilogue::gelu_backward;
      back.column_sums = sums.view(Side::gpu);
      back.partials = workspace;
      kernels::cuda::gemm(back, {});
      EXPECT_EQ(c.raw(), separate.raw());
      const std::vector<double> found = sums.found(), expected = sums_after.found();
      for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-3) << "column " << i;
    }
}

// fp32 is for checking: a product of TF32 would have a thousand times the error.
TEST(GemmCuda, SinglePrecisionIsNotRoundedToTensorFloat) {
  LONGSTRIDE_NEEDS_GPU();
  run_case({256, 256, 256}, Dtype::f32, Dtype::f32, Epilogue::none, false, false);
  Array a({64, 64}, Dtype::f32), b({64, 64}, Dtype::f32), c({64, 64}, Dtype::f32);
  std::vector<float> near_one(64 * 64, 1.0f + 0x1p-20f), identity(64 * 64, 0.0f);
  for (std::size_t i = 0; i < 64; ++i) identity[65 * i] = 1;
  const auto upload = [](Array& to, const std::vector<float>& from) {
    kernels::cuda::check(
        cudaMemcpy(to.view(Side::gpu).data, from.data(), from.size() * sizeof(float), cudaMemcpyHostToDevice), "copy");
  };
  upload(a, near_one);
  upload(b, identity);
  GemmArgs args;
  args.a = a.view(Side::gpu);
  args.b = b.view(Side::gpu);
  args.c = c.view(Side::gpu);
  kernels::cuda::gemm(args, {});
  for (const double x : c.found()) EXPECT_EQ(x, 1.0 + 0x1p-20);
}

}  // namespace
}  // namespace longstride::test
