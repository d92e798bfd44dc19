#include "framework/train/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/distributed/world.h"
#include "tests/train/checkpoint/checkpoint_fixture.h"

namespace longstride {
namespace {

using testing::SmallTraining;
using testing::world;

// Only rank 0 has the run directory, so the others need no shared file system.
TEST(Distributed, ResumingGivesEveryRankTheBitsOfTheCheckpoint) {
  std::unique_ptr<testing::TemporaryDirectory> run;
  if (world().rank() == 0) {
    run = std::make_unique<testing::TemporaryDirectory>();
    testing::save(run->path(), 10);
  }
  SmallTraining loaded, expected;
  const CheckpointState state = resume_from_checkpoint(world(), run ? run->path() : "/nowhere", loaded.tensors());
  expected.fill(10);
  EXPECT_EQ(loaded.bits(), expected.bits());
  EXPECT_EQ(state.step, 10);
  EXPECT_EQ(state.seed, testing::state_at(10).seed);
  EXPECT_EQ(state.tokens_seen, testing::state_at(10).tokens_seen);
  EXPECT_EQ(state.recipe, testing::state_at(10).recipe);
  EXPECT_EQ(state.loss, testing::state_at(10).loss);
}

}  // namespace
}  // namespace longstride
