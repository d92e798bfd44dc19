// Every kind of damage to a checkpoint that we could think of: the newest whole one is loaded, with a warning that says
// what is wrong with the other; if there is none, the error is one sentence.
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "framework/core/files/files.h"
#include "framework/core/files/safetensors.h"
#include "framework/core/files/sha256.h"
#include "framework/train/checkpoint/checkpoint.h"
#include "framework/train/checkpoint/checkpoint_state.h"
#include "tests/train/checkpoint/checkpoint_fixture.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::directory_of;
using testing::resumed_step;
using testing::save;
using testing::SmallTraining;
using testing::user_error_of;

const char* const files[] = {"state.json", "model.safetensors", "ema.safetensors",
                             "optimizer-00000-of-00001.safetensors"};

// Two checkpoints, of steps 10 and 20; every test damages the second.
class CheckpointFaults : public ::testing::Test {
 protected:
  CheckpointFaults() {
    save(run_.path(), 10);
    save(run_.path(), 20);
    old_logger_ = spdlog::default_logger();
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_st>(log_)));
  }
  ~CheckpointFaults() override { spdlog::set_default_logger(old_logger_); }

  std::string path(const std::string& file) const { return directory_of(run_.path(), 20) + "/" + file; }

  // The warning that says why the second checkpoint is skipped.
  std::string complaint() {
    log_.str("");
    EXPECT_EQ(resumed_step(run_.path()), 10);
    const std::string said = log_.str();
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
    const std::string start = "the checkpoint of step 20 is skipped: " + directory_of(run_.path(), 20);
    const auto at = said.find(start);
    EXPECT_NE(at, std::string::npos) << said;
    return at == std::string::npos ? said : said.substr(at + start.size(), said.size() - at - start.size() - 1);
  }

  // Changes state.json and corrects its checksum: a false statement, not damage.
  void forge(const std::function<void(json&)>& change) {
    json state = json::parse(read_file(path("state.json")));
    change(state);
    state.erase("checksum");
    const std::string text = state.dump();
    Sha256 sha;
    sha.update(text.data(), text.size());
    state["checksum"] = sha.hex();
    write_file_atomically(path("state.json"), state.dump(2));
  }

  testing::TemporaryDirectory run_;
  std::ostringstream log_;
  std::shared_ptr<spdlog::logger> old_logger_;
};

TEST_F(CheckpointFaults, AWholeOneIsLoadedWithoutAWarning) {
  EXPECT_EQ(resumed_step(run_.path()), 20);
  EXPECT_EQ(log_.str(), "");
}

TEST_F(CheckpointFaults, AMissingFileIsNoticed) {
  for (const char* file : files) {
    const std::string content = read_file(path(file));
    fs::remove(path(file));
    EXPECT_EQ(complaint(), fmt::format("/{}: cannot open: No such file or directory", file));
    write_file_atomically(path(file), content);
  }
}

TEST_F(CheckpointFaults, TruncationAtEverySixteenthOfEveryFileIsNoticed) {
  for (const char* file : files) {
    const std::string content = read_file(path(file));
    for (std::size_t part = 0; part < 16; ++part) {
      write_file_atomically(path(file), content.substr(0, content.size() * part / 16));
      EXPECT_NE(complaint().find(file), std::string::npos);
    }
    write_file_atomically(path(file), content);
  }
}

TEST_F(CheckpointFaults, AFlippedBitAnywhereInATensorFileIsNoticed) {
  for (const char* file : {"model.safetensors", "optimizer-00000-of-00001.safetensors"}) {
    const std::string content = read_file(path(file));
    for (std::size_t at = 0; at < content.size(); at += 97) {
      std::string damaged = content;
      damaged[at] = static_cast<char>(damaged[at] ^ 1);
      write_file_atomically(path(file), damaged);
      EXPECT_EQ(complaint(), fmt::format("/{}: its content does not match its checksum", file));
    }
    write_file_atomically(path(file), content);
  }
}

// Only white space in state.json may change unnoticed, because it has no meaning.
TEST_F(CheckpointFaults, AFlippedBitAnywhereInTheStateIsNoticed) {
  const std::string content = read_file(path("state.json"));
  for (std::size_t at = 0; at < content.size(); ++at) {
    if (content[at] == ' ' || content[at] == '\n') continue;
    std::string damaged = content;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write_file_atomically(path("state.json"), damaged);
    EXPECT_NE(complaint().find("/state.json: "), std::string::npos) << at;
  }
}

TEST_F(CheckpointFaults, GarbageInPlaceOfTheStateIsNoticed) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "is not a JSON object"},
      {"garbage", "is not a JSON object"},
      {"[1, 2]", "is not a JSON object"},
      {"{}", "is not the state of a checkpoint"},
      {R"({"format": "longstride checkpoint"})", "its content does not match its checksum"},
  };
  for (const auto& [text, wanted] : cases) {
    write_file_atomically(path("state.json"), text);
    EXPECT_EQ(complaint(), fmt::format("/state.json: {}", wanted));
  }
  write_file_atomically(path("state.json"), "{\"format\":" + std::string(1'000'000, '['));
  EXPECT_EQ(complaint(), "/state.json: is not a JSON object");
}

TEST_F(CheckpointFaults, AFalseStateIsNoticed) {
  const auto complaint_of = [&](const std::function<void(json&)>& change) {
    const std::string good = read_file(path("state.json"));
    forge(change);
    const std::string said = complaint();
    write_file_atomically(path("state.json"), good);
    return said;
  };
  const auto bytes = fs::file_size(path("model.safetensors"));
  EXPECT_EQ(complaint_of([](json& s) { s["files"]["model.safetensors"]["bytes"] = 7; }),
            fmt::format("/model.safetensors: holds {} bytes, but 7 were written", bytes));
  EXPECT_EQ(complaint_of([](json& s) { s["files"]["model.safetensors"]["sha256"] = std::string(64, '0'); }),
            "/model.safetensors: its content does not match its checksum");
  EXPECT_EQ(complaint_of([](json& s) { s["files"].erase("model.safetensors"); }),
            "/state.json: does not list model.safetensors");
  EXPECT_EQ(complaint_of([](json& s) {
              s["files"]["../../x"] = {{"bytes", 1}, {"sha256", ""}};
            }),
            "/state.json: 'files' must map names in this directory to their size and checksum");
  EXPECT_EQ(complaint_of([](json& s) { s["files"] = 3; }), "/state.json: 'files' must be an object");
  EXPECT_EQ(complaint_of([](json& s) { s["step"] = 21; }),
            "/state.json: is of step 21, not of the step in the directory's name");
  EXPECT_EQ(complaint_of([](json& s) { s["step"] = -20; }), "/state.json: 'step' must be a whole number of at least 0");
  EXPECT_EQ(complaint_of([](json& s) { s["step"] = 18446744073709551615u; }),
            "/state.json: 'step' must be a whole number of at least 0");
  EXPECT_EQ(complaint_of([](json& s) { s["seed"] = "1"; }), "/state.json: 'seed' must be a whole number");
  EXPECT_EQ(complaint_of([](json& s) { s["recipe"] = 1; }), "/state.json: 'recipe' must be text");
  EXPECT_EQ(complaint_of([](json& s) { s["loss"] = "low"; }), "/state.json: 'loss' must be a number or null");
  EXPECT_EQ(complaint_of([](json& s) { s.erase("world_size"); }), "/state.json: has no 'world_size'");
  EXPECT_EQ(complaint_of([](json& s) { s["version"] = 0; }),
            "/state.json: 'version' must be a whole number of at least 1");
}

TEST_F(CheckpointFaults, SwappedFilesAndDirectoriesAreNoticed) {
  fs::remove(path("model.safetensors"));
  fs::create_directory(path("model.safetensors"));
  EXPECT_EQ(complaint(), "/model.safetensors: is a directory, but a file is needed");
  fs::remove_all(directory_of(run_.path(), 20));
  write_file_atomically(directory_of(run_.path(), 20), "a file");
  EXPECT_EQ(complaint(), "/state.json: cannot open: Not a directory");
}

TEST_F(CheckpointFaults, NoneWholeIsOneSentence) {
  for (std::int64_t step : {10, 20}) fs::remove(directory_of(run_.path(), step) + "/state.json");
  SmallTraining training;
  EXPECT_EQ(user_error_of([&] { load_newest_checkpoint(run_.path(), training.tensors()); }),
            run_.path() + ": none of its checkpoints, of 10 and 20, is complete; train it again in another directory");
}

TEST_F(CheckpointFaults, NoCheckpointAtAllIsOneSentence) {
  const testing::TemporaryDirectory empty;
  SmallTraining training;
  EXPECT_EQ(user_error_of([&] { load_newest_checkpoint(empty.path(), training.tensors()); }),
            empty.path() + ": holds no checkpoint; give the directory of a run that has saved one");
  EXPECT_EQ(user_error_of([&] { load_newest_checkpoint(empty / "none", training.tensors()); }),
            empty / "none" + ": there is no such run; give the directory of one that has saved a checkpoint");
}

// This is not damage: returning to an older checkpoint would silently discard work.
TEST_F(CheckpointFaults, ALaterFormatIsNotSkipped) {
  forge([](json& s) { s = {{"format", s["format"]}, {"version", checkpoint_version + 1}, {"all", "new"}}; });
  SmallTraining training;
  EXPECT_EQ(user_error_of([&] { load_newest_checkpoint(run_.path(), training.tensors()); }),
            directory_of(run_.path(), 20) +
                ": is a checkpoint of a later version of Longstride; read it with that version, or move it away");
}

TEST_F(CheckpointFaults, AnotherModelIsRefusedByTheFirstTensorThatDiffers) {
  SmallTraining wider(Dtype::f32, 6);
  EXPECT_EQ(user_error_of([&] { load_newest_checkpoint(run_.path(), wider.tensors()); }),
            path("model.safetensors") +
                ": tensor 'embedding.weight' is (7, 5), but the model's is (7, 6); use the "
                "recipe that the run was started with");
  ParameterSet more;
  for (const char* name : {"embedding.weight", "extra"}) more.add(name, {7, 5}, {});
  more.lay_out();
  std::vector<float> flat(static_cast<std::size_t>(more.flat_size()));
  const Tensor masters(flat.data(), Dtype::f32, {more.flat_size()});
  more.bind(masters, masters);
  EXPECT_EQ(user_error_of([&] { load_weights(run_.path(), more, false); }),
            path("model.safetensors") +
                ": holds no tensor 'extra' (7, 5), which the model has; use the recipe that the run was started with");
  ParameterSet fewer;
  fewer.add("embedding.weight", {7, 5}, {});
  fewer.lay_out();
  fewer.bind(masters.slice(0, 0, fewer.flat_size()), masters.slice(0, 0, fewer.flat_size()));
  EXPECT_EQ(user_error_of([&] { load_weights(run_.path(), fewer, false); }),
            path("model.safetensors") +
                ": holds tensor 'norm.gain' (5), which the model lacks; use the recipe "
                "that the run was started with");
}

TEST_F(CheckpointFaults, AnotherTypeIsRefused) {
  SmallTraining doubles(Dtype::f64);
  EXPECT_EQ(user_error_of([&] { load_newest_checkpoint(run_.path(), doubles.tensors()); }),
            path("model.safetensors") + ": tensor 'embedding.weight' is F32 (7, 5), but F64 (7, 5) is needed");
}

TEST_F(CheckpointFaults, NamesThatOnlyResembleCheckpointsAreIgnored) {
  for (const char* name : {"step-30", "step-0000003x", "step-000000030", "step-99999999999999999999", "other"})
    fs::create_directories(run_ / ("checkpoints/" + std::string(name)));
  EXPECT_EQ(checkpoint_steps(run_.path()), (std::vector<std::int64_t>{10, 20}));
}

// Such weights, saved by a program that did not check or by hand, are useless for training, scoring and sampling.
TEST(CheckpointWeights, ThatAreNotFiniteAreRefused) {
  const testing::TemporaryDirectory run;
  SmallTraining training;
  training.fill(1);
  SmallTraining::set(training.masters, training.parameters.all()[1].offset + 2, std::nan(""));
  save_checkpoint(run.path(), testing::state_at(5), training.tensors(), 0);
  const std::string message = directory_of(run.path(), 5) +
                              "/model.safetensors: weights of 'norm.gain' are not finite, so the model is unusable; "
                              "move this checkpoint away to use the one before it";
  EXPECT_EQ(user_error_of([&] { load_newest_checkpoint(run.path(), training.tensors()); }), message);
  EXPECT_EQ(user_error_of([&] { load_weights(run.path(), training.parameters, false); }), message);
}

// Every file is checked, but not each in its own thread.
TEST_F(CheckpointFaults, AManifestOfManyFilesStartsFewThreads) {
  forge([&](json& state) {
    for (int i = 0; i < 3000; ++i) state["files"][fmt::format("f{}", i)] = {{"bytes", 4096}, {"sha256", ""}};
  });
  for (int i = 0; i < 3000; ++i) fs::copy_file(path("state.json"), path(fmt::format("f{}", i)));
  for (int i = 0; i < 3000; ++i) fs::resize_file(path(fmt::format("f{}", i)), 4096);
  std::atomic<bool> done = false;
  std::ptrdiff_t most = 0;
  std::thread counter([&] {
    while (!done) most = std::max(most, std::distance(fs::directory_iterator("/proc/self/task"), {}));
  });
  const std::string said = complaint();
  done = true;
  counter.join();
  EXPECT_NE(said.find(": its content does not match its checksum"), std::string::npos) << said;
  EXPECT_LE(most, 64);
}

}  // namespace
}  // namespace longstride
