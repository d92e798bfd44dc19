// Decoders whose attention has a distance term, with and without a memory.
#include "framework/mixers/distance/term.h"
#include "framework/models/decoder/decoder.h"

#include <cstdint>

#include "tests/support/distance_toys.h"
#include "tests/support/model_properties.h"

namespace longstride::test {

INSTANTIATE_TYPED_TEST_SUITE_P(DistanceAttention, ModelProperties, DistanceToy);

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
TEST(DistanceAttention, SegmentsWithAMemoryOfThePastHaveTheLossesOfOneSequence) {
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
TEST(DistanceAttention, TwoSegmentsOfOneLayerHaveTheGradientsOfOneSequenceWithoutThoseThroughMemory) {
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
TEST(DistanceAttention, ReachesBackOverTheMemoryOfEveryLayerAndNoFurther) {
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
TEST(DistanceAttention, DilatedWindowsReachTheirKeysAndNoFurther) {
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
TEST(DistanceAttention, NothingLooksAheadInSinglePrecision) {
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

// Everything that Transformer-XL drops, with masks that stay the same while a weight changes.
TEST(DistanceAttention, GradientsWithDropoutEqualFiniteDifferences) {
  DistanceToy config = transformer_xl_toy();
  config.dropout = 0.2;
  ToyModel<double> toy(config);
  toy.randomise();
  const std::int64_t step = 4;
  toy.context().step = &step;
  toy.context().first_row = 3;
  const std::vector<std::uint8_t> tokens = toy_tokens(2 * config.context);
  toy.remember(earlier_tokens(2 * config.context), 2);
  toy.loss_and_gradients(tokens, 2);
  const std::vector<double> gradients = toy.gradients();
  for (const Parameter& p : toy.model().parameters().all()) {
    const auto i = static_cast<std::size_t>(p.offset + p.shape.count() / 3);
    const double h = 1e-5, before = toy.values()[i];
    const auto loss_at = [&](double value) {
      toy.values()[i] = value;
      return toy.loss_and_gradients(tokens, 2);
    };
    const double difference = (loss_at(before + h) - loss_at(before - h)) / (2 * h);
    toy.values()[i] = before;
    EXPECT_NEAR(gradients[i], difference, 1e-6 * (1 + std::abs(difference))) << p.name;
  }
}

// W_r R of the elements of R that are kept: a mask for all layers and rows, whatever the number of distances.
TEST(DistanceAttention, DropsElementsOfTheSinesAndCosinesOfDistances) {
  constexpr std::int64_t width = 8, heads = 2, size = 3, rows = 7;
  constexpr double p = 0.4;
  ParameterSet parameters;
  DistanceConfig config;
  config.table_dropout = p;
  const DistanceTerm term(parameters, "a", {width, heads, size, 1}, config, {});
  parameters.lay_out();
  std::vector<double> values(static_cast<std::size_t>(parameters.flat_size()));
  std::vector<double> gradients(values.size());
  const Shape flat = {parameters.flat_size()};
  parameters.bind(Tensor(values.data(), Dtype::f64, flat), Tensor(gradients.data(), Dtype::f64, flat));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(i + 1));
  std::vector<std::byte> memory(1 << 16);
  Context ctx;
  ctx.compute = ctx.exact = Dtype::f64;
  ctx.seed = 0x123456789;
  const std::int64_t step = 6;
  const double* weight = parameters.all().front().master.as<const double>();
  for (const bool dropping : {true, false}) {
    ctx.step = dropping ? &step : nullptr;
    Arena arena(memory.data() + (-reinterpret_cast<std::uintptr_t>(memory.data())) % Arena::alignment, 1 << 15);
    ctx.arena = &arena;
    ctx.first_row = 5;  // a row of the batch, which shares the mask
    Scratch scratch(ctx);
    const Tensor table = term.table(ctx, rows, scratch, nullptr);
    ASSERT_EQ(table.shape(), Shape({rows, heads, size}));
    for (std::int64_t t = 0; t < rows; ++t)
      for (std::int64_t o = 0; o < heads * size; ++o) {
        double expected = 0;
        for (std::int64_t i = 0; i < width; ++i) {
          const auto element = static_cast<std::uint64_t>(t * width + i);
          const std::uint32_t word = kernels::philox(ctx.seed, element / 4, step,
                                                     kernels::domain_of(kernels::Purpose::dropout, (1u << 21) + 2))
                                         .word[element % 4];
          const bool kept = !dropping || word >= static_cast<float>(p) * 4294967296.0;
          const double rate = std::pow(10000.0, -2.0 * static_cast<double>(i % (width / 2)) / width);
          const double angle = static_cast<double>(t) * rate;
          const double wave = i < width / 2 ? std::sin(angle) : std::cos(angle);
          if (kept)
            expected += weight[o * width + i] * wave / (dropping ? 1 - static_cast<double>(static_cast<float>(p)) : 1);
        }
        EXPECT_NEAR(table.as<const double>()[t * heads * size + o], expected, 1e-12) << t << " " << o;
      }
  }
}

// Nothing runs for a dropout of 0: the bits are those of a model without the setting.
TEST(DistanceAttention, ADropoutOfZeroCostsNothing) {
  class DropoutCounter : public kernels::Meter {
   public:
    void begin(const kernels::Cost& cost) override { operations += cost.bytes > 0 ? 1 : 0; }
    void end() override {}
    int operations = 0;
  };
  const auto operations = [](double p, bool training) {
    DistanceToy config = Toys<DistanceToy>::without_dropout(transformer_xl_toy());
    config.embedding_dropout = config.output_dropout = config.inner_dropout = config.distance.table_dropout = p;
    ToyModel<float> toy(config);
    const std::int64_t step = 1;
    if (training) toy.context().step = &step;
    DropoutCounter counter;
    toy.context().launch.meter = &counter;
    toy.loss_and_gradients(toy_tokens(config.context), 1);
    return counter.operations;
  };
  const int without = operations(0, true);
  EXPECT_EQ(operations(0.1, false), without) << "without a step nothing is dropped";
  // Forward and backward: the embedding, the output, two activations, and the sinusoid of each of two layers. Both
  // activations leave their products: a pass forward, one backward, and the sums of the bias.
  EXPECT_EQ(operations(0.1, true), without + 2 * (1 + 1 + 2 + 2) + 2 * 3);
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
std::int64_t parameters_of(const DistanceToy& config) { return Decoder(config).parameters().count() - config.width; }

// 41.06M and 277M in Dai et al. 2019 and in the logs of their code; the layers alone have 277.0M.
TEST(DistanceAttention, HasTheParametersOfTransformerXl) {
  EXPECT_EQ(parameters_of(sized(transformer_xl_toy(), 12, 512, 4)), 41055436);
  const DistanceToy large = sized(transformer_xl_toy(), 24, 1024, 3);
  const std::int64_t outside = 204 * 1024 + 204 + 2 * 1024;  // symbols, their biases, and u and v
  EXPECT_EQ(parameters_of(large), 277020672 + outside);
}

// 41M and 102M in Beltagy et al. 2020: Transformer-XL's layers, with a norm behind the last one.
TEST(DistanceAttention, HasTheParametersOfLongformersLanguageModel) {
  EXPECT_EQ(parameters_of(sized(longformer_toy(), 12, 512, 4)), 41055436 + 2 * 512);
  EXPECT_EQ(parameters_of(sized(longformer_toy(), 30, 512, 4)), 41055436 + 18 * 3412480 + 2 * 512);
}

// A product with a weight or for an allowed pair takes two operations per element forward, and twice that backward; a
// pair has a second product, with the vector of its distance. The memory's keys and values need no gradient of the
// memory.
TEST(DistanceAttention, CostCountsEveryWeightAndEveryAllowedPair) {
  const DistanceToy config = transformer_xl_toy();
  const Decoder model(config);
  const double n = 13, m = 13, pairs = 2 * 2 * n * (m + (n + 1) / 2);
  const SequenceCost cost = model.cost(13);
  EXPECT_EQ(cost.allowed_pairs, pairs);
  EXPECT_EQ(cost.dense_pairs, pairs);
  Decoder counted(config);
  EXPECT_DOUBLE_EQ(cost.training_flops, 6 * n * static_cast<double>(counted.parameters().count()) +
                                            4 * m * 2 * 2 * 16 * 16 + 3 * pairs * 2 * (2 * 8 + 8));
  const DistanceToy windows = longformer_toy();
  EXPECT_LT(Decoder(windows).cost(23).allowed_pairs, Decoder(windows).cost(23).dense_pairs / 2);
}

}  // namespace
}  // namespace longstride::test
