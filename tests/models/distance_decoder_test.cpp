// Decoders whose attention has a distance term, with and without a memory.
#include "framework/models/decoder/distance_decoder.h"

#include "tests/support/distance_toys.h"

namespace longstride::test {

INSTANTIATE_TYPED_TEST_SUITE_P(DistanceDecoder, ModelProperties, DistanceToy);

namespace {

// Parts [begin, end) of a text, each of `length` bytes.
std::vector<std::uint8_t> parts_of(const std::vector<std::uint8_t>& text, std::int64_t length, std::int64_t begin,
                                   std::int64_t end) {
  return {text.begin() + begin * length, text.begin() + end * length};
}

// Segments of one row, the first of which starts a stream: the losses of the last one.
std::vector<double> last_losses(ToyModel<double>& toy, const std::vector<std::uint8_t>& text, std::int64_t segments) {
  const std::int64_t length = toy.model().context();
  toy.forget();
  for (std::int64_t s = 0; s + 1 < segments; ++s) toy.remember(parts_of(text, length, s, s + 1), 1);
  return toy.losses(parts_of(text, length, segments - 1, segments), 1);
}

// A memory of the whole past makes segments one sequence, through any number of layers.
TEST(DistanceDecoder, SegmentsWithAMemoryOfThePastHaveTheLossesOfOneSequence) {
  for (const auto& [name, toy_config] : distance_toys()) {
    if (toy_config.memory.length == 0 || toy_config.memory.start == MemoryStart::zeros) continue;
    if (toy_config.memory.compressed > 0) continue;
    SCOPED_TRACE(name);
    DistanceToy config = toy_config;
    config.memory.length = 3 * config.context;
    DistanceToy whole_config = config;
    whole_config.context = 4 * config.context;
    ToyModel<double> segments(config), whole(whole_config);
    for (auto* toy : {&segments, &whole}) toy->randomise();
    const std::vector<std::uint8_t> text = toy_tokens(whole_config.context);
    const std::vector<double> expected = whole.losses(text, 1), found = last_losses(segments, text, 4);
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[expected.size() - found.size() + i], 1e-12) << i;
  }
}

// With one layer the memory holds nothing that weights have made but the embedding and the norm before attention. All
// other weights have the gradients of one sequence, and those have less, because the memory passes none on.
TEST(DistanceDecoder, TwoSegmentsOfOneLayerHaveTheGradientsOfOneSequenceWithoutThoseThroughMemory) {
  for (DistanceToy config : {transformer_xl_toy(), house_toy()}) {
    config.layers = 1;
    config.tied_output = false;
    DistanceToy whole_config = config;
    whole_config.context = 2 * config.context;
    ToyModel<double> segments(config), whole(whole_config);
    for (auto* toy : {&segments, &whole}) toy->randomise();
    const std::vector<std::uint8_t> text = toy_tokens(whole_config.context),
                                    first = parts_of(text, config.context, 0, 1),
                                    second = parts_of(text, config.context, 1, 2);
    const double expected = whole.loss_and_gradients(text, 1);
    double found = segments.loss_and_gradients(first, 1);
    segments.remember(first, 1);
    found += segments.loss_and_gradients(second, 1);
    EXPECT_NEAR(found, expected, 1e-12 * expected);
    for (const Parameter& p : segments.model().parameters().all()) {
      double difference = 0;
      for (std::int64_t i = p.offset; i < p.offset + p.shape.count(); ++i)
        difference = std::max(difference, std::abs(segments.gradients()[static_cast<std::size_t>(i)] -
                                                   whole.gradients()[static_cast<std::size_t>(i)]));
      const bool made_memory = p.name.starts_with("embedding.") ||
                               (config.norm == NormOrder::pre && p.name.starts_with("layers.0.attention_norm."));
      if (made_memory) {
        EXPECT_GT(difference, 1e-3) << p.name;
      } else {
        EXPECT_LT(difference, 1e-11) << p.name;
      }
    }
  }
}

// A segment's losses depend on the layers * memory positions before it, the first of which reads the byte before it,
// and on nothing earlier.
TEST(DistanceDecoder, ReachesBackOverTheMemoryOfEveryLayerAndNoFurther) {
  for (DistanceToy config : {transformer_xl_toy(), house_toy()}) {
    config.context = config.memory.length = 5;
    constexpr std::int64_t segments = 5;
    const std::int64_t start = (segments - 1) * config.context, nearest = start - config.layers * config.memory.length;
    ASSERT_GT(nearest, 2);
    ToyModel<double> toy(config);
    toy.randomise();
    std::vector<std::uint8_t> text = toy_tokens(segments * config.context);
    const std::vector<double> before = last_losses(toy, text, segments);
    for (std::int64_t at = 0; at < start; ++at) {
      const auto i = static_cast<std::size_t>(at);
      text[i] = static_cast<std::uint8_t>(text[i] + 1);
      EXPECT_EQ(last_losses(toy, text, segments) != before, at >= nearest - 1) << at;
      text[i] = static_cast<std::uint8_t>(text[i] - 1);
    }
  }
}

// Windows of k keys with steps of d reach (k - 1) d positions back in every layer.
TEST(DistanceDecoder, DilatedWindowsReachTheirKeysAndNoFurther) {
  DistanceToy config = longformer_toy();
  config.context = 40;
  std::int64_t reach = 0;
  for (std::size_t layer = 0; layer < 3; ++layer)
    reach += (config.distance.window[layer] - 1) * config.distance.dilation[layer];
  ToyModel<double> toy(config);
  toy.randomise();
  std::vector<std::uint8_t> text = toy_tokens(config.context);
  const std::vector<double> before = toy.losses(text, 1);
  const std::int64_t last = config.context - 1, farthest = last - reach - 1;
  ASSERT_GT(farthest, 1);
  for (std::int64_t at = 0; at < last; ++at) {
    const auto i = static_cast<std::size_t>(at);
    text[i] = static_cast<std::uint8_t>(text[i] + 1);
    const std::vector<double> after = toy.losses(text, 1);
    EXPECT_TRUE(at >= farthest || after.back() == before.back()) << at;
    if (at == farthest) {
      EXPECT_NE(after.back(), before.back());
    }
    text[i] = static_cast<std::uint8_t>(text[i] - 1);
  }
}

// In training's own precision too, of every row, with what rows remember.
TEST(DistanceDecoder, NothingLooksAheadInSinglePrecision) {
  for (const auto& [name, config] : distance_toys()) {
    ToyModel<float> toy(config);
    toy.randomise();
    const std::int64_t n = config.context;
    toy.remember(earlier_tokens(2 * n), 2);
    std::vector<std::uint8_t> tokens = toy_tokens(2 * n);
    const std::vector<float> before = toy.losses(tokens, 2);
    for (std::int64_t changed = 0; changed < n; ++changed) {
      tokens[static_cast<std::size_t>(n + changed)] ^= 0xFF;
      const std::vector<float> after = toy.losses(tokens, 2);
      for (std::int64_t i = 0; i < n + changed; ++i)
        ASSERT_EQ(after[static_cast<std::size_t>(i)], before[static_cast<std::size_t>(i)]) << name << " " << changed;
      tokens[static_cast<std::size_t>(n + changed)] ^= 0xFF;
    }
  }
}

DistanceToy sized(DistanceToy config, std::int64_t layers, std::int64_t width, double feed_forward_ratio) {
  config.layers = layers;
  config.width = width;
  config.heads = 8;
  config.feed_forward_ratio = feed_forward_ratio;
  config.distance.window = {};
  config.distance.dilation = {};
  config.distance.dilated_heads = 0;
  config.vocabulary = 204;  // symbols in enwik8
  config.tied_output = config.output_bias = true;
  return config;
}

// The published models start a sequence with its first byte; ours adds a start vector.
std::int64_t parameters_of(const DistanceToy& config) {
  return DistanceDecoder(config).parameters().count() - config.width;
}

// 41.06M and 277M in Dai et al. 2019 and in the logs of their code; the layers alone have 277.0M.
TEST(DistanceDecoder, HasTheParametersOfTransformerXl) {
  EXPECT_EQ(parameters_of(sized(transformer_xl_toy(), 12, 512, 4)), 41055436);
  const DistanceToy large = sized(transformer_xl_toy(), 24, 1024, 3);
  const std::int64_t outside = 204 * 1024 + 204 + 2 * 1024;  // symbols, their biases, and u and v
  EXPECT_EQ(parameters_of(large), 277020672 + outside);
}

// 41M and 102M in Beltagy et al. 2020: Transformer-XL's layers, with a norm behind the last one.
TEST(DistanceDecoder, HasTheParametersOfLongformersLanguageModel) {
  EXPECT_EQ(parameters_of(sized(longformer_toy(), 12, 512, 4)), 41055436 + 2 * 512);
  EXPECT_EQ(parameters_of(sized(longformer_toy(), 30, 512, 4)), 41055436 + 18 * 3412480 + 2 * 512);
}

// A product with a weight or for an allowed pair takes two operations per element forward, and twice that backward; a
// pair has a second product, with the vector of its distance. The memory's keys and values need no gradient of the
// memory.
TEST(DistanceDecoder, CostCountsEveryWeightAndEveryAllowedPair) {
  const DistanceToy config = transformer_xl_toy();
  const DistanceDecoder model(config);
  const double n = 13, m = 13, pairs = 2 * 2 * n * (m + (n + 1) / 2);
  const SequenceCost cost = model.cost(13);
  EXPECT_EQ(cost.allowed_pairs, pairs);
  EXPECT_EQ(cost.dense_pairs, pairs);
  DistanceDecoder counted(config);
  EXPECT_DOUBLE_EQ(cost.training_flops, 6 * n * static_cast<double>(counted.parameters().count()) +
                                            4 * m * 2 * 2 * 16 * 16 + 3 * pairs * 2 * (2 * 8 + 8));
  const DistanceToy windows = longformer_toy();
  EXPECT_LT(DistanceDecoder(windows).cost(23).allowed_pairs, DistanceDecoder(windows).cost(23).dense_pairs / 2);
}

}  // namespace
}  // namespace longstride::test
