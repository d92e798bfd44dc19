// A small model of text that every command runs in a moment, and a folder to run it in.
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/command.h"

namespace longstride::testing {

using Arguments = std::vector<std::string>;

// `train`: the keys of the recipe's section of that name.
inline std::string text_recipe(int layers = 1,
                               const std::string& train = "steps: 2, global_batch: 2, lr: 1.0e-3, warmup: 1",
                               int context = 64) {
  return fmt::format(R"(name: small
data: {{kind: bytes, path: x.h5, context: {}}}
model:
  kind: sparse_transformer
  layers: {}
  width: 16
  heads: 2
  attention: {{integration: merged, parts: [fixed_block, fixed_summary], stride: 8, summary: 2}}
train: {{{}}}
)",
                     context, layers, train);
}

// A decoder that remembers the segments before. `memory`, `train`: the keys of these sections.
inline std::string remembering_recipe(const std::string& memory, const std::string& train, int context = 32,
                                      const std::string& dropout = "0") {
  return fmt::format(R"(name: remembers
data: {{kind: bytes, path: x.h5, context: {}, order: streams}}
model:
  kind: decoder
  layers: 2
  width: 16
  heads: 2
  positions: none
  dropout: {}
  distance: {{table: sinusoid}}
  memory: {{{}}}
train: {{{}}}
)",
                     context, dropout, memory, train);
}

inline std::string letters(int count, char first = 'a') {
  std::string text;
  for (int i = 0; i < count; ++i) text += static_cast<char>(first + i * i % 23);
  return text;
}

// Writes text.bin, x.h5 prepared from it, and the recipe as r.yaml.
inline void prepare_text(const TemporaryDirectory& dir, const std::string& recipe) {
  write_text(dir / "text.bin", letters(4000));
  write_text(dir / "r.yaml", recipe);
  EXPECT_EQ(run_command({"prepare", "bytes", "--input", "text.bin", "--output", "x.h5"}, dir.path()).exit_code, 0);
}

// Every test has a folder of its own with a prepared text, `files`, and what `commands` have made of them: a copy of
// one that is made once in a process.
class TextRun : public ::testing::Test {
 protected:
  explicit TextRun(const std::string& recipe = text_recipe(),
                   const std::vector<Arguments>& commands = {{"train", "r.yaml", "--run", "run"}},
                   const std::map<std::string, std::string>& files = {}) {
    static std::map<std::tuple<std::string, std::vector<Arguments>, std::map<std::string, std::string>>,
                    TemporaryDirectory>
        all;
    const auto [made, is_new] = all.try_emplace({recipe, commands, files});
    if (is_new) {
      prepare_text(made->second, recipe);
      for (const auto& [name, text] : files) write_text(made->second / name, text);
      for (const Arguments& command : commands) {
        const CommandResult result = run_command(command, made->second.path());
        EXPECT_EQ(result.exit_code, 0) << result.err;
      }
    }
    std::filesystem::copy(made->second.path(), dir.path(),
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
  }

  CommandResult run(const Arguments& arguments, int ranks = 1) const {
    return run_command(arguments, dir.path(), 120, ranks);
  }
  CommandResult run_well(const Arguments& arguments, int ranks = 1) const {
    CommandResult result = run(arguments, ranks);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result;
  }
  // In one line, `sentence`, and without output.
  void expect_refused(const Arguments& arguments, const std::string& sentence) const {
    SCOPED_TRACE(fmt::format("{}", fmt::join(arguments, " ")));
    const CommandResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err, "longstride: " + sentence + "\n");
  }
  void expect_refused_with(const Arguments& arguments, const std::string& part, int ranks = 1) const {
    SCOPED_TRACE(fmt::format("{}", fmt::join(arguments, " ")));
    const CommandResult result = run(arguments, ranks);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  }
  std::string text(const std::string& name) const { return text_of(dir / name); }
  static std::string in_checkpoint(const std::string& run, int step, const std::string& name) {
    return fmt::format("{}/checkpoints/step-{:08}/{}", run, step, name);
  }
  std::string checkpoint_file(const std::string& run, int step, const std::string& name) const {
    return text(in_checkpoint(run, step, name));
  }
  void copy_run(const std::string& from, const std::string& to) const {
    std::filesystem::copy(dir / from, dir / to, std::filesystem::copy_options::recursive);
  }

  const TemporaryDirectory dir;
};

}  // namespace longstride::testing
