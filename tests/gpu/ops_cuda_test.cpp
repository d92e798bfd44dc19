// The framework's ops on a GPU: their scratch is planned, and nothing waits or allocates.
#include "framework/core/context.h"
#include "framework/ops/linear.h"
#include "tests/gpu/against_cpu.h"
#include "tests/ops/calls.h"

namespace longstride::test {
namespace {

using namespace longstride::testing;  // the ops' calls

constexpr std::size_t arena_bytes = std::size_t{256} << 20;

struct Gpu {
  cudaStream_t stream;
  DeviceArray<unsigned char> memory{arena_bytes}, workspace{std::size_t{32} << 20};
  DeviceArray<std::int64_t> step{std::vector<std::int64_t>{9}};
  Arena arena{memory.data(), arena_bytes};
  Context ctx;
  explicit Gpu(Dtype compute) {
    kernels::cuda::check(cudaStreamCreate(&stream), "cudaStreamCreate");
    ctx.device = Device::cuda;
    ctx.arena = &arena;
    ctx.launch = {stream, workspace.data(), workspace.bytes()};
    ctx.compute = compute;
    ctx.seed = 3;
    ctx.step = step.data();
  }
  ~Gpu() { cudaStreamDestroy(stream); }
};

// One of each tensor of a model's block, with odd sizes.
struct Block {
  static constexpr std::int64_t batch = 3, seq = 333, width = 136, inner = 264;
  std::vector<Array> arrays;
  Dtype compute;
  explicit Block(Dtype c) : compute(c) {}

  // The `index`-th tensor of a run, random when first requested.
  Tensor get(std::size_t& index, const Shape& shape, Dtype dtype) {
    if (index == arrays.size())
      arrays.push_back(dtype == Dtype::u8 ? Array::bytes_below(shape, 256, 1)
                                          : Array::normal(shape, dtype, static_cast<std::uint32_t>(index)));
    return arrays[index++].view(Side::gpu);
  }

  void run(Context& ctx) {
    std::size_t i = 0;
    const Dtype f = Dtype::f32, d = compute;
    const Shape narrow{batch, seq, width}, wide{batch, seq, inner};
    const Tensor bytes = get(i, {batch, seq}, Dtype::u8), h = get(i, narrow, f), sum = get(i, narrow, f);
    const Tensor start = get(i, {width}, f), token = get(i, {256, width}, f), row = get(i, {6, width}, f);
    embed(ctx, embedding(start, token, {{64, row}}), bytes, h);
    const Tensor gain = get(i, {width}, f), bias = get(i, {width}, f);
    const Tensor mean = get(i, {batch * seq}, f), rstd = get(i, {batch * seq}, f), normed = get(i, narrow, d);
    ops::run(ctx, norm_args(h, {gain, bias, mean, rstd}, normed));
    const Tensor w1 = get(i, {inner, width}, d), b1 = get(i, {inner}, d), w2 = get(i, {width, inner}, d);
    const Tensor pre = get(i, wide, d), active = get(i, wide, d), out = get(i, narrow, d), b2 = get(i, {width}, d);
    ops::linear_gelu(ctx, normed, w1, b1, pre, active);
    ops::linear(ctx, active, w2, b2, out);
    dropout_add_layer_norm(ctx, out, h, sum, {0.3f, 4}, {gain, bias, mean, rstd}, normed);
    const Tensor head = get(i, {256, width}, d), dhead = get(i, {256, width}, f), losses = get(i, {batch, seq}, f);
    const Tensor dnormed = get(i, narrow, d), dh = get(i, narrow, f), total = get(i, {1}, Dtype::f64);
    ops::cross_entropy(ctx, {normed, head, bytes, losses});
    ops::cross_entropy(ctx, {normed, head, bytes, losses, 0.25, dnormed, dhead});
    ops::sum(ctx, losses, total);
    const Tensor dgain = get(i, {width}, f), dbias = get(i, {width}, f), db2 = get(i, {width}, f);
    layer_norm_backward_dropout(
        ctx,
        norm_backward_args(dnormed, sum, {gain, gain, mean, rstd}, dh, kernels::HeldGradient::none, {dgain, dbias}), dh,
        {0.3f, 4}, dnormed, db2);
    const Tensor dw2 = get(i, {width, inner}, f), dpre = get(i, wide, d);
    ops::linear_backward_weight(ctx, dnormed, active, dw2, {});
    const Tensor dw1 = get(i, {inner, width}, f), db1 = get(i, {inner}, f);
    ops::linear_backward_input_gelu(ctx, dnormed, w2, pre, dpre, db1);
    ops::linear_backward_weight(ctx, dpre, normed, dw1, {});
    ops::linear_backward_input(ctx, dpre, w1, dnormed);
    ops::run(ctx,
             norm_backward_args(dnormed, h, {gain, gain, mean, rstd}, dh, kernels::HeldGradient::of_x, {dgain, dbias}));
    const Tensor dstart = get(i, {width}, f), dtoken = get(i, {256, width}, f), drow = get(i, {6, width}, f);
    embed_backward(ctx, dh, bytes, embedding(dstart, dtoken, {{64, drow}}));
    ops::copy(ctx, dhead, head);
    ops::sum_of_squares(ctx, dw1, total);
  }
};

class OpsCuda : public ::testing::TestWithParam<Dtype> {};

TEST_P(OpsCuda, TakeThePlannedScratchAndReplayWithTheSameBits) {
  LONGSTRIDE_NEEDS_GPU();
  Block block(GetParam());
  Gpu gpu(GetParam());
  Arena planned;
  Context plan = gpu.ctx;
  plan.arena = &planned;
  block.run(plan);
  block.run(gpu.ctx);  // the first run chooses algorithms
  kernels::cuda::check(cudaStreamSynchronize(gpu.stream), "ops");
  EXPECT_GT(planned.high_water(), 0u);
  EXPECT_EQ(planned.high_water(), gpu.arena.high_water());
  EXPECT_EQ(gpu.arena.scratch_used(), 0u);
  std::vector<std::vector<unsigned char>> direct;
  for (const Array& a : block.arrays) direct.push_back(a.raw());

  for (Array& a : block.arrays) a.reset();
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  kernels::cuda::check(cudaStreamBeginCapture(gpu.stream, cudaStreamCaptureModeGlobal), "capture");
  block.run(gpu.ctx);
  kernels::cuda::check(cudaStreamEndCapture(gpu.stream, &graph), "capture");
  kernels::cuda::check(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
  kernels::cuda::check(cudaGraphLaunch(executable, gpu.stream), "launch");
  kernels::cuda::check(cudaStreamSynchronize(gpu.stream), "replay");
  for (std::size_t i = 0; i < direct.size(); ++i) EXPECT_EQ(block.arrays[i].raw(), direct[i]) << "tensor " << i;
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

INSTANTIATE_TEST_SUITE_P(Types, OpsCuda, ::testing::Values(Dtype::f32, Dtype::bf16, Dtype::f16),
                         [](const auto& type) { return std::string(kernels::name_of(type.param)); });

}  // namespace
}  // namespace longstride::test
