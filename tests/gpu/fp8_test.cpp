// train.precision: fp8 on a GPU: the step, compared with itself run in other ways and with the CPU's emulation, and the
// library's products of 8-bit operands. tests/ops/quantise_test.cpp and tests/ops/fp8_linear_test.cpp have the rest.
#include "kernels/base/gpu_kind.h"
#include "kernels/gemm/gemm_product.cuh"
#include "kernels/quantise/quantise.h"
#include "tests/gpu/against_cpu.h"
#include "tests/gpu/trained.h"
#include "tests/support/save_checkpoint.h"
#include "tests/support/temporary_directory.h"

namespace longstride::test {
namespace {

using kernels::Epilogue;
using kernels::GemmArgs;

bool have_fp8() {
  if (!have_gpu()) return false;
  const DeviceInfo gpu = device_info();
  return 10 * gpu.major + gpu.minor >= 89;
}
#define LONGSTRIDE_NEEDS_FP8() \
  if (!have_fp8()) GTEST_SKIP() << "no GPU with fp8"

std::vector<DecoderConfig> fp8_forms() {
  DecoderConfig without_dropout = small_config();
  without_dropout.dropout = 0;
  std::vector<DecoderConfig> all = {small_config(), without_dropout};
  for (const auto& form : forms_of(small_config())) all.push_back(form.config);
  return all;
}

// The gradient of the first step, on the CPU.
template <class T>
std::vector<double> gradients_on_cpu(const TrainConfig& train, const DecoderConfig& config, bool fp8) {
  ToyModel<T> toy(config);
  toy.model().parameters().initialise(train.seed);
  toy.context().seed = train.seed;
  toy.context().fp8_products = fp8;
  const std::int64_t step = 0;
  toy.context().step = &step;
  std::vector<std::uint8_t> rows = rows_of(train, 0);
  toy.loss_and_gradients(rows, train.global_batch);
  std::vector<double> gradients(toy.gradients().begin(), toy.gradients().end());
  for (double& g : gradients) g /= static_cast<double>(rows.size());
  return gradients;
}

template <class A>
double distance(const std::vector<A>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
  return std::sqrt(sum);
}

// bf16 may add as much as the bound of TrainingOnTheGpu.LowPrecisionGradientsStayWithinTheirRounding allows. A value
// that bf16 has rounded may have another code than the emulation's, so the two are compared by their distance from what
// is exact.
TEST(Fp8OnTheGpu, GradientsAreAsExactAsTheEmulationOnTheCpu) {
  LONGSTRIDE_NEEDS_FP8();
  const TrainConfig train = train_config(Precision::fp8);
  for (const DecoderConfig& config : fp8_forms()) {
    const std::vector<double> exact = gradients_on_cpu<double>(train, config, false);
    const double size = distance(exact, std::vector<double>(exact.size())),
                 naive = distance(gradients_on_cpu<float>(train, config, true), exact);
    Trained gpu(train, Device::cuda, config);
    gpu.step.start();
    gpu.go(1);
    const double found = distance(gpu.gradients(), exact);
    EXPECT_LE(found, 2 * naive + 8 * 0x1p-8 * size) << "dropout " << config.dropout;
    EXPECT_GE(found, naive / 4) << "are the products in fp8? Of " << size;
  }
}

TEST(Fp8OnTheGpu, TheGraphAndRepetitionsGiveTheSameBits) {
  LONGSTRIDE_NEEDS_FP8();
  for (const DecoderConfig& config : fp8_forms()) {
    TrainConfig train = train_config(Precision::fp8);
    const std::string replayed = bits_after(6, train, config);
    EXPECT_TRUE(same_bits(bits_after(6, train, config), replayed));
    train.graph = false;
    EXPECT_TRUE(same_bits(bits_after(6, train, config), replayed));
    train.precision = Precision::bf16;
    EXPECT_NE(bits_after(6, train, config), replayed);
  }
}

TEST(Fp8OnTheGpu, RecomputeGivesTheSameBitsInThePlannedMemory) {
  LONGSTRIDE_NEEDS_FP8();
  for (DecoderConfig config : fp8_forms()) {
    TrainConfig train = train_config(Precision::fp8);
    train.micro_batch = 2;
    std::string stored;
    for (Recompute recompute :
         {Recompute::none, Recompute::selective, Recompute::block, Recompute::attention_and_feed_forward}) {
      config.recompute = recompute;
      Decoder planned(config);
      const MemoryPlan plan = plan_memory(planned, train, 1, Device::cuda);
      Trained run(train, Device::cuda, config);
      run.step.start();
      run.go(4);
      run.step.report();
      EXPECT_EQ(static_cast<std::int64_t>(run.step.state().bytes()), plan.block());
      EXPECT_EQ(static_cast<std::int64_t>(run.step.state().arena().high_water()), plan.activations);
      if (stored.empty()) stored = run.bits();
      EXPECT_TRUE(same_bits(run.bits(), stored)) << static_cast<int>(recompute);
    }
  }
}

TEST(Fp8OnTheGpu, AResumedRunEndsInTheSameBitsAsAnUninterruptedOne) {
  LONGSTRIDE_NEEDS_FP8();
  const TrainConfig train = train_config(Precision::fp8);
  const testing::TemporaryDirectory directory;
  Trained first(train, Device::cuda);
  first.step.start();
  first.go(4);
  CheckpointState state;
  first.step.describe(first.step.report(), state);
  EXPECT_FALSE(state.loss_scale.has_value());
  first.step.with_host_tensors([&](const TrainingTensors& t) { save_checkpoint(directory.path(), state, t, 0); });
  first.go(4);
  Trained second(train, Device::cuda);
  EXPECT_EQ(second.step.resume(directory.path()).step, 4);
  second.go(4);
  EXPECT_TRUE(same_bits(second.bits(), first.bits()));
}

TEST(Fp8OnTheGpu, LossesFollowThoseOfBf16) {
  LONGSTRIDE_NEEDS_FP8();
  Trained exact(train_config(Precision::bf16), Device::cuda), rounded(train_config(Precision::fp8), Device::cuda);
  for (Trained* run : {&exact, &rounded}) run->step.start();
  for (int i = 0; i < 30; ++i) {
    for (Trained* run : {&exact, &rounded}) run->go(1);
    EXPECT_NEAR(rounded.step.report().loss, exact.step.report().loss, 0.02 * exact.step.report().loss) << i;
  }
}

// One product of 8-bit operands on the GPU, and what is added to it.
struct Fp8Product {
  static constexpr std::int64_t rows = 300;
  std::int64_t columns, depth;
  Array x, w, bias, addend, c;
  DeviceArray<std::uint8_t> a, b;
  DeviceArray<float> a_scales, b_scales;
  DeviceArray<unsigned char> workspace{std::size_t{32} << 20};
  Dtype type;

  Fp8Product(std::int64_t columns_, std::int64_t depth_, Dtype type_)
      : columns(columns_),
        depth(depth_),
        x(Array::normal({rows, depth}, Dtype::bf16, 1, 3)),
        w(Array::normal({columns, depth}, Dtype::bf16, 2, 0.1)),
        bias(Array::normal({columns}, Dtype::bf16, 3)),
        addend(Array::normal({rows, columns}, Dtype::bf16, 4)),
        c({rows, columns}, Dtype::bf16),
        a(static_cast<std::size_t>(rows * depth)),
        b(static_cast<std::size_t>(columns * depth)),
        a_scales(rows),
        b_scales(static_cast<std::size_t>(columns)),
        type(type_) {
    quantise();
  }
  void quantise() {
    GemmArgs p = args(false, false);
    kernels::cuda::quantise({x.view(Side::gpu), p.a, p.a_scales}, {});
    kernels::cuda::quantise({w.view(Side::gpu), p.b.transposed(), p.b_scales}, {});
  }
  GemmArgs args(bool biased, bool adds) {
    GemmArgs p;
    p.a = Tensor(a.data(), type, {rows, depth});
    p.b = Tensor(b.data(), Dtype::e4m3, {columns, depth}).transposed();
    p.c = c.view(Side::gpu);
    p.a_scales = Tensor(a_scales.data(), Dtype::f32, {rows});
    p.b_scales = Tensor(b_scales.data(), Dtype::f32, {columns});
    if (biased) p.bias = bias.view(Side::gpu);
    if (adds) p.addend = addend.view(Side::gpu);
    p.epilogue = biased ? Epilogue::bias : Epilogue::none;
    return p;
  }
  kernels::Launch launch() const {
    kernels::Launch launch;
    launch.workspace = workspace.data();
    launch.workspace_bytes = workspace.bytes();
    return launch;
  }
};

// On Hopper the library applies the scales of rows and columns, with a bias, with what is added, and with both. Were
// this to fail, products would still be right (the next test), but take a pass more.
TEST(Fp8OnTheGpu, OnHopperTheLibraryScales) {
  LONGSTRIDE_NEEDS_FP8();
  if (!kernels::cuda::is_hopper()) GTEST_SKIP() << "not a Hopper GPU";
  for (const Dtype type : {Dtype::e4m3, Dtype::e5m2})
    for (const auto& [columns, depth] : {std::pair<std::int64_t, std::int64_t>{512, 512}, {1536, 512}, {48, 2048}})
      for (const bool biased : {false, true})
        for (const bool adds : {false, true}) {
          Fp8Product p(columns, depth, type);
          EXPECT_TRUE(kernels::cuda::multiply_in_library(p.args(biased, adds), p.launch()))
              << kernels::name_of(type) << ", " << columns << " x " << depth << (biased ? ", bias" : "")
              << (adds ? ", addend" : "");
        }
}

// Without what is added, a scale that is applied after rounding changes no bit, because it is a power of two. With it
// the result is rounded twice.
TEST(Fp8OnTheGpu, ScalingAfterwardsGivesTheSameProducts) {
  LONGSTRIDE_NEEDS_FP8();
  for (const Dtype type : {Dtype::e4m3, Dtype::e5m2})
    for (const bool biased : {false, true})
      for (const bool adds : {false, true}) {
        Fp8Product p(208, 528, type);
        kernels::cuda::multiply(p.args(biased, adds), p.launch());
        const std::vector<double> scaled = p.c.found();
        GemmArgs bare = p.args(false, false);
        bare.a_scales = bare.b_scales = {};
        ASSERT_TRUE(kernels::cuda::multiply_in_library(bare, p.launch()));
        kernels::cuda::scale_product(p.args(biased, adds), p.launch());
        const std::vector<double> afterwards = p.c.found();
        // Two roundings of the sum and, if something is added, one of the product, which may be larger by this.
        constexpr double rounding = 0x1p-8, most_added = 10;
        for (std::size_t i = 0; i < scaled.size(); ++i)
          ASSERT_NEAR(afterwards[i], scaled[i],
                      rounding * (3 * std::abs(scaled[i]) + (biased || adds ? most_added : 0)));
      }
}

TEST(Fp8OnTheGpu, ARehearsalChangesNoBit) {
  LONGSTRIDE_NEEDS_FP8();
  for (const Dtype type : {Dtype::e4m3, Dtype::e5m2}) {
    Fp8Product p(1536, 512, type);
    const GemmArgs args = p.args(true, true);
    kernels::cuda::gemm(args, p.launch());
    const auto first = p.c.raw();
    kernels::Launch rehearsal = p.launch();
    rehearsal.rehearsal = true;
    kernels::cuda::gemm(args, rehearsal);
    for (Array* overwritten : {&p.x, &p.w, &p.bias, &p.addend}) overwritten->reset();
    p.quantise();
    kernels::cuda::gemm(args, p.launch());
    EXPECT_EQ(p.c.raw(), first);
  }
}

}  // namespace
}  // namespace longstride::test
