// Generation with a memory, and with scans, on the GPU, by one graph for every position, compared with the CPU.
#include <gtest/gtest.h>

#include "framework/train/evaluate/evaluation_memory.h"
#include "framework/train/sample/sampler.h"
#include "tests/gpu/gpu.h"
#include "tests/support/distance_toys.h"
#include "tests/support/scan_toys.h"

namespace longstride::test {
namespace {

template <class Toy>
Samples sampled(const Toy& config, std::vector<float>& weights, const SampleConfig& sampling, Device device) {
  const auto model = config.make_model();
  const Tensor masters(weights.data(), Dtype::f32, {model->parameters().flat_size()});
  model->parameters().bind(masters, masters);
  EvaluationMemory memory(*model, masters, Precision::fp32, device, [&](const Context& ctx) {
    return static_cast<std::size_t>(sample_memory(*model, ctx, sampling).total);
  });
  Context ctx = memory.context();
  return sample(*model, ctx, sampling);
}

template <class Toy>
void expect_the_bytes_of_the_cpu(const std::string& name, const Toy& config, const SampleConfig& s) {
  ToyModel<float> toy(config);
  if (capability<Decodes>(toy.model()) == nullptr) return;
  toy.randomise(0.15);
  const Samples cpu = sampled(config, toy.values(), s, Device::cpu);
  const Samples gpu = sampled(config, toy.values(), s, Device::cuda);
  EXPECT_EQ(gpu.bytes, cpu.bytes) << name;
  for (std::size_t i = 0; i < cpu.bytes.size(); ++i)
    for (std::size_t j = 0; j < cpu.bytes[i].size(); ++j)
      ASSERT_NEAR(gpu.log_probabilities[i][j], cpu.log_probabilities[i][j], 2e-4) << name << " position " << j;
}

TEST(DistanceDecodeCuda, DrawsTheSameBytesAsTheCpuBeyondTheContext) {
  LONGSTRIDE_NEEDS_GPU();
  auto toys = distance_toys();
  toys.push_back({"compressive_most_used", compressive_toy(Compression::most_used)});
  for (const auto& [name, config] : toys) {
    SampleConfig s;
    s.count = 3;
    s.length = config.remembers() ? 5 * config.context + 2 : config.context;
    s.prompts = {toy_tokens(7)};
    s.sampling.seed = 9;
    expect_the_bytes_of_the_cpu(name, config, s);
  }
}

// Prompts are read several positions at a time, the rest by a graph.
TEST(ScanDecodeCuda, DrawsTheSameBytesAsTheCpuAfterPromptsOfSeveralWindows) {
  LONGSTRIDE_NEEDS_GPU();
  for (const auto& [name, config] : scan_toys()) {
    // Its denominators have both signs: where one is near 0, rounding decides.
    if (name.starts_with("trigonometric")) continue;
    SampleConfig s;
    s.count = 3;
    const bool goes_on = name.ends_with("_memory");
    s.length = goes_on ? 4 * config.context + 3 : config.context;
    s.sampling.seed = 9;
    for (const std::int64_t given : {std::int64_t{0}, s.length / 2, s.length - 1, s.length}) {
      s.prompts.clear();
      if (given > 0) s.prompts = {toy_tokens(given)};
      expect_the_bytes_of_the_cpu(name, config, s);
    }
  }
}

}  // namespace
}  // namespace longstride::test
