// What does not fit is refused with the largest micro-batch that does.
#include "framework/train/step/memory_plan.h"

#include <gtest/gtest.h>

#include "framework/core/errors.h"
#include "tests/support/toy_model.h"

namespace longstride::test {
namespace {

TrainConfig config_of(std::int64_t micro) {
  TrainConfig config;
  config.steps = 1;
  config.lr = 1e-3;
  config.global_batch = 12;
  config.micro_batch = micro;
  return config;
}

std::string refusal(Model& model, const TrainConfig& config, std::int64_t free) {
  try {
    check_fits(model, config, 1, plan_memory(model, config, 1), free);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(MemoryPlan, WhatFitsIsNotRefusedAndWhatDoesNotNamesTheLargestMicroBatchThatDoes) {
  SparseTransformer model(toy_config());
  const TrainConfig whole = config_of(12);
  const auto bytes = [&](std::int64_t micro) { return plan_memory(model, config_of(micro), 1).block(); };
  ASSERT_GT(bytes(12), bytes(6));
  ASSERT_GT(bytes(6), bytes(4));
  EXPECT_EQ(refusal(model, whole, bytes(12)), "");
  EXPECT_NE(refusal(model, whole, bytes(12) - 1).find("the largest train.micro_batch that fits is 6"),
            std::string::npos);
  // 5 does not divide 12.
  EXPECT_NE(refusal(model, whole, bytes(6) - 1).find("the largest train.micro_batch that fits is 4"),
            std::string::npos);
  EXPECT_NE(refusal(model, whole, bytes(1) - 1).find("no micro-batch fits"), std::string::npos);
}

}  // namespace
}  // namespace longstride::test
