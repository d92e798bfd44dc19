// Every checkpoint says which run it is of, so that runs of one name never take each other's; and what else runs and
// mirrors need of a disk.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "framework/core/files/sha256.h"
#include "framework/train/checkpoint/checkpoint.h"
#include "tests/support/text_run.h"

namespace longstride::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Steps = std::vector<std::int64_t>;

const std::string mirrored =
    "steps: 4, global_batch: 2, lr: 1.0e-3, warmup: 1, checkpoint_every: 2, evaluate_windows: 1";

class RunId : public TextRun {
 protected:
  RunId() : TextRun(text_recipe(1, mirrored), {}) {}

  CommandResult train(const std::string& name, const Arguments& more = {}) const {
    Arguments all = {"train", "r.yaml", "--run", name};
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  }
  void train_well(const std::string& name, const Arguments& more = {}) const {
    const CommandResult result = train(name, more);
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  std::string state_of(const std::string& name, int step) const {
    return dir / in_checkpoint(name, step, "state.json");
  }
  std::string id(const std::string& name, int step) const {
    return Json::parse(text_of(state_of(name, step))).value("run_id", "");
  }
  Steps steps(const std::string& name) const { return checkpoint_steps(dir / name); }
  // As earlier versions wrote it.
  void remove_id(const std::string& name, int step) const {
    Json state = Json::parse(text_of(state_of(name, step)));
    state.erase("run_id");
    state.erase("checksum");
    const std::string text = state.dump();
    Sha256 sha;
    sha.update(text.data(), text.size());
    state["checksum"] = sha.hex();
    write_text(state_of(name, step), state.dump(2));
  }
};
TEST_F(RunId, IsDrawnAtTheStartAndKeptForEver) {
  train_well("first", {"--set", "train.mirror=copies"});
  train_well("first", {"--set", "train.mirror=copies", "--set", "train.steps=6", "--resume-changed"});
  EXPECT_EQ(id("first", 2).size(), 32U);
  EXPECT_EQ(id("first", 2).find_first_not_of("0123456789abcdef"), std::string::npos);
  for (const char* place : {"first", "copies/first"})
    for (const int step : {2, 4, 6}) EXPECT_EQ(id(place, step), id("first", 2)) << place << step;
  train_well("second", {"--from", "first"});
  EXPECT_EQ(id("second", 4).size(), 32U);
  EXPECT_NE(id("second", 4), id("first", 4));
}

TEST_F(RunId, TheMirrorOfAnotherRunIsRefusedBeforeAnythingIsCopied) {
  train_well("a/x", {"--set", "train.mirror=mm", "--set", "train.keep=2"});
  train_well("b/x", {"--set", "train.steps=2"});
  for (const char* way : {"--resume", "--resume-changed"}) {
    const CommandResult result = train("b/x", {"--set", "train.mirror=mm", "--set", "train.keep=1", way});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("mm/x: holds checkpoints of another run than b/x (run_id "), std::string::npos)
        << result.err;
    EXPECT_EQ(steps("b/x"), Steps{2});
    EXPECT_EQ(steps("mm/x"), (Steps{2, 4}));
  }
}

// Without ids to compare, settings and data are, and before anything is copied.
TEST_F(RunId, AMirrorWithOtherSettingsIsRefusedBeforeAnythingIsCopied) {
  train_well("c/x", {"--set", "train.mirror=mc"});
  train_well("d/x", {"--set", "train.steps=2", "--set", "train.lr=2.0e-3"});
  for (const int step : {2, 4}) remove_id("mc/x", step);
  remove_id("d/x", 2);
  const CommandResult result = train("d/x", {"--set", "train.mirror=mc", "--set", "train.lr=2.0e-3", "--resume"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("train.lr was 0.001 and is 0.002"), std::string::npos) << result.err;
  EXPECT_EQ(steps("d/x"), Steps{2});
}

// Its id is in the records of its start: it may have been killed before its first checkpoint.
TEST_F(RunId, ARunThatHasBegunTakesNoMirrorOfAnother) {
  train_well("e/x", {"--set", "train.mirror=me"});
  train_well("f/x", {"--set", "train.steps=2"});
  fs::remove_all(dir / "f/x/checkpoints");
  const CommandResult result = train("f/x", {"--set", "train.mirror=me", "--resume-changed"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("me/x: holds checkpoints of another run than f/x"), std::string::npos) << result.err;
  EXPECT_TRUE(steps("f/x").empty());
}

TEST_F(RunId, CheckpointsOfTwoRunsAreNotScored) {
  train_well("g");
  train_well("h", {"--set", "train.steps=2"});
  fs::copy(dir / "g/checkpoints/step-00000004", dir / "h/checkpoints/step-00000004", fs::copy_options::recursive);
  for (const char* command : {"eval", "sample"}) {
    const CommandResult result = run({command, "h"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("h: its checkpoints of steps 2 and 4 are of two runs"), std::string::npos) << result.err;
  }
}

// A huge state.json is no reason to read it.
TEST_F(RunId, IsReadFromFilesOfOurSizes) {
  train_well("huge");
  fs::resize_file(state_of("huge", 4), std::uintmax_t{6} << 30);
  const CommandResult result = train("huge", {"--resume", "--set", "train.steps=4"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("the checkpoint of step 4 is skipped"), std::string::npos) << result.err;
}

TEST_F(RunId, ARunOfBeforeGetsOneWhenItIsResumed) {
  const Arguments mirror = {"--set", "train.mirror=old"};
  train_well("before", mirror);
  for (const char* place : {"before", "old/before"})
    for (const int step : {2, 4}) remove_id(place, step);
  EXPECT_EQ(run({"eval", "before"}).exit_code, 0);
  fs::remove_all(dir / "before/checkpoints/step-00000004");  // the mirror has it
  train_well("before", {"--set", "train.mirror=old", "--set", "train.steps=6", "--resume-changed"});
  EXPECT_EQ(steps("before"), (Steps{2, 4, 6}));
  EXPECT_EQ(id("before", 4), "");
  EXPECT_EQ(id("before", 6).size(), 32U);
  EXPECT_EQ(id("old/before", 6), id("before", 6));
  train_well("before", {"--set", "train.mirror=old", "--set", "train.steps=8", "--resume-changed"});
  EXPECT_EQ(id("old/before", 8), id("before", 6));
}

TEST_F(RunId, AMirrorThatAnotherMachineTakesGetsNoMoreCopies) {
  const std::string lock = dir / "mt/taken/lock", other = "longstride lock\nhost node9\nprocess 1\ntoken abc\nbeat 7\n";
  std::thread taker([&] {
    for (int i = 0; i < 6000 && !fs::exists(lock); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    write_text(lock + ".new", other);
    fs::rename(lock + ".new", lock);
  });
  const CommandResult result = train("taken", {"--set", "train.mirror=mt"});
  taker.join();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(
      result.err.find("the checkpoint of step 4 has no second copy: mt/taken: another process has taken its lock"),
      std::string::npos)
      << result.err;
  EXPECT_EQ(steps("taken"), (Steps{2, 4}));
  EXPECT_EQ(steps("mt/taken"), Steps{});
  EXPECT_EQ(text_of(lock), other);
}

#ifdef LONGSTRIDE_POOR_DISK
TEST_F(RunId, DisksWithoutHardLinksOrFlushingSuffice) {
  ::setenv("LD_PRELOAD", LONGSTRIDE_POOR_DISK, 1);
  const CommandResult prepared = run({"prepare", "bytes", "--input", "text.bin", "--output", "y.h5"});
  const Arguments more = {"--set", "data.path=y.h5", "--set", "train.mirror=mp"};
  const CommandResult begun = train("poor", more);
  fs::remove_all(dir / "poor");
  const CommandResult resumed = train("poor", {more[0], more[1], more[2], more[3], "--resume"});
  const CommandResult examined = run({"doctor", "--megabytes", "8", "--directory", "."});
  ::unsetenv("LD_PRELOAD");
  EXPECT_EQ(prepared.exit_code, 0) << prepared.err;
  EXPECT_EQ(begun.exit_code, 0) << begun.err;
  EXPECT_EQ(begun.err.find("no second copy"), std::string::npos) << begun.err;
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(steps("poor"), Steps{4});
  EXPECT_FALSE(fs::exists(dir / "poor/lock"));
  EXPECT_NE(examined.out.find("lacks hard links, renaming without replacing, flushing of files, flushing of folders"),
            std::string::npos)
      << examined.out;
}
#endif

}  // namespace
}  // namespace longstride::testing
