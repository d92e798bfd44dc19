// `longstride plan` prints the memory of a training step to the byte.
#include <gtest/gtest.h>

#include <filesystem>

#include "framework/train/step/training_step.h"
#include "launch/recipe/recipe.h"
#include "tests/support/sanitized.h"
#include "tests/support/toy_model.h"

namespace longstride {
namespace {

TEST(PlannedMemory, EqualsTheArenasHighWaterMarkForEveryQuickstartRecipeAndRecomputePolicy) {
  const std::vector<std::string> policies = {"none", "selective", "block", "attention_and_feed_forward"};
  std::size_t recipes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(LONGSTRIDE_SOURCE_DIR "/recipes/quickstart")) {
    ++recipes;
    for (const std::string& policy : policies) {
      if (test::sanitized && policy != policies[recipes % policies.size()]) continue;  // one for every recipe
      const Recipe recipe = read_recipe(entry.path().string(), {"model.recompute=" + policy});
      const auto model = recipe.model->make_model();
      const auto comm = make_single_communicator();
      TrainingStep step(*model, recipe.train, *comm, Device::cpu);
      step.start();
      const MemoryPlan plan = plan_memory(*model, recipe.train, 1);
      TrainingState& state = step.state();
      model->parameters().bind(state.masters, state.gradients);  // planning has unbound them
      step.run(test::toy_tokens(state.batch.tokens.count()).data());
      EXPECT_EQ(static_cast<std::int64_t>(state.arena().high_water()), plan.activations)
          << entry.path() << " " << policy;
      EXPECT_EQ(static_cast<std::int64_t>(state.arena().tape_high_water()), plan.tape) << entry.path() << " " << policy;
      EXPECT_EQ(static_cast<std::int64_t>(state.bytes()), plan.block());
      EXPECT_EQ(state.arena().tape_used() + state.arena().scratch_used(), 0u);
    }
  }
  EXPECT_GE(recipes, policies.size());
}

}  // namespace
}  // namespace longstride
