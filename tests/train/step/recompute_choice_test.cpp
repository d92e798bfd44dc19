// The planner takes the fastest recompute policy that fits, to the byte.
#include "framework/train/step/recompute_choice.h"

#include <gtest/gtest.h>

#include "tests/support/toy_model.h"

namespace longstride::test::recompute_choice_test {
namespace {

DecoderConfig config_of(Recompute recompute) {
  DecoderConfig config = toy_config();
  config.layers = 6;
  config.context = 64;
  config.recompute = recompute;
  return config;
}

TrainConfig train_config() {
  TrainConfig config;
  config.steps = 1;
  config.lr = 1e-3;
  config.global_batch = 8;
  return config;
}

std::int64_t bytes_of(Recompute recompute, Device device, int ranks = 1) {
  Decoder model(config_of(recompute));
  const MemoryPlan plan = plan_memory(model, train_config(), ranks, device);
  return device == Device::cpu ? plan.total() : plan.block();
}

RecomputeChoice choice(std::optional<std::int64_t> limit, Device device = Device::cpu, int ranks = 1) {
  const auto chosen = choose_recompute(config_of(Recompute::automatic), train_config(), ranks, device, {limit, "here"});
  EXPECT_TRUE(chosen);
  EXPECT_EQ(chosen->policy.config->recompute_policies().size(), 1U) << "still to be chosen";
  EXPECT_EQ(chosen->policy.config->recompute_policies().front().name, chosen->policy.name);
  EXPECT_EQ(chosen->policy.config->context, 64);
  return *chosen;
}

TEST(RecomputeChoice, IsTheFirstPolicyThatFits) {
  for (const Device device : {Device::cpu, Device::cuda})
    for (const int ranks : {1, 2}) {
      const std::int64_t none = bytes_of(Recompute::none, device, ranks),
                         selective = bytes_of(Recompute::selective, device, ranks),
                         block = bytes_of(Recompute::block, device, ranks);
      ASSERT_GT(none, selective);
      ASSERT_GT(selective, block);
      EXPECT_EQ(choice(none, device, ranks).policy.name, "none");
      EXPECT_EQ(choice(none - 1, device, ranks).policy.name, "selective");
      EXPECT_EQ(choice(selective, device, ranks).policy.name, "selective");
      EXPECT_EQ(choice(selective - 1, device, ranks).policy.name, "block");
      EXPECT_EQ(choice(block, device, ranks).policy.name, "block");
    }
}

TEST(RecomputeChoice, SaysTheLimitAndWhatWasTried) {
  constexpr std::int64_t plenty = std::int64_t{3} << 30;
  EXPECT_EQ(choice(plenty).text, "none: everything is kept; chosen for 3.00 GiB (here): none takes 0.00");
  EXPECT_EQ(choice(1).text,
            "block: keeps the residual stream between layers; chosen as the smallest, although it exceeds 0.00 GiB "
            "(here): none takes 0.00, selective takes 0.00, block takes 0.00");
}

TEST(RecomputeChoice, IsTheFastestWhereTheLimitIsNotKnown) {
  EXPECT_EQ(choice(std::nullopt).policy.name, "none");
  EXPECT_NE(choice(std::nullopt).text.find("chosen because the free memory is not known here"), std::string::npos);
}

TEST(RecomputeChoice, LeavesAPolicyThatTheRecipeNames) {
  for (const auto& [recompute, name] : {std::pair{Recompute::none, "none"},
                                        {Recompute::selective, "selective"},
                                        {Recompute::block, "block"},
                                        {Recompute::attention_and_feed_forward, "attention_and_feed_forward"}}) {
    const auto chosen = choose_recompute(config_of(recompute), train_config(), 1, Device::cpu, {1, "here"});
    ASSERT_TRUE(chosen);
    EXPECT_EQ(chosen->policy.name, name);
    EXPECT_EQ(chosen->text, name + (": " + chosen->policy.summary));
  }
}

TEST(RecomputeChoice, AStepNeedsOne) {
  Decoder model(config_of(Recompute::automatic));
  EXPECT_THROW(plan_memory(model, train_config(), 1), InternalError);
}

}  // namespace
}  // namespace longstride::test::recompute_choice_test
