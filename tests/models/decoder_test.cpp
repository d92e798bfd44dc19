#include "framework/models/decoder/decoder.h"

#include "tests/support/model_properties.h"

namespace longstride::test {

template <>
struct Toys<DecoderConfig> {
  static std::vector<NamedConfig<DecoderConfig>> configs() { return toy_configs(); }
  static std::vector<DecoderConfig> recompute_policies(const DecoderConfig& config) {
    std::vector<DecoderConfig> all(4, config);
    all[1].recompute = Recompute::selective;
    all[2].recompute = Recompute::block;
    all[3].recompute = Recompute::attention_and_feed_forward;
    return all;
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Decoder, ModelProperties, DecoderConfig);

TEST(Decoder, RecomputeTakesLessMemory) {
  DecoderConfig config = toy_config();
  config.layers = 6;
  config.context = 64;
  std::vector<std::size_t> bytes;
  for (Recompute policy :
       {Recompute::none, Recompute::selective, Recompute::attention_and_feed_forward, Recompute::block}) {
    config.recompute = policy;
    ToyModel<float> toy(config);
    std::vector<std::uint8_t> tokens = toy_tokens(4 * config.context);
    toy.loss_and_gradients(tokens, 4);
    bytes.push_back(toy.planned());
  }
  EXPECT_LT(bytes[1], bytes[0]);
  EXPECT_LT(bytes[3], bytes[1]);
  EXPECT_LT(bytes[3], bytes[2]);
}

class AttentionCounter : public kernels::Meter {
 public:
  void begin(const kernels::Cost& cost) override { count += cost.work == kernels::WorkKind::attention_forward ? 1 : 0; }
  void end() override {}
  int count = 0;
};

TEST(Decoder, SelectiveRecomputeDoesNotAttendAgain) {
  DecoderConfig config = toy_config();
  std::vector<std::uint8_t> tokens = toy_tokens(2 * config.context);
  const auto attentions = [&](Recompute policy) {
    config.recompute = policy;
    ToyModel<float> toy(config);
    AttentionCounter counter;
    toy.context().launch.meter = &counter;
    toy.loss_and_gradients(tokens, 2);
    return counter.count;
  };
  const int once = attentions(Recompute::none);
  ASSERT_GT(once, 0);
  EXPECT_EQ(attentions(Recompute::selective), once);
  EXPECT_EQ(attentions(Recompute::block), 2 * once);
}

// A product with a weight or for an allowed pair takes two operations per element forward, and twice that backward.
TEST(Decoder, CostCountsEveryWeightAndEveryAllowedPair) {
  for (const auto& [name, config] : toy_configs()) {
    Decoder model(config);
    const std::int64_t n = config.context - 2;
    double pairs = 0;
    for (std::int64_t layer = 0; layer < config.layers; ++layer)
      for (std::int64_t head = 0; head < config.heads; ++head)
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t j = 0; j < n; ++j)
            pairs += kernels::allowed(config.attention, layer, config.heads, head, i, j) ? 1 : 0;
    const SequenceCost cost = model.cost(n);
    EXPECT_EQ(cost.allowed_pairs, pairs) << name;
    EXPECT_EQ(cost.dense_pairs, static_cast<double>(config.layers * config.heads * n * (n + 1) / 2)) << name;
    const double weights = static_cast<double>(model.parameters().count() * n);
    const double elements = static_cast<double>(config.key_size() + config.value_size());
    EXPECT_DOUBLE_EQ(cost.training_flops, 3 * 2 * (weights + pairs * elements)) << name;
  }
}

TEST(Decoder, StartsAtLogOf256BecauseTheOutputStartsAtZero) {
  ToyModel<float> toy(toy_config());
  toy.model().parameters().initialise(1);
  std::vector<std::uint8_t> tokens = toy_tokens(23);
  for (float l : toy.losses(tokens, 1)) EXPECT_NEAR(l, std::log(256.0f), 1e-5);
}

}  // namespace longstride::test
