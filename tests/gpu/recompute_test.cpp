// model.recompute: automatic on a GPU takes what is free there.
#include "launch/run/recompute.h"

#include "framework/core/device/memory.h"
#include "framework/train/step/training_step.h"
#include "tests/gpu/gpu.h"
#include "tests/launch/recipe/recipe_texts.h"

namespace longstride {
namespace {

constexpr std::int64_t one_gib = std::int64_t{1} << 30;

// Other processes may use the GPU meanwhile, so the amounts are near, not equal.
TEST(RecomputeOnTheGpu, TheLimitIsWhatIsFreeLessAReserve) {
  LONGSTRIDE_NEEDS_GPU();
  const auto free = static_cast<std::int64_t>(device_info().free_bytes);
  const std::int64_t alone = *free_memory(Device::cuda, 1, 1).bytes, among = *free_memory(Device::cuda, 2, 1).bytes;
  EXPECT_NEAR(static_cast<double>(free - alone), one_gib, one_gib / 2);
  EXPECT_NEAR(static_cast<double>(free - among), 2 * one_gib, one_gib / 2);
  const Block taken(Device::cuda, one_gib);
  EXPECT_NEAR(static_cast<double>(alone - *free_memory(Device::cuda, 1, 1).bytes), one_gib, one_gib / 2);
}

TEST(RecomputeOnTheGpu, TheChoiceTrainsInThePlannedMemory) {
  LONGSTRIDE_NEEDS_GPU();
  const auto recipe_of = [](const std::string& policy) {
    return parse_recipe(testing::small_recipe, "r.yaml", {"model.width=64", "model.recompute=" + policy});
  };
  const auto bytes_of = [&](const Recipe& recipe) {
    return plan_memory(*recipe.model->make_model(), recipe.train, 1, Device::cuda).block();
  };
  for (const char* policy : {"none", "selective", "block"}) {
    Recipe recipe = recipe_of("automatic");
    const auto choice = choose_recompute(recipe, 1, Device::cuda, {bytes_of(recipe_of(policy)), "here"});
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->policy.name, policy);
    EXPECT_EQ(recipe.resolved, recipe_of(policy).resolved);
    const auto model = recipe.model->make_model();
    const auto comm = make_single_communicator();
    TrainingStep step(*model, recipe.train, *comm, Device::cuda);
    step.start();
    std::vector<std::uint8_t> rows(static_cast<std::size_t>(step.state().batch.tokens.count()));
    for (int i = 0; i < 3; ++i) step.run(rows.data());
    step.report();
    EXPECT_EQ(static_cast<std::int64_t>(step.state().bytes()), bytes_of(recipe));
    EXPECT_EQ(static_cast<std::int64_t>(step.state().arena().high_water()), step.plan().activations);
  }
}

}  // namespace
}  // namespace longstride
