// A checkpoint written by several writers: their shares add up to the whole, and the result of reading does not depend
// on the division.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>

#include "framework/train/checkpoint/checkpoint_files.h"
#include "framework/train/checkpoint/checkpoint_writer.h"
#include "tests/train/checkpoint/checkpoint_fixture.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
using testing::SmallTraining;
using testing::state_at;
using testing::TemporaryDirectory;

// The parts of whole tensors that a share holds.
TrainingTensors held(SmallTraining& all, const CheckpointShare& share, std::vector<float>& memory) {
  memory.clear();
  const auto take = [&](const Tensor& flat, const std::vector<FlatRange>& ranges) {
    for (const FlatRange& r : ranges)
      memory.insert(memory.end(), flat.as<float>() + r.begin, flat.as<float>() + r.begin + r.count);
  };
  take(all.m, share.moments);
  take(all.v, share.moments);
  take(all.ema, share.average);
  TrainingTensors tensors{all.parameters, all.masters, {}, {}, {}};
  const std::int64_t moments = elements_of(share.moments), average = elements_of(share.average);
  if (moments > 0) tensors.m = Tensor(memory.data(), Dtype::f32, {moments});
  if (moments > 0) tensors.v = Tensor(memory.data() + moments, Dtype::f32, {moments});
  if (average > 0) tensors.ema = Tensor(memory.data() + 2 * moments, Dtype::f32, {average});
  return tensors;
}

void expect_the_bits_from(const std::vector<CheckpointShare>& shares) {
  const TemporaryDirectory run;
  SmallTraining saved(Dtype::f32, 33), loaded(Dtype::f32, 33);
  saved.fill(0.1);
  const auto directory = begin_checkpoint(run.path(), 7);
  std::map<std::string, FileDigest> files;
  std::vector<float> memory;
  for (const CheckpointShare& share : shares)
    files.merge(write_share(directory->path(), 7, held(saved, share, memory), share));
  commit_checkpoint(run.path(), state_at(7), files, *directory, 3);
  EXPECT_EQ(load_newest_checkpoint(run.path(), loaded.tensors()).step, 7);
  EXPECT_EQ(loaded.bits(), saved.bits());
  SmallTraining average(Dtype::f32, 33);
  load_weights(run.path(), average.parameters, true);
  EXPECT_EQ(std::memcmp(average.masters.data(), saved.ema.data(), saved.ema.bytes()), 0);
}

TEST(CheckpointShares, OfAnyNumberOfWritersAreTheWhole) {
  const std::int64_t flat = SmallTraining(Dtype::f32, 33).parameters.flat_size();
  for (int writers : {1, 2, 3, 4, 5, 7, 16, 64}) {
    std::vector<CheckpointShare> shares;
    for (int w = 0; w < writers; ++w) shares.push_back(share_of_writer(w, writers, flat, true));
    expect_the_bits_from(shares);
  }
}

TEST(CheckpointShares, AreEvenUnlessTheModelAloneIsMore) {
  const std::int64_t flat = std::int64_t{152} << 20;
  ParameterSet parameters;
  parameters.add("weight", {152, 1 << 20}, {});
  parameters.lay_out();
  const Tensor weights(nullptr, Dtype::f32, {flat});
  for (const bool average : {false, true}) {
    const TrainingTensors planned{parameters, weights, weights, weights, average ? weights : Tensor()};
    for (int writers : {1, 2, 3, 4, 8, 64}) {
      const std::int64_t all = (average ? 4 : 3) * flat;
      std::int64_t sum = 0, most = 0;
      for (int w = 0; w < writers; ++w) {
        const CheckpointShare s = share_of_writer(w, writers, flat, average);
        const std::int64_t mine = (s.model ? flat : 0) + elements_of(s.average) + 2 * elements_of(s.moments);
        sum += mine;
        most = std::max(most, mine);
      }
      EXPECT_EQ(sum, all);
      EXPECT_LE(most, std::max(flat, all / writers + 4 * ParameterSet::alignment)) << writers << average;
      EXPECT_EQ(snapshot_bytes(writers, planned), 4 * most) << writers << average;
    }
  }
}

// Pieces of buckets, as in a sharded optimizer: several ranges per rank, which cut parameters anywhere.
TEST(CheckpointShares, OfOwnersOfScatteredRangesAreTheWhole) {
  const std::int64_t flat = SmallTraining(Dtype::f32, 33).parameters.flat_size();
  ASSERT_EQ(flat % 64, 0);
  for (int ranks : {2, 4}) {
    std::vector<CheckpointShare> shares;
    for (int r = 0; r < ranks; ++r) {
      std::vector<FlatRange> owned;
      for (std::int64_t bucket = 0; bucket < flat; bucket += 64) owned.push_back({bucket + r * 64 / ranks, 64 / ranks});
      shares.push_back(share_of_owner(r, ranks, owned, true));
    }
    expect_the_bits_from(shares);
  }
}

TEST(CheckpointShares, AMissingOrForeignPartIsNoticed) {
  const TemporaryDirectory run;
  SmallTraining saved(Dtype::f32, 33), loaded(Dtype::f32, 33);
  saved.fill(0.1);
  const std::int64_t flat = saved.parameters.flat_size();
  const auto directory = begin_checkpoint(run.path(), 7);
  std::map<std::string, FileDigest> files;
  std::vector<float> memory;
  for (int w : {0, 1, 2, 3, 4}) {
    const CheckpointShare share = share_of_writer(w, 6, flat, true);
    files.merge(write_share(directory->path(), 7, held(saved, share, memory), share));
  }
  commit_checkpoint(run.path(), state_at(7), files, *directory, 3);
  const std::string message = testing::user_error_of([&] { load_newest_checkpoint(run.path(), loaded.tensors()); });
  EXPECT_NE(message.find("elements of 'm."), std::string::npos) << message;
}

TEST(CheckpointWriter, WritesWhatWasThereWhenItBegan) {
  const TemporaryDirectory run;
  const auto comm = make_single_communicator();
  SmallTraining training, expected, loaded;
  CheckpointWriter writer(*comm, {run.path(), 3}, training.tensors(), Queue());
  EXPECT_EQ(static_cast<std::int64_t>(writer.bytes()), snapshot_bytes(1, training.tensors()));
  for (std::int64_t step : {10, 20}) {
    training.fill(static_cast<double>(step));
    expected.fill(static_cast<double>(step));
    writer.begin(state_at(step));
    training.fill(99);  // training continues
    writer.poll();
    EXPECT_NE(writer.committed(), step);
    writer.finish();
    EXPECT_EQ(writer.committed(), step);
    EXPECT_FALSE(writer.under_way());
    EXPECT_EQ(load_newest_checkpoint(run.path(), loaded.tensors()).step, step);
    EXPECT_EQ(loaded.bits(), expected.bits());
  }
}

TEST(CheckpointWriter, FailsAtTheNextCallAndLeavesTheEarlierOnes) {
  const TemporaryDirectory run;
  const auto comm = make_single_communicator();
  SmallTraining training;
  training.fill(1);
  CheckpointWriter writer(*comm, {run.path(), 3}, training.tensors(), Queue());
  writer.begin(state_at(1));
  writer.finish();
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit;
  getrlimit(RLIMIT_FSIZE, &old_limit);
  const rlimit small = {700, old_limit.rlim_max};  // the model fits, the optimizer does not
  setrlimit(RLIMIT_FSIZE, &small);
  writer.begin(state_at(2));
  const std::string message = testing::user_error_of([&] { writer.finish(); });
  setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_NE(message.find("the checkpoint of step 2 cannot be saved: "), std::string::npos) << message;
  EXPECT_NE(message.find("the last checkpoint is step 1"), std::string::npos) << message;
  EXPECT_NE(message.find("cannot write: File too large"), std::string::npos) << message;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints"))
    EXPECT_EQ(entry.path().filename().string(), "step-00000001");
}

}  // namespace
}  // namespace longstride
