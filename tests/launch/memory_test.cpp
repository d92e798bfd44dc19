// What `longstride plan` prints is what a training step takes, to the byte.
#include <gtest/gtest.h>

#include <filesystem>

#include "framework/train/training_state.h"
#include "launch/recipe.h"
#include "tests/support/toy_model.h"

namespace longstride {
namespace {

TEST(PlannedMemory, EqualsTheArenasHighWaterMarkForEveryQuickstartRecipeAndRecomputePolicy) {
  int recipes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(LONGSTRIDE_SOURCE_DIR "/recipes/quickstart")) {
    ++recipes;
    for (const char* policy : {"none", "block", "attention_and_feed_forward"}) {
      const Recipe recipe = read_recipe(entry.path().string(), {std::string("model.recompute=") + policy});
      SparseTransformer model(recipe.model);
      const Batching batching = divide_batch(recipe.train, 1);
      const MemoryPlan plan = plan_memory(model, recipe.train, 1);
      TrainingState state(model, plan, batching.micro, recipe.model.context);
      model.parameters().initialise(1);
      Optimizer optimizer(optimizer_config(recipe.train), state.optimizer, model.parameters().decayed_size());
      Context ctx;
      ctx.arena = &state.arena();
      const std::int64_t step = 0;
      ctx.step = &step;
      optimizer.start(ctx, state.masters);
      const std::vector<std::uint8_t> bytes = test::toy_tokens(state.tokens.count());
      std::copy(bytes.begin(), bytes.end(), state.tokens.as<std::uint8_t>());
      model.loss_and_gradients(ctx, state.tokens, 1.0, state.losses);
      optimizer.step(ctx, state.masters, state.gradients);
      EXPECT_EQ(static_cast<std::int64_t>(state.arena().high_water()), plan.activations)
          << entry.path() << " " << policy;
      EXPECT_EQ(static_cast<std::int64_t>(state.arena().tape_high_water()), plan.tape) << entry.path() << " " << policy;
      EXPECT_EQ(state.arena().tape_used() + state.arena().scratch_used(), 0u);
    }
  }
  EXPECT_GE(recipes, 4);
}

}  // namespace
}  // namespace longstride
