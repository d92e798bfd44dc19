// The ops of the framework on a GPU: their workspace is planned, nothing waits or allocates, and the chunked output
// head equals the CPU's.
#include "framework/core/context.h"
#include "framework/ops/basic.h"
#include "framework/ops/cross_entropy.h"
#include "framework/ops/embedding.h"
#include "framework/ops/linear.h"
#include "framework/ops/normalise.h"
#include "tests/gpu/against_cpu.h"

namespace longstride::test {
namespace {

Tensor tensor(Array& a, Side side) {
  const View v = a.view(side);
  Shape shape;
  shape.rank = v.rank;
  std::copy_n(v.size, v.rank, shape.size);
  return Tensor(v.data, v.dtype, shape);
}

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

// One of each tensor that a block of a model has, with odd sizes.
struct Block {
  static constexpr std::int64_t batch = 3, seq = 333, width = 136, inner = 264;
  std::vector<Array> arrays;
  Dtype compute;
  explicit Block(Dtype c) : compute(c) {}

  // The `index`th tensor of a run: random the first time it is asked for.
  Tensor get(std::size_t& index, std::vector<std::int64_t> shape, Dtype dtype) {
    if (index == arrays.size())
      arrays.push_back(dtype == Dtype::u8 ? Array::bytes_below(shape, 256, 1)
                                          : Array::normal(shape, dtype, static_cast<std::uint32_t>(index)));
    return tensor(arrays[index++], Side::gpu);
  }

  void run(Context& ctx) {
    std::size_t i = 0;
    const Dtype f = Dtype::f32, d = compute;
    const std::vector<std::int64_t> narrow{batch, seq, width}, wide{batch, seq, inner};
    const Tensor bytes = get(i, {batch, seq}, Dtype::u8), h = get(i, narrow, f), sum = get(i, narrow, f);
    const Tensor start = get(i, {width}, f), token = get(i, {256, width}, f), row = get(i, {6, width}, f);
    const ops::Embedding embedding{start, token, {{64, row}}, 0};
    ops::embed(ctx, embedding, bytes, h);
    const Tensor gain = get(i, {width}, f), bias = get(i, {width}, f);
    const Tensor mean = get(i, {batch * seq}, f), rstd = get(i, {batch * seq}, f), normed = get(i, narrow, d);
    ops::layer_norm(ctx, h, gain, bias, 1e-5f, normed, mean, rstd);
    const Tensor w1 = get(i, {inner, width}, d), b1 = get(i, {inner}, d), w2 = get(i, {width, inner}, d);
    const Tensor pre = get(i, wide, d), active = get(i, wide, d), out = get(i, narrow, d), b2 = get(i, {width}, d);
    ops::linear_gelu(ctx, normed, w1, b1, pre, active);
    ops::linear(ctx, active, w2, b2, out);
    ops::dropout_add_layer_norm(ctx, out, h, 0.3f, 4, sum, gain, bias, 1e-5f, normed, mean, rstd);
    const Tensor head = get(i, {256, width}, d), dhead = get(i, {256, width}, f), losses = get(i, {batch, seq}, f);
    const Tensor dnormed = get(i, narrow, d), dh = get(i, narrow, f), total = get(i, {1}, Dtype::f64);
    ops::cross_entropy(ctx, normed, head, bytes, losses);
    ops::cross_entropy_with_gradient(ctx, normed, head, bytes, 0.25, losses, dnormed, dhead);
    ops::sum(ctx, losses, total);
    const Tensor dgain = get(i, {width}, f), dbias = get(i, {width}, f), db2 = get(i, {width}, f);
    ops::layer_norm_backward_dropout(ctx, dnormed, sum, gain, mean, rstd, dh, false, dgain, dbias, 0.3f, 4, dnormed,
                                     db2);
    const Tensor dw2 = get(i, {width, inner}, f), dpre = get(i, wide, d);
    ops::linear_backward_weight(ctx, dnormed, active, dw2, {});
    const Tensor dw1 = get(i, {inner, width}, f), db1 = get(i, {inner}, f);
    ops::linear_backward_input_gelu(ctx, dnormed, w2, pre, dpre, db1);
    ops::linear_backward_weight(ctx, dpre, normed, dw1, {});
    ops::linear_backward_input(ctx, dpre, w1, dnormed);
    ops::layer_norm_backward(ctx, dnormed, h, gain, mean, rstd, dh, true, dgain, dbias);
    ops::dropout_add(ctx, out, h, 0.3f, 5, sum);
    ops::dropout_backward(ctx, dh, 0.3f, 5, dnormed);
    ops::gelu(ctx, pre, active);
    ops::gelu_backward(ctx, active, pre, dpre);
    const Tensor dstart = get(i, {width}, f), dtoken = get(i, {256, width}, f), drow = get(i, {6, width}, f);
    ops::embed_backward(ctx, dh, bytes, {dstart, dtoken, {{64, drow}}, 0});
    ops::copy(ctx, dhead, head);
    ops::add(ctx, dh, h, sum);
    ops::sum_of_squares(ctx, dw1, total);
  }
};

class OpsCuda : public testing::TestWithParam<Dtype> {};

TEST_P(OpsCuda, TakeThePlannedScratchAndReplayAsAGraphWithTheSameBits) {
  LONGSTRIDE_NEEDS_GPU();
  Block block(GetParam());
  Gpu gpu(GetParam());
  Arena planned;
  Context plan = gpu.ctx;
  plan.arena = &planned;
  block.run(plan);
  block.run(gpu.ctx);  // the first time: algorithms are chosen
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

// More rows than one chunk holds.
TEST_P(OpsCuda, TheOutputHeadEqualsTheCpus) {
  LONGSTRIDE_NEEDS_GPU();
  constexpr std::int64_t rows = 40001, width = 64;
  const Dtype d = GetParam();
  Array hidden = Array::normal({rows, width}, d, 1), weight = Array::normal({256, width}, d, 2, 0.3);
  Array targets = Array::bytes_below({rows}, 256, 1), losses({rows}, Dtype::f32), dhidden({rows, width}, d);
  Array dweight = Array::normal({256, width}, Dtype::f32, 3);
  Gpu gpu(d);
  const float scale = 1024;
  const DeviceArray<float> gpu_scale(std::vector<float>{scale});
  std::vector<unsigned char> memory(arena_bytes);
  for (const Side side : {Side::gpu, Side::exact, Side::single}) {
    Arena arena(memory.data(), memory.size());
    Context cpu;
    cpu.arena = &arena;
    Context& ctx = side == Side::gpu ? gpu.ctx : cpu;
    ctx.loss_scale = side == Side::gpu ? gpu_scale.data() : &scale;
    ops::cross_entropy_with_gradient(ctx, tensor(hidden, side), tensor(weight, side), tensor(targets, side), 1.0 / 64,
                                     tensor(losses, side), tensor(dhidden, side), tensor(dweight, side));
  }
  kernels::cuda::check(cudaStreamSynchronize(gpu.stream), "cross_entropy");
  losses.expect_close("losses");
  // The gradient of the logits is rounded to 16 bits before the two products; the sum of its errors is what shows.
  const auto expect_near = [&](Array& found, const char* name) {
    const std::vector<double> values = found.found();
    double error = 0, magnitude = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      error = std::max(error, std::abs(values[i] - found.exact()[i]));
      magnitude = std::max(magnitude, std::abs(found.exact()[i]));
    }
    EXPECT_LE(error, (d == Dtype::f32 ? 2e-5 : 4 * epsilon_of(d)) * magnitude) << name;
  };
  expect_near(dhidden, "dhidden");
  expect_near(dweight, "dweight");
}

INSTANTIATE_TEST_SUITE_P(Types, OpsCuda, testing::Values(Dtype::f32, Dtype::bf16, Dtype::f16),
                         [](const auto& type) { return std::string(kernels::name_of(type.param)); });

}  // namespace
}  // namespace longstride::test
