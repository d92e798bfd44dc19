// Commands on a run that somebody else has made: links, sizes, types and names are none that this program writes.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstring>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "framework/core/files/safetensors.h"
#include "framework/core/files/sha256.h"
#include "framework/train/checkpoint/checkpoint_state.h"
#include "launch/report/html.h"
#include "tests/support/text_run.h"

namespace longstride::testing::foreign_run_test {
namespace {

namespace fs = std::filesystem;

const std::string step_4 = "run/checkpoints/step-00000004/";
const std::string png = "\x89PNG\r\n\x1a\n";

// A run of four steps, with checkpoints at 2 and 4, samples and pictures of attention.
class ForeignRun : public TextRun {
 protected:
  ForeignRun()
      : TextRun(text_recipe(1, "steps: 4, global_batch: 2, lr: 1.0e-3, warmup: 1, log_every: 1, checkpoint_every: 2"),
                {{"train", "r.yaml", "--run", "run"},
                 {"sample", "run", "--length", "8"},
                 {"attention", "run", "--head", "0", "--query", "9"}}) {}

  std::string page() const {
    run_well({"report", "run"});
    return text_of(dir / "run/report.html");
  }
  void replace_with_link(const std::string& name, const std::string& target) const {
    fs::remove_all(dir / name);
    fs::create_symlink(target, dir / name);
  }
  void write(const std::string& name, const std::string& text) const { write_text(dir / name, text); }
  // Changes what the last checkpoint says, and the checksums with it.
  void rewrite(const std::function<void(CheckpointManifest&)>& change) const {
    CheckpointManifest manifest = parse_manifest(text_of(dir / step_4 + "state.json"), "state.json");
    change(manifest);
    for (auto& [name, digest] : manifest.files) {
      const std::string path = dir / step_4 + name;
      digest = {fs::file_size(path), sha256_of_file(path)};
    }
    write(step_4 + "state.json", manifest_text(manifest));
  }
};
TEST_F(ForeignRun, AFileNameInAReportIsText) {
  write("run/samples/a\" onload=\"alert(1).png", png);
  const std::string text = page();
  EXPECT_EQ(text.find("\" onload=\""), std::string::npos);
  EXPECT_NE(text.find("a&quot; onload=&quot;alert(1)"), std::string::npos);
}

TEST_F(ForeignRun, AReportShowsFilesOfTheRunAlone) {
  const std::string secret = png + "a secret of the reader";
  write("secret.png", secret);
  for (const std::string& file : {std::string("../../secret.png"), dir / "secret.png", std::string("..")}) {
    const nlohmann::json sheet = {{"file", file}, {"layer", 0}, {"part", "local"}};
    write("run/attention/attention.json", nlohmann::json{{"sheets", nlohmann::json::array({sheet})}}.dump());
    EXPECT_NE(page().find("attention.json lists no sheets"), std::string::npos);
  }
  replace_with_link("run/attention/layer-000.png", "../../secret.png");
  const nlohmann::json sheet = {{"file", "layer-000.png"}, {"layer", 0}, {"part", "local"}};
  write("run/attention/attention.json", nlohmann::json{{"sheets", nlohmann::json::array({sheet})}}.dump());
  expect_refused_with({"report", "run"},
                      "run/attention/layer-000.png: is a link, and links within a run are not followed");
  fs::remove_all(dir / "run/attention");
  for (const char* name : {"run/samples/grid.png", "run/samples/x.wav", "run/samples/sample-000.txt",
                           "run/environment.json", "run/metrics.jsonl", "run/evaluations.jsonl", "run/samples"}) {
    replace_with_link(name, dir / "secret.png");
    expect_refused_with({"report", "run"}, std::string(name) + ": is a link");
    fs::remove(dir / name);
  }
  write("run/samples/x.png", "no picture");
  EXPECT_NE(page().find("run/samples/x.png is left out: it is no PNG"), std::string::npos);
}

TEST_F(ForeignRun, AReportHasABoundOnWhatItShows) {
  write("run/samples/x.png", png);
  fs::resize_file(dir / "run/samples/x.png", std::uintmax_t{65} << 20);
  const std::string text = page();
  EXPECT_LT(text.size(), std::size_t{1} << 20);
  EXPECT_NE(text.find("run/samples/x.png is left out: a page has at most 64 MiB of files"), std::string::npos);
}

TEST_F(ForeignRun, JsonOfOtherTypesOrDepthsIsNoFault) {
  const std::string deep = std::string(300000, '[') + std::string(300000, ']');
  const auto expect_sentence = [&](const std::string& name, const std::string& text) {
    const std::string before = text_of(dir / name);
    write(name, text);
    const CommandResult result = run({"report", "run"});
    EXPECT_TRUE(result.exit_code == 0 || result.exit_code == 2) << name << ": " << result.exit_code << result.err;
    EXPECT_EQ(result.err.find("internal error"), std::string::npos) << name << ": " << text.substr(0, 50) << result.err;
    write(name, before);
  };
  for (const char* name :
       {"run/attention/attention.json", "run/environment.json", "run/metrics.jsonl", "run/evaluations.jsonl"})
    for (const std::string& text : {"{\"a\":" + deep + "}", std::string("3"), std::string("[{}]")})
      expect_sentence(name, text);
  expect_sentence(step_4 + "state.json", deep);
  for (const char* text : {R"({"sheets":{"a":1}})", R"({"sheets":[1]})", R"({"sheets":[{"file":1}]})",
                           R"({"sheets":7})", R"({"sheets":[{"file":"layer-000.png","layer":"x","part":1}]})"})
    expect_sentence("run/attention/attention.json", text);
  std::string lines;
  for (const char* figure : {"1.7e308", "-1.7e308", "5e-324", "1e60", "\"x\"", "[]", "null"})
    lines += fmt::format(R"({{"step":1,"bits_per_byte":{0},"grad_norm":{0},"lr":{0},"tokens_per_second":{0},)"
                         R"("auxiliary":{{"a":{0}}}}})"
                         "\n",
                         figure);
  expect_sentence("run/metrics.jsonl", lines);
  expect_sentence("run/evaluations.jsonl", R"({"step":[],"split":1,"data":{},"bits_per_byte":"x","memory":[1]})");
}

TEST_F(ForeignRun, EvalWritesNowhereElse) {
  write("victim", "mine\n");
  replace_with_link("run/evaluations.jsonl", "../victim");
  const CommandResult result = run({"eval", "run"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.err.find("the score is not kept in the run: run/evaluations.jsonl: is a link"), std::string::npos);
  replace_with_link("run/evaluations.jsonl", "../absent");
  EXPECT_EQ(run({"eval", "run"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(dir / "absent"));
  EXPECT_EQ(text_of(dir / "victim"), "mine\n");
}

TEST_F(ForeignRun, ResumeWritesAndDeletesNowhereElse) {
  fs::copy(dir / "run", dir / "mine", fs::copy_options::recursive);
  const Arguments resume = {"train", "r.yaml", "--run", "run", "--resume", "--set", "train.keep=1"};
  const auto contents = [&] {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(dir / "mine"))
      all[entry.path()] = entry.is_regular_file() ? text_of(entry.path()) : "";
    return all;
  };
  const auto before = contents();
  for (const char* name : {"checkpoints", "metrics.jsonl", "samples", "attention", "recipe.yaml", "environment.json",
                           "checkpoints/step-00000002"}) {
    const std::string path = std::string("run/") + name;
    fs::rename(dir / path, dir / "aside");
    fs::create_symlink(dir / ("mine/" + std::string(name)), dir / path);
    expect_refused_with(resume, path + ": is a link");
    fs::remove(dir / path);
    fs::rename(dir / "aside", dir / path);
  }
  for (const char* name : {"environment-2.json", "recipe-2.yaml"}) {
    fs::create_symlink("../absent", dir / (std::string("run/") + name));
    expect_refused_with(resume, std::string(name) + ": is a link");
    fs::remove(dir / (std::string("run/") + name));
  }
  EXPECT_TRUE(contents() == before);
  EXPECT_FALSE(fs::exists(dir / "absent"));
  EXPECT_FALSE(fs::exists(dir / "run/environment-2.json"));
  run_well(resume);
}

TEST_F(ForeignRun, ReaderCommandsFollowNoLinkInTheRun) {
  fs::rename(dir / "run/checkpoints", dir / "elsewhere");
  replace_with_link("run/checkpoints", "../elsewhere");
  for (const Arguments& command : {Arguments{"eval", "run"},
                                   {"sample", "run"},
                                   {"attention", "run"},
                                   {"report", "run"},
                                   {"show", "pattern", "run"},
                                   {"export", "run", "--output", "out"},
                                   {"train", "r.yaml", "--run", "other", "--from", "run"}})
    expect_refused_with(command, "run/checkpoints: is a link, and links within a run are not followed");
  fs::remove(dir / "run/checkpoints");
  fs::rename(dir / "elsewhere", dir / "run/checkpoints");
  write("victim", "mine\n");
  for (const auto& [name, command] : {std::pair<std::string, Arguments>{"report.html", {"report", "run"}},
                                      {"samples/sample-000.txt", {"sample", "run", "--length", "8"}},
                                      {"attention/layer-000.png", {"attention", "run"}}}) {
    replace_with_link("run/" + name, dir / "victim");
    expect_refused_with(command, "run/" + name + ": is a link");
    fs::remove(dir / (std::string("run/") + name));
  }
  ASSERT_EQ(::mkfifo((dir / "run/samples/sample-009.txt").c_str(), 0600), 0);
  expect_refused_with({"report", "run"}, "run/samples/sample-009.txt: is neither a file nor a folder");
  EXPECT_EQ(text_of(dir / "victim"), "mine\n");
}

TEST_F(ForeignRun, TheRunItselfMayBeALink) {
  fs::rename(dir / "run", dir / "disk");
  fs::create_symlink("disk", dir / "run");
  for (const Arguments& command : {Arguments{"eval", "run"},
                                   {"sample", "run", "--length", "8"},
                                   {"report", "run"},
                                   {"train", "r.yaml", "--run", "run", "--resume"}})
    run_well(command);
  EXPECT_TRUE(fs::exists(dir / "disk/report.html"));
  EXPECT_TRUE(fs::is_symlink(dir / "run"));
}

// Files of six gigabytes that take up no disk, within four gigabytes of address space.
TEST_F(ForeignRun, HugeFilesTakeNoMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need address space";
#endif
  rlimit before = {};
  ::getrlimit(RLIMIT_AS, &before);
  const auto limited = [&](const Arguments& command) {
    const rlimit limit = {rlim_t{4} << 30, before.rlim_max};
    ::setrlimit(RLIMIT_AS, &limit);
    const CommandResult result = run(command);
    ::setrlimit(RLIMIT_AS, &before);
    EXPECT_TRUE(result.exit_code == 0 || result.exit_code == 2) << result.exit_code << result.err;
    EXPECT_EQ(result.err.find("out of memory"), std::string::npos) << command.front() << ": " << result.err;
    return result.err;
  };
  constexpr std::uint64_t huge = std::uint64_t{6} << 30;
  for (const char* name : {"run/metrics.jsonl", "run/evaluations.jsonl", "run/environment.json",
                           "run/samples/sample-000.txt", "run/attention/attention.json", "run/report.html"}) {
    if (!fs::exists(dir / name)) write(name, "");
    fs::resize_file(dir / name, huge);
    limited({"report", "run"});
  }
  limited({"eval", "run"});
  limited({"train", "r.yaml", "--run", "run", "--resume"});
  fs::resize_file(dir / step_4 + "state.json", huge);
  EXPECT_NE(limited({"eval", "run"}).find("state.json: has 6442450944 bytes, but at most"), std::string::npos);
}

TEST_F(ForeignRun, TensorsOfAnotherStepAreRefused) {
  fs::copy_file(dir / "run/checkpoints/step-00000002/model.safetensors", dir / step_4 + "model.safetensors",
                fs::copy_options::overwrite_existing);
  rewrite([](CheckpointManifest&) {});
  expect_refused_with(
      {"eval", "run", "--checkpoint", "4"},
      "model.safetensors: holds tensors of step 2, but the checkpoint is of step 4; copy the checkpoint again");
  const CommandResult last = run({"eval", "run"});
  EXPECT_EQ(last.exit_code, 0);
  EXPECT_NE(last.out.find("step 2"), std::string::npos) << last.out;
}

TEST_F(ForeignRun, ItsRecipeReadsNoOtherFile) {
  write("secret", "password: 1\n");
  rewrite([](CheckpointManifest& manifest) { manifest.state.recipe = "base: secret\n" + manifest.state.recipe; });
  for (const char* command : {"eval", "report", "sample"})
    expect_refused_with({command, "run"}, "run/recipe.yaml:1: the recipe of a run is whole, but this one has a base");
}

// As save_pretrained writes the weights of the last checkpoint; several files have an index.
void write_pretrained(const TemporaryDirectory& dir, const std::string& folder, std::size_t files, Dtype dtype) {
  const SafetensorsReader source(dir / step_4 + "model.safetensors");
  nlohmann::json index;
  for (std::size_t f = 0; f < files; ++f) {
    const std::string name = files == 1 ? "model.safetensors" : fmt::format("model-{}.safetensors", f);
    std::vector<TensorEntry> entries;
    std::vector<std::string> values;
    for (std::size_t i = f; i < source.entries().size(); i += files) {
      const TensorEntry& entry = source.entries()[i];
      std::vector<float> read(static_cast<std::size_t>(entry.shape.count()));
      source.read(entry.name, Tensor(read.data(), Dtype::f32, entry.shape));
      const std::vector<double> wide(read.begin(), read.end());
      values.emplace_back(
          dtype == Dtype::f64 ? reinterpret_cast<const char*>(wide.data()) : reinterpret_cast<const char*>(read.data()),
          read.size() * kernels::bytes_of(dtype));
      entries.push_back({"model." + entry.name, dtype, entry.shape});
      index["weight_map"]["model." + entry.name] = name;
    }
    write_text(dir / (folder + "/config.json"), R"({"model_type": "longstride"})");
    SafetensorsWriter writer(dir / (folder + "/" + name), entries, {{"format", "pt"}});
    for (std::size_t i = 0; i < entries.size(); ++i) writer.write(Tensor(values[i].data(), dtype, entries[i].shape));
    writer.finish();
  }
  if (files > 1) write_text(dir / (folder + "/model.safetensors.index.json"), index.dump());
}

// The bytes behind the header.
std::string tensors_of(const std::string& path) {
  const std::string all = text_of(path);
  std::uint64_t header = 0;
  std::memcpy(&header, all.data(), sizeof(header));
  return all.substr(sizeof(header) + header);
}

TEST_F(ForeignRun, TrainingBeginsFromWhatSavePretrainedWrites) {
  write_pretrained(dir, "whole", 1, Dtype::f32);
  write_pretrained(dir, "divided", 3, Dtype::f32);
  write_pretrained(dir, "wide", 1, Dtype::f64);
  fs::create_directory(dir / "cache");  // has links, as the cache of downloads does
  for (const char* name : {"config.json", "model.safetensors"})
    fs::create_symlink("../whole/" + std::string(name), dir / (std::string("cache/") + name));
  for (const std::string from : {"whole", "whole/model.safetensors", "divided", "wide", "cache"}) {
    run_well({"train", "r.yaml", "--run", "new", "--from", from, "--set", "train.lr=1.0e-30", "--set", "train.steps=2",
              "--set", "train.warmup=0"});
    EXPECT_EQ(tensors_of(dir / "new/checkpoints/step-00000002/model.safetensors"),
              tensors_of(dir / step_4 + "model.safetensors"))
        << from;
    EXPECT_NE(text_of(dir / "new/environment.json").find("\"from\": \"" + (dir / from) + "\""), std::string::npos);
    fs::remove_all(dir / "new");
  }
  const auto from = [&](const std::string& place, const Arguments& more = {}) {
    Arguments all = {"train", "r.yaml", "--run", "new", "--from", place};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  expect_refused_with(from("whole", {"--weights", "last"}),
                      "--from whole is a folder of weights, which has no checkpoints or averages to choose from");
  expect_refused_with(
      from("whole", {"--set", "model.width=32"}),
      "--from whole: the weights do not fit the recipe's model: embedding.start is (16) there and (32)");
  write("divided/model.safetensors.index.json", R"({"weight_map": {"model.a": "../whole/model.safetensors"}})");
  expect_refused_with(from("divided"),
                      "divided/model.safetensors.index.json: must be JSON whose 'weight_map' names a file");
  write("gpt/config.json", R"({"model_type": "gpt2"})");
  expect_refused_with(from("gpt"),
                      "--from gpt: its config.json is not of a model that Longstride wrote (save_pretrained)");
  EXPECT_FALSE(fs::exists(dir / "new"));
}

TEST_F(ForeignRun, WeightsInOtherFormatsAreNamed) {
  const auto refused = [&](const std::string& content, const std::string& words) {
    write("weights.pt", content);
    expect_refused_with({"train", "r.yaml", "--run", "new", "--from", "weights.pt"}, "--from weights.pt: is " + words);
  };
  const std::string remedy =
      "a PyTorch checkpoint, a pickle, which may run any program when it is read; write its tensors with "
      "safetensors.torch.save_file(torch.load(\"weights.pt\", weights_only=True), \"weights.safetensors\")";
  refused("PK\x03\x04" + std::string(26, 'x') + "weights/data.pklFB", remedy);
  refused("\x80\x02\x8a\nl\xfc\x9c", remedy);
  refused("PK\x03\x04" + std::string(26, 'x') + "weights.npy", "a ZIP archive");
  refused("\x89HDF\r\n\x1a\n", "an HDF5 file");
  refused("GGUF\x03", "a GGUF file");
}

}  // namespace
}  // namespace longstride::testing::foreign_run_test
