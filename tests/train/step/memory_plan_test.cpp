// A batch that does not fit is refused, naming the largest micro-batch that fits.
#include "framework/train/step/memory_plan.h"

#include <gtest/gtest.h>

#include "framework/core/errors.h"
#include "framework/train/step/prefetcher.h"
#include "framework/train/step/training_step.h"
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
    check_fits(model, config, 1, plan_memory(model, config, 1), {free, "free here"});
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(MemoryPlan, RefusesWhatDoesNotFitAndNamesTheLargestMicroBatch) {
  Decoder model(toy_config());
  const TrainConfig whole = config_of(12);
  const auto bytes = [&](std::int64_t micro) { return plan_memory(model, config_of(micro), 1).on_device(); };
  ASSERT_GT(bytes(12), bytes(6));
  ASSERT_GT(bytes(6), bytes(4));
  EXPECT_EQ(refusal(model, whole, bytes(12)), "");
  EXPECT_NE(refusal(model, whole, 0)
                .find(" GiB of memory per rank are needed for 12 sequences at a time, but only "
                      "0.000 are free here; "),
            std::string::npos);
  EXPECT_NE(refusal(model, whole, bytes(12) - 1).find("the largest train.micro_batch that fits is 6"),
            std::string::npos);
  // 5 does not divide 12.
  EXPECT_NE(refusal(model, whole, bytes(6) - 1).find("the largest train.micro_batch that fits is 4"),
            std::string::npos);
  EXPECT_NE(refusal(model, whole, bytes(1) - 1).find("no micro-batch fits"), std::string::npos);
}

// Without dropout branches add their outputs themselves, which takes memory in another order.
TEST(MemoryPlan, AStepTakesWhatIsPlannedWithAndWithoutDropout) {
  for (const double dropout : {0.0, 0.3})
    for (const NormOrder norm : {NormOrder::pre, NormOrder::post})
      for (const Recompute policy :
           {Recompute::none, Recompute::selective, Recompute::block, Recompute::attention_and_feed_forward}) {
        DecoderConfig settings = toy_config();
        settings.context = 64;
        settings.dropout = dropout;
        settings.norm = norm;
        settings.recompute = policy;
        Decoder model(settings);
        const auto comm = make_single_communicator();
        const TrainConfig train = config_of(12);
        TrainingStep step(model, train, *comm, Device::cpu);
        step.start();
        step.run(toy_tokens(12 * settings.context).data());
        step.report();
        EXPECT_EQ(static_cast<std::int64_t>(step.state().arena().high_water()), step.plan().activations)
            << "dropout " << dropout << ", norm " << static_cast<int>(norm) << ", recompute "
            << static_cast<int>(policy);
      }
}

// Neither the ranks nor the GPUs exist here.
TEST(MemoryPlan, RanksAddTransfersAndDivideShardedState) {
  Decoder model(toy_config());
  TrainConfig config = config_of(1);
  const MemoryPlan alone = plan_memory(model, config, 1, Device::cuda);
  EXPECT_EQ(alone.exchange, 0);
  const auto half = static_cast<std::int64_t>(Arena::rounded(static_cast<std::size_t>(alone.gradients / 2)));
  EXPECT_EQ(alone.parameters - alone.gradients, half);  // the low-precision copy
  EXPECT_EQ(alone.libraries, 32 << 20);
  const MemoryPlan two = plan_memory(model, config, 2, Device::cuda);
  EXPECT_EQ(two.exchange, two.parameters - two.gradients);  // gradients travel in bf16
  EXPECT_EQ(two.activations, alone.activations);
  config.parallel.shard = true;
  const MemoryPlan sharded = plan_memory(model, config, 2, Device::cuda);
  const std::int64_t scalars = two.optimizer - 2 * two.gradients;
  EXPECT_EQ(sharded.optimizer, two.gradients + scalars);
  const MemoryPlan on_cpu = plan_memory(model, config, 2, Device::cpu);
  EXPECT_EQ(on_cpu.exchange, 0);
  EXPECT_EQ(on_cpu.parameters, on_cpu.gradients);
  const auto rows = static_cast<std::size_t>(6 * model.context());
  EXPECT_EQ(on_cpu.input, static_cast<std::int64_t>(Prefetcher::bytes_of(rows, prefetch_depth)));
}

}  // namespace
}  // namespace longstride::test
