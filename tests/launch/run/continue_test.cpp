// A run continues only with its own data and in one process at a time, and otherwise says why not.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "framework/train/run/run_lock.h"
#include "launch/run/run_directory.h"
#include "tests/support/save_checkpoint.h"
#include "tests/support/text_run.h"

namespace longstride::testing::continue_test {
namespace {

namespace fs = std::filesystem;

// 16 pictures of 4 x 4 x 3 bytes, as numpy saves them.
std::string pictures() {
  std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (16, 4, 4, 3), }";
  header.resize(117, ' ');
  return std::string("\x93NUMPY\x01\x00", 8) + char(118) + char(0) + header + '\n' + std::string(16 * 48, 'p');
}

class Continued : public TextRun {
 protected:
  Continued() : TextRun(text_recipe(1, "steps: 2, global_batch: 4, lr: 1.0e-3, warmup: 1, mirror: copies", 48)) {}
  void prepare(char from) const {
    write_text(dir / "text.bin", letters(2000, from));
    run_well({"prepare", "bytes", "--input", "text.bin", "--output", "x.h5", "--force"});
  }
  void expect_refused(const Arguments& arguments, const std::vector<std::string>& parts) const {
    for (const std::string& part : parts) expect_refused_with(arguments, part);
  }
};

TEST_F(Continued, OtherBytesAtTheSamePathAreOtherData) {
  prepare('A');
  expect_refused(
      {"train", "r.yaml", "--run", "run", "--resume"},
      {"the run in run would not continue as it began: the sha256 of 'test' was ", "; the sha256 of 'train' was ",
       "; the sha256 of 'valid' was ", "or accept the change with --resume-changed"});
  expect_refused({"eval", "run"}, {"x.h5: 'test' has changed since the run was trained: its sha256 was ",
                                   "use this file anyway with --data x.h5"});
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"train", "r.yaml", "--run", "run", "--resume"}, {"eval", "run"}})
    EXPECT_TRUE(std::regex_search(run(command).err, std::regex(" was [0-9a-f]{12}\\.\\.\\."))) << command[0];
  const CommandResult scored = run({"eval", "run", "--data", "x.h5"});
  EXPECT_EQ(scored.exit_code, 0) << scored.err;
  EXPECT_EQ(scored.out.find("x.h5, test split, "), 0u) << scored.out;
  const CommandResult continued =
      run({"train", "r.yaml", "--run", "run", "--resume-changed", "--set", "train.steps=3"});
  EXPECT_EQ(continued.exit_code, 0) << continued.err;
  EXPECT_EQ(run({"train", "r.yaml", "--run", "run", "--resume", "--set", "train.steps=3"}).exit_code, 0);
  EXPECT_EQ(run({"eval", "run"}).exit_code, 0);
}

TEST_F(Continued, AFolderOfOthersIsNoPlaceForARun) {
  for (const std::string name : {"metrics.jsonl", "samples/sample-1.txt", "attention/layer-1.png"}) {
    write_text(dir / ("theirs/" + name), "{\"step\": 1}\n");
    expect_refused({"train", "r.yaml", "--run", "theirs"},
                   {"theirs: holds " + name.substr(0, name.find('/')) +
                    ", but no recipe.yaml and environment.json of a run; move it away, or choose another directory"});
    EXPECT_EQ(text_of(dir / ("theirs/" + name)), "{\"step\": 1}\n");
    EXPECT_EQ(std::distance(fs::directory_iterator(dir / "theirs"), {}), 1);
    fs::remove_all(dir / "theirs");
  }
  write_text(dir / "theirs/readme.txt", "of others");
  EXPECT_EQ(run({"train", "r.yaml", "--run", "theirs"}).exit_code, 0);
}

TEST_F(Continued, BytesAreCountedAsTheyWereReadWhateverTheBatchIsNow) {
  const CommandResult resumed = run({"train", "r.yaml", "--run", "run", "--resume-changed", "--set", "train.steps=4",
                                     "--set", "train.global_batch=8", "--set", "train.log_every=1"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_NE(text_of(dir / "run/metrics.jsonl").find("\"tokens\":" + std::to_string(2 * 4 * 48 + 2 * 8 * 48)),
            std::string::npos)
      << text_of(dir / "run/metrics.jsonl");
  std::istringstream lines(text_of(dir / "run/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto written = nlohmann::json::parse(line);
    if (written.contains("tokens_per_second")) {
      EXPECT_GT(written.at("tokens_per_second").get<double>(), 0) << line;
    }
  }
}

TEST_F(Continued, OnlyACommandThatReadsOtherDataOffersIt) {
  prepare('A');
  expect_refused({"sample", "run", "--complete", "valid", "--length", "20"},
                 {"prepare it as it was, or leave --complete out"});
}

TEST_F(Continued, OtherBytesAreRefusedWithThePathOfTheRunsOwn) {
  fs::rename(dir / "x.h5", dir / "own.h5");
  prepare('A');
  fs::rename(dir / "x.h5", dir / "y.h5");
  expect_refused({"train", "r.yaml", "--run", "run", "--resume", "--set", "data.path=y.h5"},
                 {"as it began: data.path was x.h5 and is y.h5; the sha256 of 'test' was "});
}

TEST_F(Continued, DataThatIsNotFoundFromHereIsSaidToBeWhereTheRunWasTrained) {
  fs::create_directory(dir / "elsewhere");
  for (const char* command : {"eval", "attention"}) {
    const CommandResult result = run_command({command, "../run"}, dir / "elsewhere");
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.err,
              "longstride: x.h5: does not exist in this directory; the recipe of the run names its data from where it "
              "was trained: run the command there, or name the file with --data\n");
  }
  EXPECT_EQ(run_command({"eval", "../run", "--data", "../x.h5"}, dir / "elsewhere").exit_code, 0);
}

TEST_F(Continued, TheSameBytesMayMove) {
  fs::rename(dir / "x.h5", dir / "y.h5");
  const CommandResult result = run({"train", "r.yaml", "--run", "run", "--resume", "--set", "data.path=y.h5"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST_F(Continued, DataOfAnotherKindIsNotScored) {
  write_text(dir / "p.npy", pictures());
  ASSERT_EQ(run({"prepare", "images", "--input", "p.npy", "--size", "4", "--output", "p.h5"}).exit_code, 0);
  for (const char* command : {"eval", "attention"})
    expect_refused({command, "run", "--data", "p.h5", "--split", "train"},
                   {"p.h5: holds images, but the run was trained on bytes; choose data of that kind"});
}

TEST_F(Continued, ADirectoryIsTrainedIntoByOneProcess) {
  const RunLock held(dir / "run");
  const std::string who = "run: process " + std::to_string(::getpid()) + " on ";
  expect_refused({"train", "r.yaml", "--run", "run", "--resume"}, {who, "is training into it"});
  expect_refused({"train", "r.yaml", "--run", "run"}, {who});
  EXPECT_EQ(run({"eval", "run"}).exit_code, 0);  // reading disturbs nothing
}

TEST_F(Continued, ALostRunIsContinuedFromItsMirror) {
  const std::string weights = "/checkpoints/step-00000002/model.safetensors";
  EXPECT_EQ(text_of(dir / "run" + weights), text_of(dir / "copies/run" + weights));
  EXPECT_EQ(run({"eval", "copies/run"}).exit_code, 0);
  expect_refused({"train", "r.yaml", "--run", "other/run"}, {"copies/run: already holds checkpoints"});
  expect_refused({"train", "r.yaml", "--run", "new", "--set", "train.mirror=."}, {"which is the run itself"});
  const std::string before = text_of(dir / "run" + weights);
  fs::remove_all(dir / "run");
  const CommandResult result = run({"train", "r.yaml", "--run", "run", "--resume"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("step 2 is taken from copies/run"), std::string::npos) << result.err;
  EXPECT_EQ(text_of(dir / "run" + weights), before);
}

TEST_F(Continued, AMirrorThatCannotBeMadeIsRefusedAtTheStart) {
  write_text(dir / "file", "");
  expect_refused({"train", "r.yaml", "--run", "other", "--set", "train.mirror=file"},
                 {"file/other: cannot be created (Not a directory); choose another folder with train.mirror"});
  EXPECT_FALSE(fs::exists(dir / "other"));
  fs::create_directory_symlink("nowhere", dir / "link");
  expect_refused({"train", "r.yaml", "--run", "link/deep/other"}, {"link/deep/other: cannot be created"});
  expect_refused({"train", "r.yaml", "--run", "link"},
                 {"link: cannot be created (it is a link that leads nowhere); choose another directory with --run"});
  EXPECT_TRUE(fs::is_symlink(dir / "link"));
}

TEST_F(Continued, CheckpointsThatCannotBeReadAreNotOverlooked) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  fs::permissions(dir / "run/checkpoints", fs::perms::owner_write | fs::perms::owner_exec);
  const std::string sentence = "run: its checkpoints cannot be read: Permission denied; change its permissions";
  expect_refused({"train", "r.yaml", "--run", "run", "--resume"}, {sentence});
  expect_refused({"train", "r.yaml", "--run", "run"}, {sentence});
  expect_refused({"eval", "run"}, {sentence});
  fs::permissions(dir / "run/checkpoints", fs::perms::owner_all);
}

// A folder of a run is no link, in a circle or to another folder.
TEST_F(Continued, FoldersThatAreLinksEndACommandWithASentence) {
  const auto in_a_circle = [&](const char* folder) {
    fs::remove_all(dir / folder);
    fs::create_symlink(fs::path(folder).filename(), dir / folder);
  };
  in_a_circle("run/samples");
  expect_refused({"report", "run"}, {"run/samples: is a link, and links within a run are not followed"});
  in_a_circle("run/checkpoints");
  const std::string sentence = "run/checkpoints: is a link, and links within a run are not followed";
  expect_refused({"eval", "run"}, {sentence});
  expect_refused({"report", "run"}, {sentence});
  expect_refused({"train", "r.yaml", "--run", "run", "--resume"}, {sentence});
}

// Weights a million times too large, and a learning rate that cannot repair them.
TEST_F(Continued, ATrainingThatDivergesHasItsOwnExitCode) {
  const LoadedRun loaded = load_run(dir / "run", "last");
  float* weights = loaded.masters.as<float>();
  std::for_each(weights, weights + loaded.masters.count(), [](float& weight) { weight *= 1e6F; });
  std::vector<float> zeros(static_cast<std::size_t>(loaded.masters.count()));
  const Tensor moments(zeros.data(), Dtype::f32, loaded.masters.shape());
  save_checkpoint(dir / "run", read_newest_state(dir / "run"),
                  {loaded.model->parameters(), loaded.masters, moments, moments, {}}, 0);
  fs::remove_all(dir / "copies");
  const CommandResult result = run({"train", "r.yaml", "--run", "run", "--resume-changed", "--set", "train.steps=90",
                                    "--set", "train.lr=1e-9", "--set", "train.log_every=2"});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_NE(result.err.find("longstride: training has diverged: step 8 has "), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("bits per byte, but guessing has 8; the last checkpoint is step 2. Lower train.lr or"),
            std::string::npos)
      << result.err;
}

}  // namespace
}  // namespace longstride::testing::continue_test
