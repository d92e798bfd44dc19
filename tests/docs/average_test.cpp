// A recipe with the mixer that docs/develop/adding_a_mixer.md adds, after its changes have been made.
#include <gtest/gtest.h>

#include "framework/models/mixes_positions.h"
#include "launch/recipe/recipe.h"
#include "tests/launch/recipe/recipe_texts.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/toy_model.h"

namespace longstride::testing {
namespace {

std::string with_mixers(const std::string& list) {
  return R"(name: averages
data: {kind: bytes, path: x.h5, context: 32}
model: {kind: decoder, layers: 3, width: 16, heads: 2, positions: none, recompute: selective,
  mixers: )" +
         list + R"(}
train: {steps: 20, global_batch: 4, lr: 1.0e-3, warmup: 2}
)";
}

std::string error_of(const std::string& mixers, const std::vector<std::string>& set = {}) {
  return user_error_of([&] { parse_recipe(with_mixers(mixers), "r.yaml", set); });
}

constexpr const char* alternating =
    "[{kind: average, window: [2, 9]}, [{kind: attention, heads: 1, integration: merged, parts: [dense], stride: 8}, "
    "{kind: average, heads: 1, window: 4}]]";

TEST(AddedMixer, IsReadFromARecipe) {
  const Recipe recipe = parse_recipe(with_mixers(alternating), "r.yaml", {});
  EXPECT_NE(recipe.resolved.find("kind: average"), std::string::npos) << recipe.resolved;
  EXPECT_NE(recipe.resolved.find("window: [2, 9]"), std::string::npos) << recipe.resolved;
  EXPECT_EQ(parse_recipe(recipe.resolved, "r.yaml", {}).resolved, recipe.resolved);
  const auto model = recipe.model->make_model();
  const auto& mixes = required<MixesPositions>(*model, "mix");
  EXPECT_EQ(mixes.mixer(2).kind(1), "mean of 9");
  EXPECT_EQ(mixes.mixer(1).summary(), "dense, stride 8 next to averages of 4 positions");
  EXPECT_EQ(mixes.mixer(0).problem_on_gpu(), "");
}

TEST(AddedMixer, MistakesNameTheKeyItsValueAndWhatIsAllowed) {
  EXPECT_EQ(error_of("[{kind: average, window: 4, stride: 2}]"),
            "r.yaml:4: unknown key 'stride' in model.mixers.0; choose from layers, heads, kind, window");
  EXPECT_EQ(error_of("[{kind: average, window: [4, 33]}]"),
            "r.yaml:4: model.mixers.0.window has the value 33, but must be from 1 to data.context, 32");
  EXPECT_EQ(error_of("[{kind: average, window: [4, 4, 4]}]"),
            "r.yaml:4: model.mixers.0.window has 3 values, but must have one for all heads or one for each of 2");
  EXPECT_EQ(
      error_of("[{kind: averag, window: 4}]"),
      "r.yaml:4: model.mixers.0.kind is averag, but must be attention or average or distance or scan; did you mean "
      "'average'?");
  EXPECT_EQ(
      error_of("[{kind: average, window: 4}]", {"parallel.sequence_ranks=2"}),
      "--set parallel.sequence_ranks=2: parallel.sequence_ranks is 2, but model.mixers.0 reads whole sequences; set "
      "it to 1");
}

// Plain descent on one sequence, whose bytes each follow from the three before it.
TEST(AddedMixer, Trains) {
  const Recipe recipe = parse_recipe(with_mixers(alternating), "r.yaml", {});
  test::ToyModel<double> toy(*recipe.model);
  toy.randomise();
  std::vector<std::uint8_t> tokens(static_cast<std::size_t>(recipe.model->context));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::uint8_t>(i < 3 ? i : (tokens[i - 1] + 2 * tokens[i - 3] + 1) % 7);
  double first = 0, last = 0;
  for (int step = 0; step < 60; ++step) {
    std::fill(toy.gradients().begin(), toy.gradients().end(), 0.0);
    last = toy.loss_and_gradients(tokens, 1);
    if (step == 0) first = last;
    for (std::size_t i = 0; i < toy.values().size(); ++i) toy.values()[i] -= 0.01 * toy.gradients()[i];
  }
  EXPECT_LT(last, 0.5 * first);
}

TEST(AddedMixer, TimesItsKernels) {
  const Recipe recipe = parse_recipe(with_mixers("[{kind: average, window: 4}]"), "r.yaml", {});
  test::ToyModel<float> toy(*recipe.model);
  const Mixer& mixer = required<MixesPositions>(toy.model(), "mix").mixer(0);
  toy.run([&](Context& ctx) {
    Scratch scratch(ctx);
    for (const MixerBench& bench : mixer.bench(ctx, scratch, 2, 32)) {
      EXPECT_EQ(bench.name, "average (2, 2, 32, 8)");
      EXPECT_EQ(bench.forward_work.flops, 2 * 2 * 8 * (32 * 4 - 6));
      bench.forward(ctx);
      bench.backward(ctx);
    }
  });
  EXPECT_EQ(toy.planned(), toy.used());
}

}  // namespace
}  // namespace longstride::testing
