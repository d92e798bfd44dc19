#include "framework/models/decoder/decoder.h"

#include <map>

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
            pairs += kernels::allowed(config.attention, layer, config.heads, head, n, i, j) ? 1 : 0;
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

// The same random numbers, so a table of twice the deviation has twice the values, and no other bit changes.
TEST(Decoder, DeviationsOfTablesScaleThoseTablesAlone) {
  DecoderConfig tables_of_layers = spans_config();
  tables_of_layers.distance.shared_table = false;
  for (DecoderConfig config : {toy_config(), spans_config(), tables_of_layers}) {
    config.init_deviation = 0.25;
    DecoderConfig changed = config;
    changed.init_deviations.embedding = 0.5;
    if (config.distance.given) changed.init_deviations.distance_table = 1;
    ToyModel<float> usual(config), scaled(changed);
    for (ToyModel<float>* toy : {&usual, &scaled}) toy->model().parameters().initialise(1);
    for (const Parameter& p : usual.model().parameters().all()) {
      const bool token = p.name == "embedding.start" || p.name == "embedding.token.weight";
      const float factor = token ? 2 : p.name.ends_with("distance.table") ? 4 : 1;
      for (std::int64_t i = p.offset; i < p.offset + p.shape.count(); ++i)
        ASSERT_EQ(scaled.values()[static_cast<std::size_t>(i)], factor * usual.values()[static_cast<std::size_t>(i)])
            << p.name;
    }
  }
}

// Transformer-XL has 41.06 million parameters with 12 layers for enwik8 (Dai et al. 2019), which has 204 symbols. Its
// attention adds a map of distances to every layer, and two vectors that all layers share; ours adds a start vector.
TEST(Decoder, HasTheParametersOfTransformerXlButForItsAttention) {
  DecoderConfig config = forms_of(toy_config()).front().config;
  config.layers = 12;
  config.width = 512;
  config.heads = 8;
  config.feed_forward_ratio = 4;
  config.vocabulary = 204;
  const std::int64_t distances = 12 * 512 * 512 + 2 * 512, start = 512;
  const std::int64_t count = Decoder(config).parameters().count() - start + distances;
  EXPECT_EQ(count, 41055436);
  EXPECT_NEAR(static_cast<double>(count) / 1e6, 41.06, 0.005);
}

// Two maps into the feed-forward network, one of them the gate, and no vectors but those of norms and the start.
TEST(Decoder, AGateDoublesTheInnerMapAndBiasesAreOptional) {
  DecoderConfig config = toy_config();
  const auto count = [&] { return Decoder(config).parameters().count(); };
  const std::int64_t plain = count(), inner = config.inner_width(), width = config.width;
  config.activation = kernels::Activation::geglu;
  EXPECT_EQ(count(), plain + config.layers * (inner * width + inner));
  config.feed_forward_bias = false;
  EXPECT_EQ(count(), plain + config.layers * (inner * width - inner - width));
  config.attention_bias = false;
  EXPECT_EQ(count(), plain + config.layers * (inner * width - inner - width - 4 * width));
}

// Gradients that ranks may already exchange never change afterwards. A tied output is final only after the embedding.
class FinalGradients : public GradientWatcher {
 public:
  FinalGradients(const std::deque<Parameter>& parameters, const Context& ctx) : parameters_(parameters), ctx_(ctx) {}
  void complete_from(const Parameter& first) override {
    bool from_here = false;
    if (ctx_.planning()) return;
    for (const Parameter& p : parameters_) {
      from_here = from_here || &p == &first;
      if (from_here && p.decays()) seen.insert({&p, values_of(p)});
    }
  }
  static std::vector<float> values_of(const Parameter& p) {
    const float* g = p.gradient.as<const float>();
    return {g, g + p.shape.count()};
  }
  std::map<const Parameter*, std::vector<float>> seen;

 private:
  const std::deque<Parameter>& parameters_;
  const Context& ctx_;
};

TEST(Decoder, GradientsAreFinalWhenTheWatcherHearsOfThem) {
  for (const auto& [name, config] : toy_configs()) {
    ToyModel<float> toy(config);
    toy.randomise();
    FinalGradients watcher(toy.model().parameters().all(), toy.context());
    toy.context().watcher = &watcher;
    std::vector<std::uint8_t> tokens = toy_tokens(2 * config.context);
    toy.loss_and_gradients(tokens, 2);
    for (const auto& [parameter, then] : watcher.seen)
      EXPECT_EQ(FinalGradients::values_of(*parameter), then) << name << " " << parameter->name;
    EXPECT_GE(watcher.seen.size(), static_cast<std::size_t>(4 * config.layers)) << name;
  }
}

}  // namespace longstride::test
