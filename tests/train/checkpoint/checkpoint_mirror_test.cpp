// A second copy of each checkpoint is as good as the first.
#include "framework/train/checkpoint/checkpoint_mirror.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <fstream>
#include <sstream>

#include "framework/core/files/files.h"
#include "framework/train/checkpoint/checkpoint_writer.h"
#include "framework/train/checkpoint/run_id.h"
#include "tests/train/checkpoint/checkpoint_fixture.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
using testing::directory_of;
using testing::resumed_step;
using testing::save;
using testing::TemporaryDirectory;
using testing::user_error_of;

// A run with two checkpoints and their copies.
class CheckpointMirror : public ::testing::Test {
 protected:
  CheckpointMirror() {
    for (const std::int64_t step : {10, 20}) {
      save(run.path(), step);
      mirror_checkpoint(run.path(), step, mirror.path(), 0);
    }
  }
  static void damage(const std::string& directory, std::int64_t step) {
    std::fstream file(directory_of(directory, step) + "/model.safetensors", std::ios::in | std::ios::out);
    file.seekp(-3, std::ios::end);
    file.put('!');
  }
  TemporaryDirectory run, mirror;
};

TEST_F(CheckpointMirror, HoldsTheSameFiles) {
  for (const auto& entry : fs::recursive_directory_iterator(run.path())) {
    if (!entry.is_regular_file()) continue;
    EXPECT_EQ(read_file(entry.path().string()), read_file(mirror / fs::relative(entry.path(), run.path()).string()));
  }
  EXPECT_EQ(resumed_step(mirror.path()), 20);
}

TEST_F(CheckpointMirror, KeepsAsManyAsTheRun) {
  save(run.path(), 30);
  mirror_checkpoint(run.path(), 30, mirror.path(), 2);
  EXPECT_EQ(checkpoint_steps(mirror.path()), (std::vector<std::int64_t>{20, 30}));
}

TEST_F(CheckpointMirror, RestoresWhatTheRunHasLost) {
  EXPECT_EQ(restore_from_mirror(run.path(), mirror.path()), std::nullopt);  // nothing is lost
  fs::remove_all(directory_of(run.path(), 20));
  EXPECT_EQ(restore_from_mirror(run.path(), mirror.path()), 20);
  EXPECT_EQ(resumed_step(run.path()), 20);
  damage(run.path(), 20);
  EXPECT_EQ(restore_from_mirror(run.path(), mirror.path()), 20);
  EXPECT_EQ(resumed_step(run.path()), 20);
  const TemporaryDirectory empty;
  EXPECT_EQ(restore_from_mirror(empty.path(), mirror.path()), 20);
  EXPECT_EQ(resumed_step(empty.path()), 20);
}

TEST_F(CheckpointMirror, ADamagedCopyIsSkipped) {
  damage(mirror.path(), 20);
  EXPECT_EQ(restore_from_mirror(run.path(), mirror.path()), std::nullopt);
  damage(run.path(), 20);
  EXPECT_EQ(restore_from_mirror(run.path(), mirror.path()), std::nullopt);  // both have step 10
  damage(run.path(), 10);
  EXPECT_EQ(restore_from_mirror(run.path(), mirror.path()), 10);
  EXPECT_EQ(resumed_step(run.path()), 10);
}

TEST_F(CheckpointMirror, ADamagedCheckpointIsNotCopied) {
  save(run.path(), 30);
  damage(run.path(), 30);
  const std::string message = user_error_of([&] { mirror_checkpoint(run.path(), 30, mirror.path(), 0); });
  EXPECT_NE(message.find("model.safetensors: its content does not match its checksum"), std::string::npos) << message;
  EXPECT_EQ(checkpoint_steps(mirror.path()), (std::vector<std::int64_t>{10, 20}));
}

// The run has its checkpoint, and the user is warned that there is no second copy.
TEST_F(CheckpointMirror, AFailedCopyIsAWarning) {
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_st>(log)));
  write_file_atomically(mirror / "file", "");
  const auto comm = make_single_communicator();
  testing::SmallTraining training;
  CheckpointWriter writer(*comm, {run.path(), 0, mirror / "file/folder"}, training.tensors(), Queue(), 20);
  writer.begin(testing::state_at(30));
  writer.finish();
  spdlog::set_default_logger(before);
  EXPECT_EQ(writer.committed(), 30);
  EXPECT_EQ(newest_whole_step(run.path()), 30);
  EXPECT_NE(log.str().find("the checkpoint of step 30 has no second copy: "), std::string::npos) << log.str();
}

// Whose mirrors have the same name, and which a resumed run is told to share.
TEST_F(CheckpointMirror, AnotherRunsCheckpointsAreNotTaken) {
  const TemporaryDirectory own, other;
  save(own.path(), 10, 0, "aaaa");
  save(other.path(), 20, 0, "bbbb");
  const std::string message = user_error_of([&] { restore_from_mirror(own.path(), other.path()); });
  EXPECT_EQ(message,
            other.path() + ": holds checkpoints of another run than " + own.path() +
                " (run_id bbbb... and aaaa...); choose another folder with train.mirror, or move that one away");
  EXPECT_EQ(checkpoint_steps(own.path()), (std::vector<std::int64_t>{10}));
  EXPECT_NE(user_error_of([&] { mirror_checkpoint(own.path(), 10, other.path(), 1); }), "");
  EXPECT_EQ(checkpoint_steps(other.path()), (std::vector<std::int64_t>{20}));
}

TEST_F(CheckpointMirror, CheckpointsOfTwoRunsInOneDirectoryAreNoticed) {
  const TemporaryDirectory own;
  save(own.path(), 10, 0, "aaaa");
  save(own.path(), 20, 0, "bbbb");
  EXPECT_EQ(user_error_of([&] { id_of_run(own.path(), ""); }),
            own.path() +
                ": its checkpoints of steps 10 and 20 are of two runs (run_id aaaa... and bbbb...); move those "
                "of one away");
}

TEST_F(CheckpointMirror, RunsOfBeforeHaveNoIdAndAreTaken) {
  EXPECT_EQ(id_of_run(run.path(), mirror.path()), "");
  save(run.path(), 30, 0, "aaaa");  // resumed by this version, while its mirror is not there
  EXPECT_EQ(id_of_run(run.path(), mirror.path()), "aaaa");
  fs::remove_all(directory_of(run.path(), 30));
  save(mirror.path(), 30, 0, "aaaa");  // the newest copy is all that is left
  EXPECT_EQ(id_of_run(run.path(), mirror.path()), "aaaa");
  EXPECT_EQ(restore_from_mirror(run.path(), mirror.path()), 30);
  mirror_checkpoint(run.path(), 30, mirror.path(), 0);
  const TemporaryDirectory lost;
  EXPECT_EQ(id_of_run(lost.path(), mirror.path()), "aaaa");
}

// The mirror would have the run's id if it were the run's.
TEST_F(CheckpointMirror, AMirrorOfBeforeThatIsNewerThanARunWithAnIdIsAnotherRuns) {
  const TemporaryDirectory own;
  save(own.path(), 15, 0, "aaaa");
  EXPECT_NE(user_error_of([&] {
              restore_from_mirror(own.path(), mirror.path());
            }).find("its checkpoint of step 20 is of another run than " + own.path()),
            std::string::npos);
  EXPECT_EQ(checkpoint_steps(own.path()), (std::vector<std::int64_t>{15}));
}

TEST_F(CheckpointMirror, NothingIsCopiedThatTheCallerDoesNotAccept) {
  fs::remove_all(directory_of(run.path(), 20));
  const auto refuse = [&](const std::string& place) { throw user_error("not {}", place); };
  EXPECT_EQ(user_error_of([&] { restore_from_mirror(run.path(), mirror.path(), false, refuse); }),
            "not " + mirror.path());
  EXPECT_EQ(checkpoint_steps(run.path()), (std::vector<std::int64_t>{10}));
}

// Another machine may take it before a copy, during one, or before old copies are deleted.
TEST_F(CheckpointMirror, OneThatIsNoLongerThisProcesssIsLeftAlone) {
  save(run.path(), 30);
  for (int calls = 0; calls < 3; ++calls) {
    int left = calls;
    const auto check = [&] {
      if (left-- == 0) throw user_error("taken");
    };
    EXPECT_EQ(user_error_of([&] { mirror_checkpoint(run.path(), 30, mirror.path(), 1, false, check); }), "taken");
    const auto steps = calls < 2 ? std::vector<std::int64_t>{10, 20} : std::vector<std::int64_t>{10, 20, 30};
    EXPECT_EQ(checkpoint_steps(mirror.path()), steps);
    EXPECT_EQ(testing::names_in(mirror / "checkpoints").size(), steps.size());
  }
}

}  // namespace
}  // namespace longstride
