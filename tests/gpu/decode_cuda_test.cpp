// Generation on the GPU: the cache's kernels and the draw compared with the CPU's, and whole models in both ways.
#include <gtest/gtest.h>

#include <cmath>

#include "framework/train/evaluate/evaluation_memory.h"
#include "framework/train/sample/sampler.h"
#include "framework/train/step/precision.h"
#include "kernels/attention/decode/decode.h"
#include "kernels/draw/draw.h"
#include "tests/gpu/against_cpu.h"
#include "tests/kernels/attention_patterns.h"
#include "tests/support/toy_model.h"

namespace longstride::test {
namespace {

using kernels::PatternConfig;

Tensor rows(Array& a, Side side, std::int64_t first, std::int64_t count) {
  return a.view(side).slice(1, first, first + count);
}

// Appends `prompt` positions at once and the others one by one, attending from each of the latter; the GPU reads the
// position from its own memory.
void decode_all(const kernels::DecodePlan& plan, Side side, std::int64_t prompt, Array& q, Array& k, Array& v,
                Array& keys, Array& values, Array& o, const DeviceArray<std::int64_t>& counter) {
  const std::int64_t n = plan.n;
  for (std::int64_t i = 0; i < n;) {
    const std::int64_t count = i == 0 ? prompt : 1;
    const kernels::DecodeCache cache{&plan, keys.view(side), values.view(side)};
    kernels::AppendArgs append{cache, rows(k, side, i, count), rows(v, side, i, count), i};
    i += count;
    kernels::DecodeArgs decode{cache, rows(q, side, i - 1, 1), rows(o, side, i - 1, 1), i - 1, 0.25};
    if (side != Side::gpu) {
      kernels::cpu::append(append, {});
      kernels::cpu::decode(decode, {});
      continue;
    }
    const auto at = [&](std::int64_t position) {
      kernels::cuda::check(cudaMemcpy(counter.data(), &position, sizeof position, cudaMemcpyHostToDevice), "position");
      return counter.data();
    };
    append.first_at = at(append.first);
    append.first = -1;
    kernels::cuda::append(append, {});
    kernels::cuda::check(cudaDeviceSynchronize(), "append");
    decode.position_at = at(decode.position);
    decode.position = -1;
    kernels::cuda::decode(decode, {});
    kernels::cuda::check(cudaDeviceSynchronize(), "decode");
  }
}

TEST(DecodeCuda, EqualsTheCpuForEveryPatternAndType) {
  LONGSTRIDE_NEEDS_GPU();
  const DeviceArray<std::int64_t> counter(1);
  const std::pair<std::int64_t, std::int64_t> sizes[] = {{32, 32}, {3, 18}, {64, 128}, {20, 90}};
  int turn = 0;
  for (const kernels::NamedPattern& p : kernels::all_patterns()) {
    const PatternConfig& pattern = p.pattern;
    const std::int64_t layers =
        pattern.integration == kernels::Integration::interleaved ? static_cast<std::int64_t>(pattern.parts.size()) : 1;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      const Dtype dtypes[] = {Dtype::f32, Dtype::bf16, Dtype::f16};
      const Dtype dtype = dtypes[turn % 3];
      const auto [dk, dv] = sizes[turn % 4];
      const std::int64_t n = 45, batch = 2, prompt = turn++ % 2 == 0 ? 1 : 19;
      const std::int64_t key_heads = turn % 2 == 0 && p.heads % 2 == 0 ? p.heads / 2 : p.heads;
      const auto plan = kernels::make_decode_plan(*kernels::make_plan(pattern, layer, p.heads, n), key_heads);
      Array q = Array::normal({batch, n, p.heads, dk}, dtype, 1),
            k = Array::normal({batch, n, key_heads, dk}, dtype, 2);
      Array v = Array::normal({batch, n, key_heads, dv}, dtype, 3), o({batch, n, p.heads, dv}, dtype);
      Array keys({batch, plan->rows, dk}, dtype), values({batch, plan->rows, dv}, dtype);
      for (Side side : {Side::exact, Side::single, Side::gpu})
        decode_all(*plan, side, prompt, q, k, v, keys, values, o, counter);
      const std::vector<double> found = o.found();
      const double step = dtype == Dtype::f32 ? 1e-5 : 8 * half_step_of(dtype);
      for (std::size_t i = 0; i < found.size(); ++i)
        if (static_cast<std::int64_t>(i) / (p.heads * dv) % n >= prompt - 1) {
          ASSERT_NEAR(found[i], o.exact()[i], step * (1 + std::abs(o.exact()[i])))
              << p.name << " layer " << layer << ' ' << kernels::name_of(dtype) << " element " << i;
        }
    }
  }
}

TEST(DrawCuda, DrawsTheSameBytesAsTheCpu) {
  LONGSTRIDE_NEEDS_GPU();
  for (const std::int64_t vocabulary : {256, 8, 100})
    for (const kernels::Sampling& sampling :
         {kernels::Sampling{}, kernels::Sampling{0.7, 0, 1, 5}, kernels::Sampling{0, 0, 1, 1},
          kernels::Sampling{1, 7, 1, 2}, kernels::Sampling{1.3, 0, 0.6, 3}, kernels::Sampling{1, 50, 0.9, 4}}) {
      const std::int64_t batch = 300, length = 5;
      Array logits = Array::normal({batch, vocabulary}, Dtype::f32, 4, 2);
      const Tensor on_cpu = logits.view(Side::single), on_gpu = logits.view(Side::gpu);
      std::vector<std::uint8_t> bytes(static_cast<std::size_t>(batch * length), 3), previous(300);
      std::vector<float> logs(bytes.size());
      DeviceArray<std::uint8_t> gpu_bytes(bytes), gpu_previous(previous);
      DeviceArray<float> gpu_logs(logs);
      for (std::int64_t position = 0; position < length; ++position) {
        const auto args = [&](const Tensor& x, std::uint8_t* b, float* l, std::uint8_t* p) {
          kernels::DrawArgs a;
          a.logits = x;
          a.bytes = Tensor(b, Dtype::u8, {batch, length});
          a.log_probabilities = Tensor(l, Dtype::f32, {batch, length});
          a.previous = Tensor(p, Dtype::u8, {batch, 1});
          a.prompted = 1;
          a.sampling = sampling;
          a.first_sequence = 70;
          a.position = position;
          return a;
        };
        kernels::cpu::draw(args(on_cpu, bytes.data(), logs.data(), previous.data()), {});
        kernels::cuda::draw(args(on_gpu, gpu_bytes.data(), gpu_logs.data(), gpu_previous.data()), {});
      }
      kernels::cuda::check(cudaDeviceSynchronize(), "draw");
      EXPECT_EQ(gpu_bytes.host(), bytes) << sampling.temperature << ' ' << sampling.top_k << ' ' << sampling.top_p;
      EXPECT_EQ(gpu_previous.host(), previous);
      const std::vector<float> found = gpu_logs.host();
      for (std::size_t i = 0; i < logs.size(); ++i) ASSERT_NEAR(found[i], logs[i], 1e-5);
    }
}

TEST(DrawCuda, DrawsTheSameTokensOfLargeVocabulariesAsTheCpu) {
  LONGSTRIDE_NEEDS_GPU();
  for (const std::int64_t vocabulary : {257, 4096, 65535})
    for (const kernels::Sampling& sampling :
         {kernels::Sampling{}, kernels::Sampling{0, 0, 1, 1}, kernels::Sampling{1, 7, 1, 2},
          kernels::Sampling{1.3, 0, 0.6, 3}, kernels::Sampling{1, 50, 0.9, 4}}) {
      const std::int64_t batch = 40;
      Array logits = Array::normal({batch, vocabulary}, Dtype::f32, 4, 2);
      std::vector<std::uint16_t> ids(static_cast<std::size_t>(batch)), previous(ids.size());
      std::vector<float> logs(ids.size());
      DeviceArray<std::uint16_t> gpu_ids(ids), gpu_previous(previous);
      DeviceArray<float> gpu_logs(logs);
      const auto args = [&](const Tensor& x, std::uint16_t* b, float* l, std::uint16_t* p) {
        kernels::DrawArgs a;
        a.logits = x;
        a.bytes = Tensor(b, Dtype::u16, {batch, 1});
        a.log_probabilities = Tensor(l, Dtype::f32, {batch, 1});
        a.previous = Tensor(p, Dtype::u16, {batch, 1});
        a.sampling = sampling;
        return a;
      };
      kernels::cpu::draw(args(logits.view(Side::single), ids.data(), logs.data(), previous.data()), {});
      kernels::cuda::draw(args(logits.view(Side::gpu), gpu_ids.data(), gpu_logs.data(), gpu_previous.data()), {});
      kernels::cuda::check(cudaDeviceSynchronize(), "draw");
      EXPECT_EQ(gpu_ids.host(), ids) << vocabulary << ' ' << sampling.top_k << ' ' << sampling.top_p;
      EXPECT_EQ(gpu_previous.host(), previous);
      const std::vector<float> found = gpu_logs.host();
      for (std::size_t i = 0; i < logs.size(); ++i) ASSERT_NEAR(found[i], logs[i], 1e-4);
    }
}

// Samples of a model with these weights, on either device and in either way.
Samples sampled(const DecoderConfig& config, std::vector<float>& weights, const SampleConfig& sampling,
                Precision precision, Device device) {
  Decoder model(config);
  const Tensor masters(weights.data(), Dtype::f32, {model.parameters().flat_size()});
  model.parameters().bind(masters, masters);
  EvaluationMemory memory(model, masters, precision, device, [&](const Context& ctx) {
    return static_cast<std::size_t>(sample_memory(model, ctx, sampling).total);
  });
  Context ctx = memory.context();
  return sample(model, ctx, sampling);
}

std::vector<float> random_weights(const DecoderConfig& config) {
  ToyModel<float> toy(config);
  toy.randomise(0.15);
  return toy.values();
}

using kernels::Integration;
using kernels::PartKind;

DecoderConfig base_config() {
  DecoderConfig base = toy_config();
  base.context = 150;
  base.layers = 3;
  base.width = 64;
  base.heads = 2;
  base.attention.stride = 16;
  return base;
}

// Models that a cluster of blocks draws on Hopper, like `deep` below: one head per block, two heads per block, lists of
// several chunks of keys.
std::vector<NamedConfig<DecoderConfig>> cluster_configs(const DecoderConfig& strided, const DecoderConfig& fixed) {
  std::vector<NamedConfig<DecoderConfig>> out;
  DecoderConfig eight = strided;
  eight.width = 256;
  eight.heads = 8;
  eight.attention.integration = Integration::interleaved;
  out.push_back({"cluster of eight", eight});
  DecoderConfig sixteen = fixed;
  sixteen.width = 512;
  sixteen.heads = 32;
  sixteen.feed_forward_ratio = 4;
  sixteen.context = 100;
  sixteen.attention.integration = Integration::merged;
  out.push_back({"cluster of sixteen", sixteen});
  DecoderConfig keys = eight;
  keys.attention.parts = {PartKind::dense};
  keys.key_ratio = 0.5;
  keys.context = 1100;
  keys.layers = 2;
  out.push_back({"cluster with many keys", keys});
  return out;
}

// Shapes that the kernel for a whole position supports, each with a special property.
std::vector<NamedConfig<DecoderConfig>> generated_configs() {
  const DecoderConfig base = base_config();
  std::vector<NamedConfig<DecoderConfig>> out = {{"dense", base}};
  DecoderConfig strided = base;
  strided.attention.parts = {PartKind::local, PartKind::column};
  out.push_back({"strided", strided});
  strided.attention.integration = Integration::merged;
  out.push_back({"strided merged", strided});
  DecoderConfig fixed = base;
  fixed.heads = 4;
  fixed.attention.integration = Integration::merged;
  fixed.attention.parts = {PartKind::fixed_block, PartKind::fixed_summary};
  fixed.attention.summary = {4};
  fixed.attention.distinct_heads = true;
  out.push_back({"fixed", fixed});
  fixed.attention.integration = Integration::multihead;
  out.push_back({"fixed multihead", fixed});
  DecoderConfig image = base;
  image.width = 256;
  image.context = 8 * 8 * 3;
  image.positions = Positions::data;
  image.geometry = {8, 8, 3};
  image.key_ratio = 0.5;
  image.attention.parts = {PartKind::column, PartKind::local};
  image.attention.stride = 24;
  out.push_back({"image", image});
  DecoderConfig deep = strided;  // more layers than words for them, more tiles than blocks
  deep.layers = 13;
  deep.width = 512;
  deep.heads = 16;
  deep.feed_forward_ratio = 4;
  deep.context = 40;
  out.push_back({"deep", deep});
  for (const auto& clustered : cluster_configs(strided, fixed)) out.push_back(clustered);
  DecoderConfig longer = base;  // keys of a head over several blocks, in several portions each
  longer.context = 1500;
  longer.layers = 2;
  out.push_back({"long", longer});
  DecoderConfig beyond = fixed;
  beyond.positions = Positions::none;
  out.push_back({"no tables", beyond});
  beyond.rotary_base = 10000;
  beyond.query_key_norm = true;
  out.push_back({"rotary", beyond});
  beyond.query_key_norm = false;
  beyond.key_ratio = 0.5;
  out.push_back({"rotary, not normalised", beyond});
  DecoderConfig long_keys = longer;  // a query and a key of more elements than a warp has pairs of lanes
  long_keys.width = 256;
  long_keys.query_key_norm = true;
  out.push_back({"long, normalised, not rotated", long_keys});
  return out;
}

TEST(GenerateCuda, Fp32DrawsTheSameBytesAsTheCpu) {
  LONGSTRIDE_NEEDS_GPU();
  std::vector<NamedConfig<DecoderConfig>> configs = generated_configs();
  for (const auto& odd : toy_configs()) configs.push_back(odd);  // sizes that only the graph supports
  for (const auto& [name, config] : configs) {
    std::vector<float> weights = random_weights(config);
    SampleConfig s;
    s.count = 3;
    s.length = config.context;
    s.prompts = {toy_tokens(7)};
    s.sampling.seed = 9;
    const Samples cpu = sampled(config, weights, s, Precision::fp32, Device::cpu);
    for (bool one_kernel : {false, true}) {
      s.one_kernel = one_kernel;
      const Samples gpu = sampled(config, weights, s, Precision::fp32, Device::cuda);
      EXPECT_EQ(gpu.bytes, cpu.bytes) << name << (one_kernel ? ", one kernel" : ", graph");
      for (std::size_t i = 0; i < cpu.bytes.size(); ++i)
        for (std::size_t j = 0; j < cpu.bytes[i].size(); ++j)
          ASSERT_NEAR(gpu.log_probabilities[i][j], cpu.log_probabilities[i][j], 2e-4)
              << name << (one_kernel ? ", one kernel" : ", graph") << " position " << j;
    }
  }
}

// Past the context, where the window slides: in one kernel and by a graph; and what is shown of it on the way.
TEST(GenerateCuda, SlidingWindowsDrawTheSameBytesAsTheCpuAndShowThem) {
  LONGSTRIDE_NEEDS_GPU();
  const DecoderConfig config = base_config();
  std::vector<float> weights = random_weights(config);
  SampleConfig s;
  s.length = 2 * config.context + 11;
  s.prompts = {toy_tokens(7)};
  const Samples cpu = sampled(config, weights, s, Precision::fp32, Device::cpu);
  for (bool one_kernel : {false, true}) {
    std::string shown;
    s.one_kernel = one_kernel;
    s.shown = [&](std::string_view text) { shown += text; };
    const Samples gpu = sampled(config, weights, s, Precision::fp32, Device::cuda);
    EXPECT_EQ(gpu.bytes, cpu.bytes) << one_kernel;
    EXPECT_EQ(shown, std::string(cpu.bytes[0].begin(), cpu.bytes[0].end())) << one_kernel;
  }
}

// The losses of the forward pass of training, on the GPU.
std::vector<float> losses_of(const DecoderConfig& config, std::vector<float>& weights,
                             const std::vector<std::uint8_t>& tokens, Precision precision) {
  Decoder model(config);
  const Tensor masters(weights.data(), Dtype::f32, {model.parameters().flat_size()});
  model.parameters().bind(masters, masters);
  EvaluationConfig evaluation;
  evaluation.context = config.context;
  evaluation.batch = static_cast<std::int64_t>(tokens.size()) / config.context;
  std::vector<float> losses(tokens.size());
  TrainConfig train;
  train.precision = precision;
  train.residual = Precision::fp32;  // as in generation
  EvaluationMemory memory(model, masters, evaluation, train, Device::cuda);
  Context ctx = memory.context();
  Scratch scratch(ctx);
  const Shape shape = {evaluation.batch, config.context};
  const Tensor in = scratch.tensor(shape, Dtype::u8), out = scratch.tensor(shape, Dtype::f32);
  ctx.queue().copy_to_device(in.data(), tokens.data(), in.bytes());
  model.losses(ctx, {in}, out);
  ctx.queue().copy_to_host(losses.data(), out.data(), out.bytes());
  ctx.queue().synchronize();
  return losses;
}

// Largest and mean distance; the mean is over the signed differences of all bytes.
struct Distance {
  double worst = 0, mean = 0;
  Distance(const std::vector<float>& a, const std::vector<float>& b) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
      worst = std::max(worst, std::abs(d));
      mean += d / static_cast<double>(a.size());
    }
  }
};

// Given every byte, decoding computes the same losses as the forward pass of training: exactly in fp32, and in 16 bits
// at most twice as far from fp32 as the forward pass itself.
TEST(GenerateCuda, LogProbabilitiesAreThoseOfTheForwardPass) {
  LONGSTRIDE_NEEDS_GPU();
  for (const auto& [name, config] : generated_configs()) {
    std::vector<float> weights = random_weights(config);
    const std::int64_t batch = 2, n = config.context;
    const std::vector<std::uint8_t> tokens = toy_tokens(batch * n);
    SampleConfig s;
    s.count = batch;
    s.length = n;
    for (std::int64_t b = 0; b < batch; ++b)
      s.prompts.emplace_back(tokens.begin() + b * n, tokens.begin() + (b + 1) * n);
    const std::vector<float> exact = losses_of(config, weights, tokens, Precision::fp32);
    for (Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
      const Distance naive(losses_of(config, weights, tokens, precision), exact);
      for (bool one_kernel : {false, true}) {
        s.one_kernel = one_kernel;
        std::vector<float> found;
        for (const auto& row : sampled(config, weights, s, precision, Device::cuda).log_probabilities)
          for (float log : row) found.push_back(-log);
        const Distance distance(found, exact);
        const std::string what = name + (one_kernel ? ", one kernel, " : ", graph, ") + name_of(precision);
        EXPECT_LT(distance.worst, 2 * naive.worst + 2e-4) << what;
        EXPECT_LT(std::abs(distance.mean), 2 * naive.worst / 10 + 1e-5) << what;
        RecordProperty(what, std::to_string(distance.worst) + " compared with " + std::to_string(naive.worst) +
                                 ", mean " + std::to_string(distance.mean) + " compared with " +
                                 std::to_string(naive.mean));
      }
    }
  }
}

TEST(GenerateCuda, SamplesDoNotDependOnHowManyAreDrawnAtOnceAndRepeat) {
  LONGSTRIDE_NEEDS_GPU();
  for (const auto& [name, config] : generated_configs()) {
    if (name != "fixed" && name != "cluster of sixteen") continue;
    std::vector<float> weights = random_weights(config);
    SampleConfig s;
    s.count = 19;
    s.length = config.context;
    s.sampling.top_p = 0.9;
    for (Precision precision : {Precision::bf16, Precision::fp32}) {
      s.batch = 0;
      const Samples all = sampled(config, weights, s, precision, Device::cuda);
      EXPECT_EQ(all.bytes.size(), 19u);
      EXPECT_EQ(sampled(config, weights, s, precision, Device::cuda).bytes, all.bytes) << name;
      s.batch = 5;
      EXPECT_EQ(sampled(config, weights, s, precision, Device::cuda).bytes, all.bytes) << name;
    }
  }
}

// With three sequences per cluster the ring of weights has fewer stages than a product: 6, 5 (odd) and 7. All of a
// warp's keys are in shared memory (52 and 58), or with the widest window half of 77. Of 16 sequences the last cluster
// gets one.
void expect_many_are_right(std::int64_t stride) {
  SCOPED_TRACE(stride);
  DecoderConfig config = toy_config();
  config.context = 512;
  config.layers = 12;
  config.width = 512;
  config.heads = 16;
  config.feed_forward_ratio = 4;
  config.attention.stride = stride;
  config.attention.parts = {kernels::PartKind::local};
  std::vector<float> weights = random_weights(config);
  const std::int64_t batch = 16, n = config.context;
  SampleConfig s;
  s.count = batch;
  s.length = n;
  const std::vector<std::uint8_t> tokens = toy_tokens(batch * n);
  for (std::int64_t b = 0; b < batch; ++b) s.prompts.emplace_back(tokens.begin() + b * n, tokens.begin() + (b + 1) * n);
  const std::vector<float> exact = losses_of(config, weights, tokens, Precision::fp32);
  const Distance naive(losses_of(config, weights, tokens, Precision::bf16), exact);
  std::vector<float> found;
  for (const auto& row : sampled(config, weights, s, Precision::bf16, Device::cuda).log_probabilities)
    for (float log : row) found.push_back(-log);
  EXPECT_LT(Distance(found, exact).worst, 2 * naive.worst + 2e-4);

  s.prompts.clear();
  const Samples all = sampled(config, weights, s, Precision::bf16, Device::cuda);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(sampled(config, weights, s, Precision::bf16, Device::cuda).bytes, all.bytes) << i;
  s.count = batch - 1;
  const std::vector<std::vector<std::uint8_t>> others(all.bytes.begin(), all.bytes.end() - 1);
  EXPECT_EQ(sampled(config, weights, s, Precision::bf16, Device::cuda).bytes, others);
}
TEST(GenerateCuda, ManySequencesWithLocalAttentionAreRightAndRepeat) {
  LONGSTRIDE_NEEDS_GPU();
  for (std::int64_t stride : {256, 288, 384}) expect_many_are_right(stride);
}

}  // namespace
}  // namespace longstride::test
