// Adaptive softmax and input: a vocabulary in bands. That gradients, memory, decoding and documents are those of any
// other decoder is in the properties, and values in the golden vectors.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/support/toy_model.h"

namespace longstride::test::bands_test {
namespace {

std::map<std::string, Shape> shapes_of(const DecoderConfig& config) {
  std::map<std::string, Shape> shapes;
  const auto model = config.make_model();
  for (const Parameter& p : model->parameters().all())
    if (p.name.starts_with("embedding.token") || p.name.starts_with("output")) shapes.emplace(p.name, p.shape);
  return shapes;
}

// Rows that differ in their last id.
TEST(Bands, ProbabilitiesOfAllIdsAddUpToOne) {
  for (const auto& [name, config] : bands_of(toy_config())) {
    ToyModel<double> toy(config);
    toy.randomise();
    const std::vector<std::uint8_t> row = toy_tokens(config.context);
    std::vector<std::uint8_t> rows;
    for (int id = 0; id < 256; ++id) {
      rows.insert(rows.end(), row.begin(), row.end());
      rows.back() = static_cast<std::uint8_t>(id);
    }
    const std::vector<double> losses = toy.losses(rows, 256);
    double total = 0;
    for (std::size_t id = 1; id <= 256; ++id) total += std::exp(-losses[id * row.size() - 1]);
    EXPECT_NEAR(total, 1, 1e-12) << name;
  }
}

// Tied ends share the tables and the projections of later bands.
TEST(Bands, HaveTheTablesOfTheirEnds) {
  const auto configs = bands_of(toy_config());
  EXPECT_EQ(shapes_of(configs[0].config), (std::map<std::string, Shape>{{"embedding.token.weight", {258, 16}},
                                                                        {"output.0.bias", {62}},
                                                                        {"output.1.bias", {90}},
                                                                        {"output.2.bias", {106}}}));
  EXPECT_EQ(shapes_of(configs[1].config),
            (std::map<std::string, Shape>{{"embedding.token.0.weight", {93, 16}},
                                          {"embedding.token.0.projection.weight", {16, 16}},
                                          {"embedding.token.1.weight", {1, 8}},
                                          {"embedding.token.1.projection.weight", {16, 8}},
                                          {"embedding.token.2.weight", {109, 4}},
                                          {"embedding.token.2.projection.weight", {16, 4}},
                                          {"embedding.token.3.weight", {56, 2}},
                                          {"embedding.token.3.projection.weight", {16, 2}},
                                          {"output.projection.weight", {16, 16}},
                                          {"output.0.bias", {93}},
                                          {"output.1.bias", {1}},
                                          {"output.2.bias", {109}},
                                          {"output.3.bias", {56}}}));
  EXPECT_EQ(shapes_of(configs[2].config),
            (std::map<std::string, Shape>{{"embedding.token.0.weight", {128, 16}},
                                          {"embedding.token.0.projection.weight", {16, 16}},
                                          {"embedding.token.1.weight", {128, 4}},
                                          {"embedding.token.1.projection.weight", {16, 4}},
                                          {"output.0.weight", {129, 16}},
                                          {"output.0.projection.weight", {16, 16}},
                                          {"output.1.weight", {128, 4}},
                                          {"output.1.projection.weight", {16, 4}}}));
}

// A band that is neither read nor asked has no gradient, but for the clusters in the first.
TEST(Bands, OnlyThoseOfATextLearnFromIt) {
  DecoderConfig config = bands_of(toy_config())[1].config;
  ToyModel<double> toy(config);
  toy.randomise();
  std::vector<std::uint8_t> tokens = toy_tokens(config.context);
  for (std::uint8_t& id : tokens) id = static_cast<std::uint8_t>(91 + id % 109);  // the third band
  toy.loss_and_gradients(tokens, 1);
  for (const Parameter& p : toy.model().parameters().all()) {
    double most = 0;
    for (std::int64_t i = p.offset; i < p.offset + p.shape.count(); ++i)
      most = std::max(most, std::abs(toy.gradients()[static_cast<std::size_t>(i)]));
    const std::string_view name = p.name;
    const bool of_others = name.find(".1.") != name.npos || name.find(".3.") != name.npos;
    if (name.starts_with("layers.")) continue;
    EXPECT_EQ(most > 0, !of_others) << p.name;
  }
}

// A weight is of a target, whichever band it is in.
TEST(Bands, WeightsMultiplyBothLossesOfATarget) {
  for (const auto& [name, config] : bands_of(toy_config())) {
    ToyModel<double> toy(config);
    toy.randomise();
    const std::vector<std::uint8_t> tokens = toy_tokens(config.context);
    const std::vector<double> plain = toy.losses(tokens, 1);
    std::vector<double> weighted(tokens.size());
    std::vector<float> weights;
    for (std::size_t i = 0; i < tokens.size(); ++i) weights.push_back(0.5F * static_cast<float>(i % 4));
    toy.with_batch(tokens, 1, [&](const Batch& rows, const Shape& shape) {
      Batch batch = rows;
      batch.weights = Tensor(weights.data(), Dtype::f32, shape);
      const Tensor out(weighted.data(), Dtype::f64, shape);
      toy.run([&](Context& ctx) { toy.model().losses(ctx, batch, out); });
    });
    for (std::size_t i = 0; i < tokens.size(); ++i)
      EXPECT_NEAR(weighted[i], static_cast<double>(weights[i]) * plain[i], 1e-12) << name << " at " << i;
  }
}

// Zero tables would have no gradient behind zero projections.
TEST(Bands, StartAtTheLogarithmOfIdsAndClustersAndLearn) {
  DecoderConfig config = bands_of(toy_config())[2].config;  // 128 ids and a cluster; then 128 ids
  ToyModel<double> toy(config);
  toy.model().parameters().initialise(1);
  const std::vector<std::uint8_t> tokens = toy_tokens(config.context);
  const std::vector<double> losses = toy.losses(tokens, 1);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    EXPECT_NEAR(losses[i], std::log(129.0) + (tokens[i] < 128 ? 0 : std::log(128.0)), 1e-9) << i;
  toy.loss_and_gradients(tokens, 1);
  for (const Parameter& p : toy.model().parameters().all()) {
    if (p.name != "output.0.weight" && p.name != "output.1.weight") continue;
    double most = 0;
    for (std::int64_t i = p.offset; i < p.offset + p.shape.count(); ++i)
      most = std::max(most, std::abs(toy.gradients()[static_cast<std::size_t>(i)]));
    EXPECT_GT(most, 1e-3) << p.name;
  }
}

}  // namespace
}  // namespace longstride::test::bands_test
