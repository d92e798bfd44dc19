// Decoders with a compressed memory (Rae et al. 2020).
#include "framework/models/decoder/decoder.h"
#include "tests/support/distance_toys.h"
#include "tests/support/model_properties.h"

namespace longstride::test {

// The choice of rows depends on an order, which rounding may change: not for tests that compare within it.
struct MostUsedToy : DistanceToy {
  explicit MostUsedToy(const DistanceToy& config) : DistanceToy(config) {}
};
template <>
struct Toys<MostUsedToy> {
  static std::vector<NamedConfig<MostUsedToy>> configs() {
    DistanceToy published = compressive_toy(Compression::most_used), house = house_compressive_toy();
    house.memory.compress = Compression::most_used;
    return {{"most_used", MostUsedToy(published)}, {"house_most_used", MostUsedToy(house)}};
  }
  static std::vector<MostUsedToy> recompute_policies(const MostUsedToy& config) {
    std::vector<MostUsedToy> all;
    for (const DistanceToy& policy : Toys<DistanceToy>::recompute_policies(config)) all.emplace_back(policy);
    return all;
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(MostUsed, ModelProperties, MostUsedToy);

namespace {

constexpr Compression all_compressions[] = {Compression::mean, Compression::max, Compression::convolution,
                                            Compression::dilated, Compression::most_used};

// Segment `number` of a text of one row.
std::vector<std::uint8_t> segment_of(const std::vector<std::uint8_t>& text, std::int64_t length, std::int64_t number) {
  return {text.begin() + number * length, text.begin() + (number + 1) * length};
}

// The losses of the last segment of one row that starts a stream.
std::vector<double> losses_of_last(ToyModel<double>& toy, const std::vector<std::uint8_t>& text) {
  const std::int64_t length = toy.model().context(), segments = std::ssize(text) / length;
  toy.forget();
  for (std::int64_t s = 0; s + 1 < segments; ++s) toy.remember(segment_of(text, length, s), 1);
  return toy.losses(segment_of(text, length, segments - 1), 1);
}

// A layer sees the memory and `rate` positions for each row of the compressed memory; the first of all positions reads
// the byte before it.
TEST(Compressive, ReachesBackOverBothMemoriesOfEveryLayerAndNoFurther) {
  for (const Compression compress : {Compression::convolution, Compression::dilated, Compression::mean}) {
    DistanceToy config = compressive_toy(compress);
    config.context = 4;
    config.memory = {.length = 8, .compressed = 4, .rate = 2, .compress = compress};
    constexpr std::int64_t segments = 11;
    const std::int64_t start = (segments - 1) * config.context,
                       nearest = start - config.layers * (config.memory.length + 2 * config.memory.compressed);
    ASSERT_GT(nearest, 2);
    ToyModel<double> toy(config);
    toy.randomise();
    std::vector<std::uint8_t> text = toy_tokens(segments * config.context);
    const std::vector<double> before = losses_of_last(toy, text);
    for (std::int64_t at = 0; at < start; ++at) {
      const auto i = static_cast<std::size_t>(at);
      text[i] = static_cast<std::uint8_t>(text[i] + 1);
      EXPECT_EQ(losses_of_last(toy, text) != before, at >= nearest - 1) << at;
      text[i] = static_cast<std::uint8_t>(text[i] - 1);
    }
  }
}

// Before any row is compressed it is a model with a memory alone, and afterwards it is not.
TEST(Compressive, IsTransformerXlUntilTheMemoryIsFull) {
  for (const Compression compress : all_compressions) {
    const DistanceToy config = compressive_toy(compress);
    DistanceToy plain = config;
    plain.memory = {.length = config.memory.length};
    ToyModel<double> toy(config), without(plain);
    for (auto* t : {&toy, &without}) t->randomise();
    for (Parameter& p : toy.model().parameters().all())  // random numbers are drawn per tensor
      for (const Parameter& other : without.model().parameters().all())
        if (p.name == other.name) std::copy_n(other.master.as<const double>(), p.shape.count(), p.master.as<double>());
    for (const std::int64_t segments : {1, 2, 3}) {
      const std::vector<std::uint8_t> text = toy_tokens(segments * config.context);
      const std::vector<double> found = losses_of_last(toy, text), expected = losses_of_last(without, text);
      double difference = 0;
      for (std::size_t i = 0; i < found.size(); ++i)
        difference = std::max(difference, std::abs(found[i] - expected[i]));
      if (segments < 3) {
        EXPECT_LT(difference, 1e-12) << segments;
      } else {
        EXPECT_GT(difference, 1e-6) << segments;
      }
    }
  }
}

// The gradients after four segments of two rows, and the reconstruction loss if it is asked for.
struct Trained {
  std::vector<double> gradients;
  double auxiliary = 0;
};
Trained trained(ToyModel<double>& toy, bool with) {
  const std::int64_t n = toy.model().context();
  toy.forget();
  for (std::uint64_t s = 0; s < 3; ++s) toy.remember(toy_tokens(2 * n, 20 + s), 2);
  std::fill(toy.gradients().begin(), toy.gradients().end(), 0.0);
  double sum = 0;
  if (with) toy.context().auxiliary = {Tensor(&sum, Dtype::f64, {1}), 1};
  toy.loss_and_gradients(toy_tokens(2 * n), 2);
  toy.context().auxiliary = {};
  return {toy.gradients(), sum};
}

// All that leaves the memory and the segment that replaces it must be of one.
TEST(Compressive, WindowsOfSeveralDocumentsHaveNoReconstructionLoss) {
  DistanceToy config = Toys<DistanceToy>::without_dropout(compressive_toy());
  ToyModel<double> joined(config);
  config.documents = {true, true};
  ToyModel<double> toy(config);
  for (auto* t : {&joined, &toy}) t->randomise();
  const std::int64_t n = config.context;
  const double whole = trained(joined, true).auxiliary;
  EXPECT_GT(whole, 0);
  const auto loss_of = [&](std::int64_t begins) {
    toy.set_documents({0, begins, 4 * n});
    return trained(toy, true).auxiliary;
  };
  EXPECT_EQ(loss_of(0), whole);
  EXPECT_GT(loss_of(2 * n), 0);
  for (const std::int64_t begins : {2 * n + 1, 3 * n, 3 * n + 5, 4 * n - 1}) EXPECT_EQ(loss_of(begins), 0) << begins;
}

TEST(Compressive, TheMainLossTrainsEverythingButTheCompressionAndTheReconstructionLossNothingElse) {
  for (const DistanceToy& config :
       {compressive_toy(Compression::convolution), compressive_toy(Compression::dilated), house_compressive_toy()}) {
    ToyModel<double> toy(config);
    toy.randomise();
    const Trained without = trained(toy, false), with = trained(toy, true);
    EXPECT_GT(with.auxiliary, 0);
    for (const Parameter& p : toy.model().parameters().all()) {
      const auto of = [&](const Trained& t) {
        return std::vector<double>(t.gradients.begin() + p.offset, t.gradients.begin() + p.offset + p.shape.count());
      };
      if (!p.name.ends_with(".compress.weight")) {
        EXPECT_EQ(of(with), of(without)) << p.name;
        continue;
      }
      EXPECT_EQ(of(without), std::vector<double>(static_cast<std::size_t>(p.shape.count()), 0.0)) << p.name;
      EXPECT_NE(of(with), of(without)) << p.name;
    }
  }
}

// In every layer, with normalised queries and keys too.
TEST(Compressive, TheCompressionsGradientsEqualFiniteDifferencesOfTheReconstructionLoss) {
  for (const DistanceToy& config :
       {compressive_toy(Compression::convolution), compressive_toy(Compression::dilated), house_compressive_toy()}) {
    ToyModel<double> toy(config);
    toy.randomise();
    // The memory depends on the weight as well, but is a constant of the step.
    const std::int64_t n = config.context;
    for (std::uint64_t s = 0; s < 3; ++s) toy.remember(toy_tokens(2 * n, 20 + s), 2);
    const std::vector<std::uint8_t> tokens = toy_tokens(2 * n);
    double sum = 0;
    toy.context().auxiliary = {Tensor(&sum, Dtype::f64, {1}), 1};
    const auto loss = [&] {
      sum = 0;
      toy.loss_and_gradients(tokens, 2);
      return sum;
    };
    std::fill(toy.gradients().begin(), toy.gradients().end(), 0.0);
    loss();
    const std::vector<double> gradients = toy.gradients();
    for (const Parameter& p : toy.model().parameters().all()) {
      if (!p.name.ends_with(".compress.weight")) continue;
      for (const std::int64_t i : {std::int64_t{0}, p.shape.count() / 3, p.shape.count() - 1}) {
        double& x = toy.values()[static_cast<std::size_t>(p.offset + i)];
        const double h = 1e-5, before = x;
        x = before + h;
        const double above = loss();
        x = before - h;
        const double below = loss();
        x = before;
        const double difference = (above - below) / (2 * h);
        EXPECT_NEAR(gradients[static_cast<std::size_t>(p.offset + i)], difference, 1e-8 * (1 + std::abs(difference)))
            << p.name << "[" << i << "]";
      }
    }
    toy.context().auxiliary = {};
  }
}

// Transformer-XL's 277.0 million (24 layers) and a convolution of three rows in every layer.
TEST(Compressive, HasTheParametersOfTransformerXlAndOfItsConvolutions) {
  DistanceToy config = compressive_toy(Compression::convolution);
  config.layers = 24;
  config.width = 1024;
  config.heads = 8;
  config.feed_forward_ratio = 3;
  const std::int64_t with = Decoder(config).parameters().count();
  config.memory = {.length = 12};
  EXPECT_EQ(with - Decoder(config).parameters().count(), 24 * 3 * 1024 * 1024);
}

// The compression's weight is applied twice, to make rows for the memory and for the loss, and has a gradient; the loss
// projects n / 3 rows to keys and values and back, and takes attention of n queries to n and n / 3 rows, and the
// gradients of the latter.
TEST(Compressive, CostCountsTheCompressionAndItsLoss) {
  const DistanceToy config = compressive_toy(Compression::convolution);
  DistanceToy mean = config;
  mean.memory.compress = Compression::mean;
  constexpr double n = 12, rows = n / 3, layers = 2, width = 16, kv = 2 * width;
  const double products =
      layers * (3 * width * 3 * width * rows + 2 * width * kv * rows + n * (kv * n + (2 * width + 3 * width) * rows));
  EXPECT_NEAR(Decoder(config).cost(12).training_flops - Decoder(mean).cost(12).training_flops, 2 * products,
              1e-6 * products);
  const double seen = 12 + 8, pairs = layers * 2 * n * (seen + (n + 1) / 2);
  EXPECT_EQ(Decoder(config).cost(12).allowed_pairs, pairs);
}

}  // namespace
}  // namespace longstride::test
