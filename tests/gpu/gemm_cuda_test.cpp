// Cases that tests/ops/linear_test.cpp cannot test on every device: gelu far from zero, Hopper's fused kernels, and
// TF32.
#include "kernels/gemm/gemm.h"

#include "kernels/base/gpu_kind.h"
#include "kernels/gemm/gemm_gelu_sm90.h"
#include "kernels/gemm/gemm_panels_sm90.h"
#include "tests/gpu/against_cpu.h"

namespace longstride::test {
namespace {

using kernels::Epilogue;
using kernels::GemmArgs;

// Multiplying by it leaves a matrix unchanged, so only the epilogue has an effect.
Array identity(std::int64_t n, Dtype dtype) {
  std::vector<double> values(static_cast<std::size_t>(n * n));
  for (std::int64_t d = 0; d < n; ++d) values[static_cast<std::size_t>(d * (n + 1))] = 1;
  return Array::of({n, n}, dtype, std::move(values));
}

// Values where exp overflows and gelu must still be 0 or x; f16 holds them all.
TEST(GemmCuda, GeluStaysFiniteFarFromZero) {
  LONGSTRIDE_NEEDS_GPU();
  for (const Dtype d : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    Array x = Array::normal({64, 64}, d, 1, 10000), ones = Array::normal({64, 64}, d, 1, 0, 1), unit = identity(64, d);
    Array bias = Array::normal({64}, d, 2, 0), y({64, 64}, d), c({64, 64}, d), slope({64, 64}, d);
    GemmArgs args;
    args.a = x.view(Side::gpu);
    args.b = unit.view(Side::gpu);
    args.c = c.view(Side::gpu);
    args.bias = bias.view(Side::gpu);
    args.activated = y.view(Side::gpu);
    args.epilogue = Epilogue::bias_gelu;
    kernels::cuda::gemm(args, {});
    args.a = ones.view(Side::gpu);
    args.c = slope.view(Side::gpu);
    args.activated = x.view(Side::gpu);
    args.epilogue = Epilogue::gelu_backward;
    kernels::cuda::gemm(args, {});
    const std::vector<double> in = x.found(), out = y.found(), slopes = slope.found();
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (std::abs(in[i]) < 200) continue;
      EXPECT_EQ(out[i], in[i] > 0 ? in[i] : 0) << in[i];
      EXPECT_EQ(slopes[i], in[i] > 0 ? 1 : 0) << in[i];
    }
  }
}

// Shapes that Hopper's fused kernel supports: whole panels of columns and many rows, here not a whole number of tiles.
// The separate pass is tested with a product by the identity, which is too deep for the fused kernel.
struct Fused {
  static constexpr std::int64_t rows = 4200, columns = 2048;
  Array a, unit, c, active, separate, after;
  Fused(Dtype d, std::int64_t depth)
      : a(Array::normal({rows, depth}, d, 1)),
        unit(identity(columns, d)),
        c({rows, columns}, d),
        active({rows, columns}, d),
        separate({rows, columns}, d),
        after({rows, columns}, d) {}
};

TEST(GemmCuda, AFusedActivationGivesTheSameBitsAsASeparatePass) {
  LONGSTRIDE_NEEDS_GPU();
  for (const Dtype d : {Dtype::bf16, Dtype::f16})
    for (const std::int64_t depth : {512, 192}) {
      SCOPED_TRACE(std::string(kernels::name_of(d)) + " of depth " + std::to_string(depth));
      Fused f(d, depth);
      Array b = Array::normal({Fused::columns, depth}, d, 2, 1 / std::sqrt(static_cast<double>(depth)));
      Array bias = Array::normal({Fused::columns}, d, 3), no_bias = Array::normal({Fused::columns}, d, 3, 0);
      Array copied({Fused::rows, Fused::columns}, d);
      GemmArgs args, pass;
      args.a = f.a.view(Side::gpu);
      args.b = b.view(Side::gpu).transposed();
      args.c = f.c.view(Side::gpu);
      args.bias = bias.view(Side::gpu);
      args.activated = f.active.view(Side::gpu);
      args.epilogue = Epilogue::bias_gelu;
      kernels::cuda::gemm(args, {});
      args.c = f.separate.view(Side::gpu);
      args.epilogue = Epilogue::bias;
      kernels::cuda::gemm(args, {});
      pass.a = f.separate.view(Side::gpu);
      pass.b = f.unit.view(Side::gpu);
      pass.c = copied.view(Side::gpu);
      pass.bias = no_bias.view(Side::gpu);
      pass.activated = f.after.view(Side::gpu);
      pass.epilogue = Epilogue::bias_gelu;
      kernels::cuda::gemm(pass, {});
      EXPECT_EQ(f.c.raw(), f.separate.raw());
      EXPECT_EQ(f.active.found(), f.after.found());
      args.c = args.activated = f.separate.view(Side::gpu);  // nothing saved for backward
      args.epilogue = Epilogue::bias_gelu;
      kernels::cuda::gemm(args, {});
      EXPECT_EQ(f.separate.raw(), f.active.raw());
    }
}

void expect_fused_gradient(Epilogue epilogue) {
  for (const Dtype d : {Dtype::bf16, Dtype::f16})
    for (const std::int64_t depth : {512, 192}) {
      SCOPED_TRACE(std::string(kernels::name_of(d)) + " of depth " + std::to_string(depth));
      Fused f(d, depth);
      Array below = Array::normal({depth, Fused::columns}, d, 4, 1 / std::sqrt(static_cast<double>(depth)));
      Array input = Array::normal({Fused::rows, Fused::columns}, d, 5);
      Array sums = Array::normal({Fused::columns}, Dtype::f32, 6);
      Array sums_after = Array::normal({Fused::columns}, Dtype::f32, 6);
      const std::int64_t chunks = kernels::cuda::row_chunks(Fused::rows).chunks;
      const DeviceArray<float> partials(static_cast<std::size_t>(chunks * Fused::columns));
      GemmArgs back, pass;
      back.a = f.a.view(Side::gpu);
      back.b = below.view(Side::gpu);
      back.c = f.separate.view(Side::gpu);
      kernels::cuda::gemm(back, {});
      back.c = f.c.view(Side::gpu);
      back.activated = pass.activated = input.view(Side::gpu);
      back.epilogue = pass.epilogue = epilogue;
      back.scratch = pass.scratch = Tensor(partials.data(), Dtype::f32, {chunks, Fused::columns});
      back.column_sums = sums.view(Side::gpu);
      kernels::cuda::gemm(back, {});
      pass.a = f.separate.view(Side::gpu);
      pass.b = f.unit.view(Side::gpu);
      pass.c = f.after.view(Side::gpu);
      pass.column_sums = sums_after.view(Side::gpu);
      kernels::cuda::gemm(pass, {});
      EXPECT_EQ(f.c.found(), f.after.found());
      const std::vector<double> found = sums.found(), expected = sums_after.found();
      for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-3) << "column " << i;
    }
}

TEST(GemmCuda, AFusedSlopeGivesTheSameBitsAsASeparatePass) {
  LONGSTRIDE_NEEDS_GPU();
  expect_fused_gradient(Epilogue::gelu_backward);
  expect_fused_gradient(Epilogue::relu_backward);
}

// A rehearsed choice is the library's or our own kernel by panels; both give the bits of the library's first
// suggestion. Rows end within a tile, and what is added is another matrix than the result.
TEST(GemmCuda, PanelsGiveTheBitsOfTheLibrary) {
  LONGSTRIDE_NEEDS_GPU();
  constexpr std::int64_t rows = 4200, columns = 2048;
  for (const Dtype d : {Dtype::bf16, Dtype::f16})
    for (const std::int64_t depth : {512, 256, 192}) {
      Array a = Array::normal({rows, depth}, d, 1);
      Array b = Array::normal({depth, columns}, d, 2, 1 / std::sqrt(static_cast<double>(depth)));
      Array turned = Array::normal({columns, depth}, d, 2, 1 / std::sqrt(static_cast<double>(depth)));
      Array bias = Array::normal({columns}, d, 3), addend = Array::normal({rows, columns}, d, 4);
      Array wanted({rows, columns}, d), found({rows, columns}, d);
      for (const bool by_rows : {true, false})
        for (const bool with_bias : {true, false})
          for (const bool adds : {true, false}) {
            SCOPED_TRACE(std::string(kernels::name_of(d)) + " of depth " + std::to_string(depth) +
                         (by_rows ? ", by rows" : ", by columns") + (with_bias ? ", bias" : "") +
                         (adds ? ", addend" : ""));
            GemmArgs args;
            args.a = a.view(Side::gpu);
            args.b = by_rows ? b.view(Side::gpu) : turned.view(Side::gpu).transposed();
            args.c = wanted.view(Side::gpu);
            if (with_bias) args.bias = bias.view(Side::gpu);
            if (adds) args.addend = addend.view(Side::gpu);
            args.epilogue = with_bias ? Epilogue::bias : Epilogue::none;
            kernels::cuda::gemm(args, {});
            args.c = found.view(Side::gpu);
            EXPECT_EQ(kernels::cuda::sm90::supports_panels(args), kernels::cuda::is_hopper());
            if (!kernels::cuda::is_hopper()) continue;
            kernels::cuda::sm90::gemm_panels(args, {});
            EXPECT_EQ(found.raw(), wanted.raw());
          }
    }
}

// One block per panel, with the fewest tiles that the kernels by panels take.
struct FewTiles {
  static constexpr std::int64_t rows = 370, chunks = kernels::cuda::row_chunks(rows).chunks;
  std::int64_t columns = (kernels::cuda::multiprocessors() / 2 + 1) * 128;
  Array a, b, turned, bias, more, c, active, sums, scratch;
  explicit FewTiles(std::int64_t depth)
      : a(Array::normal({rows, depth}, Dtype::bf16, 1)),
        b(Array::normal({depth, columns}, Dtype::bf16, 2, 1 / std::sqrt(static_cast<double>(depth)))),
        turned(Array::normal({columns, depth}, Dtype::bf16, 3, 1 / std::sqrt(static_cast<double>(depth)))),
        bias(Array::normal({columns}, Dtype::bf16, 4)),
        more(Array::normal({rows, columns}, Dtype::bf16, 5)),
        c({rows, columns}, Dtype::bf16),
        active({rows, columns}, Dtype::bf16),
        sums(Array::normal({columns}, Dtype::f32, 6)),
        scratch({chunks, columns}, Dtype::f32) {}

  GemmArgs args(Side side, Epilogue epilogue) {
    GemmArgs args;
    args.a = a.view(side);
    args.b = adds_bias(epilogue) ? turned.view(side).transposed() : b.view(side);
    args.c = c.view(side);
    args.epilogue = epilogue;
    if (adds_bias(epilogue)) args.bias = bias.view(side);
    if (epilogue == Epilogue::none) args.addend = more.view(side);
    if (epilogue == Epilogue::bias_gelu) args.activated = active.view(side);
    if (is_backward(epilogue)) {
      args.activated = more.view(side);
      args.column_sums = sums.view(side);
      args.scratch = scratch.view(side);
    }
    return args;
  }
};

// Every kernel in the shortest time, for compute-sanitizer (sanitize.sh), and none of the library's.
TEST(GemmCuda, PanelsOfFewTilesAreAsExactAsOnTheCpu) {
  LONGSTRIDE_NEEDS_GPU();
  for (const std::int64_t depth : {192, 320}) {
    FewTiles f(depth);
    for (const Epilogue epilogue :
         {Epilogue::none, Epilogue::bias, Epilogue::bias_gelu, Epilogue::gelu_backward, Epilogue::relu_backward}) {
      const std::string what =
          "depth " + std::to_string(depth) + ", epilogue " + std::to_string(static_cast<int>(epilogue));
      const GemmArgs on_gpu = f.args(Side::gpu, epilogue);
      const bool by_panels = kernels::cuda::sm90::supports_panels(on_gpu);
      EXPECT_EQ(by_panels || kernels::cuda::sm90::supports_fused(on_gpu), kernels::cuda::is_hopper()) << what;
      std::vector<Named> outputs = {{"c", &f.c}};
      if (epilogue == Epilogue::bias_gelu) outputs.push_back({"activated", &f.active});
      if (is_backward(epilogue)) outputs.push_back({"column sums", &f.sums});
      compare<GemmArgs>(
          what, kernels::cpu::gemm, by_panels ? kernels::cuda::sm90::gemm_panels : kernels::cuda::gemm,
          [&](Side side) { return f.args(side, epilogue); }, outputs,
          [&] {
            if (is_backward(epilogue)) f.sums.sums_columns_of(f.c);
          });
    }
  }
}

// fp32 is for checking; a TF32 product would have a thousand times the error.
TEST(GemmCuda, SinglePrecisionIsNotRoundedToTensorFloat) {
  LONGSTRIDE_NEEDS_GPU();
  Array a = Array::normal({64, 64}, Dtype::f32, 1, 0, 1 + 0x1p-20), b = identity(64, Dtype::f32),
        c({64, 64}, Dtype::f32);
  GemmArgs args;
  args.a = a.view(Side::gpu);
  args.b = b.view(Side::gpu);
  args.c = c.view(Side::gpu);
  kernels::cuda::gemm(args, {});
  for (const double x : c.found()) EXPECT_EQ(x, 1.0 + 0x1p-20);
}

}  // namespace
}  // namespace longstride::test
