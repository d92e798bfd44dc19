#include "framework/train/sample/sampler.h"

#include <gtest/gtest.h>

#include "tests/support/distance_toys.h"
#include "tests/support/scan_toys.h"

namespace longstride {
namespace {

using test::ToyModel;

// Samples in memory of exactly the planned size.
Samples sampled(ToyModel<float>& toy, const SampleConfig& config) {
  Samples out;
  Context& ctx = toy.context();
  const auto planned = static_cast<std::size_t>(sample_memory(toy.model(), ctx, config).total);
  std::vector<std::byte> memory(planned + Arena::alignment);
  void* base = memory.data();
  std::size_t space = memory.size();
  std::align(Arena::alignment, planned, base, space);
  Arena arena(base, planned);
  ctx.arena = &arena;
  out = sample(toy.model(), ctx, config);
  EXPECT_EQ(arena.high_water(), planned);
  ctx.arena = nullptr;
  return out;
}

// Given every byte, nothing is drawn, and the probabilities are those of the forward pass of training.
TEST(Sampler, LogProbabilitiesOfGivenBytesAreTheLosses) {
  for (const auto& [name, config] : test::toy_configs()) {
    ToyModel<float> toy(config);
    toy.randomise();
    std::vector<std::uint8_t> tokens = test::toy_tokens(2 * config.context);
    const std::vector<float> losses = toy.losses(tokens, 2);
    SampleConfig s;
    s.count = 2;
    s.length = config.context;
    const auto middle = tokens.begin() + config.context;
    s.prompts = {{tokens.begin(), middle}, {middle, tokens.end()}};
    const Samples out = sampled(toy, s);
    EXPECT_EQ(out.bytes, s.prompts) << name;
    for (std::size_t i = 0; i < losses.size(); ++i) {
      const auto n = static_cast<std::size_t>(config.context);
      ASSERT_NEAR(out.log_probabilities[i / n][i % n], -losses[i], 2e-5) << name << " at " << i;
    }
  }
}

// Ids of 16 bits, two bytes each in prompts and samples.
TEST(Sampler, DrawsTokensOfLargeVocabularies) {
  DecoderConfig config = test::toy_configs()[3].config;
  config.vocabulary = 1000;
  ToyModel<float> toy(config);
  toy.randomise();
  SampleConfig s;
  s.count = 2;
  s.length = config.context + 5;  // a window slides
  s.prompts = {{7, 0, 231, 3}};   // 7 and 999
  const Samples out = sampled(toy, s);
  bool beyond_a_byte = false;
  for (const auto& bytes : out.bytes) {
    ASSERT_EQ(std::ssize(bytes), 2 * s.length);
    const kernels::Ids ids{bytes.data(), true};
    EXPECT_EQ(ids[0], 7);
    EXPECT_EQ(ids[1], 999);
    for (std::int64_t i = 0; i < s.length; ++i) {
      EXPECT_LT(ids[i], 1000);
      beyond_a_byte = beyond_a_byte || ids[i] > 255;
    }
  }
  EXPECT_TRUE(beyond_a_byte);
  EXPECT_NE(out.bytes[0], out.bytes[1]);
  std::string shown;
  s.count = 1;
  s.shown = [&](std::string_view part) { shown += part; };
  const Samples one = sampled(toy, s);
  EXPECT_EQ(one.bytes[0], out.bytes[0]);
  EXPECT_EQ(shown, std::string(one.bytes[0].begin(), one.bytes[0].end()));
}

TEST(Sampler, SamplesDoNotDependOnHowManyAreDrawnAtOnce) {
  ToyModel<float> toy(test::toy_configs()[3].config);
  toy.randomise();
  SampleConfig s;
  s.count = 7;
  s.length = 20;
  s.prompts = {test::toy_tokens(3)};
  const Samples together = sampled(toy, s);
  EXPECT_EQ(together.bytes.size(), 7u);
  EXPECT_NE(together.bytes[0], together.bytes[1]);
  for (const auto& bytes : together.bytes)
    EXPECT_TRUE(std::equal(s.prompts[0].begin(), s.prompts[0].end(), bytes.begin()));
  for (std::int64_t batch : {1, 2, 3}) {
    s.batch = batch;
    EXPECT_EQ(sampled(toy, s).bytes, together.bytes) << batch;
  }
  s.sampling.seed = 2;
  EXPECT_NE(sampled(toy, s).bytes, together.bytes);
}

// Past the context a window slides: its first half is what the one before has drawn, and its numbers are its own.
TEST(Sampler, BeyondTheContextAWindowSlidesByHalf) {
  ToyModel<float> toy(test::toy_configs()[3].config);
  toy.randomise();
  const std::int64_t context = toy.model().context(), half = context / 2;
  ASSERT_EQ(longest_window(toy.model()), context);
  SampleConfig s;
  s.count = 3;
  s.length = 2 * context + 3;
  s.prompts = {test::toy_tokens(2)};
  const Samples drawn = sampled(toy, s);
  for (const std::int64_t batch : {1, 2}) {
    s.batch = batch;
    EXPECT_EQ(sampled(toy, s).bytes, drawn.bytes) << batch;
  }
  SampleConfig window = s;
  window.length = context;
  const Samples first = sampled(toy, window);
  window.sampling.seed += 0x9E3779B97F4A7C15;
  window.prompts.clear();
  for (const auto& bytes : first.bytes) window.prompts.emplace_back(bytes.end() - half, bytes.end());
  const Samples second = sampled(toy, window);
  for (std::size_t row = 0; row < 3; ++row) {
    ASSERT_EQ(std::ssize(drawn.bytes[row]), s.length);
    ASSERT_EQ(std::ssize(drawn.log_probabilities[row]), s.length);
    EXPECT_TRUE(std::equal(first.bytes[row].begin(), first.bytes[row].end(), drawn.bytes[row].begin())) << row;
    EXPECT_TRUE(
        std::equal(second.bytes[row].begin() + half, second.bytes[row].end(), drawn.bytes[row].begin() + context))
        << row;
  }
  s.prompts.clear();
  for (const auto& bytes : drawn.bytes) s.prompts.emplace_back(bytes.begin(), bytes.begin() + context + half);
  EXPECT_EQ(sampled(toy, s).bytes, drawn.bytes);  // a prompt longer than the context leads to the same windows
}

TEST(Sampler, ASequenceIsShownAsItIsDrawnAndKeptWhereItIsStopped) {
  ToyModel<float> toy(test::toy_configs()[3].config);
  toy.randomise();
  SampleConfig s;
  s.length = 2 * toy.model().context() + 1;
  std::string shown;
  s.shown = [&](std::string_view text) { shown += text; };
  const Samples drawn = sampled(toy, s);
  EXPECT_EQ(shown, std::string(drawn.bytes[0].begin(), drawn.bytes[0].end()));
  for (const std::int64_t stop_at : {std::int64_t{1}, toy.model().context() + 3}) {
    shown.clear();
    std::vector<std::byte> memory(static_cast<std::size_t>(sample_memory(toy.model(), toy.context(), s).total));
    Arena arena(memory.data(), memory.size());
    toy.context().arena = &arena;
    const Samples part = sample(toy.model(), toy.context(), s, {}, [&] { return std::ssize(shown) >= stop_at; });
    toy.context().arena = nullptr;
    EXPECT_TRUE(part.abandoned);
    ASSERT_EQ(std::ssize(part.bytes[0]), stop_at);
    EXPECT_TRUE(std::equal(part.bytes[0].begin(), part.bytes[0].end(), drawn.bytes[0].begin()));
    EXPECT_EQ(std::ssize(shown), stop_at);
  }
}

// Scans read a prompt several positions at a time, across windows.
TEST(Sampler, APromptReadAtOnceLeadsToTheSameBytesAsOneReadByByte) {
  for (const auto& [name, config] : test::scan_toys()) {
    ToyModel<float> toy(config);
    toy.randomise();
    SampleConfig s;
    s.count = 3;
    s.length = longest_window(toy.model()) > config.context ? 4 * config.context + 3 : config.context;
    const Samples drawn = sampled(toy, s);
    for (const std::int64_t given : {std::int64_t{1}, std::int64_t{2}, config.context - 1, s.length - 1, s.length}) {
      s.prompts.clear();
      for (const auto& bytes : drawn.bytes) s.prompts.emplace_back(bytes.begin(), bytes.begin() + given);
      const Samples found = sampled(toy, s);
      EXPECT_EQ(found.bytes, drawn.bytes) << name << " " << given;
      for (std::size_t row = 0; row < drawn.bytes.size(); ++row)
        for (std::size_t i = 0; i < drawn.bytes[row].size(); ++i)
          ASSERT_NEAR(found.log_probabilities[row][i], drawn.log_probabilities[row][i], 2e-5) << name << " at " << i;
    }
  }
}

// The memories of a row are its own, and a prompt of any length leads to them.
TEST(Sampler, ACompressedMemoryContinuesPromptsOfAnyLengthInAnyBatch) {
  for (const Compression compress :
       {Compression::mean, Compression::max, Compression::convolution, Compression::dilated, Compression::most_used}) {
    const test::DistanceToy config = test::compressive_toy(compress);
    ToyModel<float> toy(config);
    toy.randomise();
    SampleConfig s;
    s.count = 5;
    s.length = 6 * config.context + 3;
    const Samples drawn = sampled(toy, s);
    for (const std::int64_t given : {config.context / 2, config.context, 4 * config.context + 1})
      for (const std::int64_t batch : {1, 2, 5}) {
        s.batch = batch;
        s.prompts.clear();
        for (const auto& bytes : drawn.bytes) s.prompts.emplace_back(bytes.begin(), bytes.begin() + given);
        EXPECT_EQ(sampled(toy, s).bytes, drawn.bytes) << static_cast<int>(compress) << " " << given << " " << batch;
      }
  }
}

// Where the ring of compressed rows wraps around, a later segment stores shorter runs of them than an earlier one: so
// many rows that they take more memory than anything else.
std::vector<test::NamedConfig<test::DistanceToy>> decoders_with_memories() {
  auto all = test::distance_toys();
  for (const auto& [rate, kept] : {std::pair{2, 47}, {3, 31}, {3, 32}})
    for (const Compression compress : {Compression::mean, Compression::most_used}) {
      test::DistanceToy house = test::house_compressive_toy();
      house.layers = 1;
      house.width = 32;
      house.memory = {.length = 12, .compressed = kept, .rate = rate, .compress = compress};
      if (rate == 2) house.rotary_base = 0;  // normalised alone
      all.push_back({"house_" + std::to_string(kept) + "_" + std::to_string(static_cast<int>(compress)), house});
    }
  return all;
}

// sampled() compares the two. Only where a segment begins may a longer sample take more memory.
TEST(Sampler, TakesThePlannedMemoryWhereverASampleEnds) {
  for (const auto& [name, config] : decoders_with_memories()) {
    SCOPED_TRACE(name);
    ToyModel<float> toy(config);
    toy.randomise();
    const std::int64_t segments = !config.remembers() ? 1 : config.memory.compressed > 8 ? 12 : 4;
    for (std::int64_t s = 0; s < segments; ++s)
      for (const std::int64_t more : {std::int64_t{1}, config.context}) {
        SampleConfig drawn;
        drawn.length = s * config.context + more;
        ASSERT_NO_THROW(sampled(toy, drawn)) << drawn.length;
      }
  }
}

TEST(Sampler, ProgressCountsEveryPositionOfEverySequence) {
  ToyModel<float> toy(test::toy_config());
  toy.randomise();
  SampleConfig s;
  s.count = 5;
  s.length = 9;
  s.batch = 2;
  std::vector<std::byte> memory(std::size_t{1} << 20);
  void* base = memory.data();
  std::size_t space = memory.size();
  std::align(Arena::alignment, std::size_t{1} << 19, base, space);
  Arena arena(base, std::size_t{1} << 19);
  Context ctx = toy.context();
  ctx.arena = &arena;
  std::int64_t last = 0;
  sample(toy.model(), ctx, s, [&](std::int64_t done, std::int64_t all) {
    EXPECT_GT(done, last);
    EXPECT_EQ(all, 45);
    last = done;
  });
  EXPECT_EQ(last, 45);
  const Samples some = sample(
      toy.model(), ctx, s, [&](std::int64_t done, std::int64_t) { last = done; },
      [&] { return last >= 22; });  // the second of three batches
  EXPECT_TRUE(some.abandoned);
  EXPECT_EQ(last, 22);
}

}  // namespace
}  // namespace longstride
