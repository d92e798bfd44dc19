// Malformed recipes given to the command itself: exit code 2 and one line that says where, what and what is allowed.
// recipe_errors_test.cpp has every sentence of the parser, command_test.cpp the mistakes on the command line.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "tests/launch/recipe/recipe_texts.h"
#include "tests/support/command.h"

namespace longstride::testing {
namespace {

using Words = std::vector<std::string>;

class Malformed : public ::testing::Test {
 protected:
  Malformed() {
    write_text(dir_ / "good.yaml", small_recipe);
    write_text(dir_ / "words", "no HDF5\n");
    std::filesystem::create_directory(dir_ / "folder");
  }

  void refused(const Words& arguments, const Words& expected) {
    std::string line;
    for (const std::string& a : arguments) line += " " + (a.size() < 80 ? a : a.substr(0, 77) + "...");
    SCOPED_TRACE("longstride" + line);
    const CommandResult r = run_command(arguments, dir_.path());
    EXPECT_EQ(r.exit_code, 2) << r.err;
    EXPECT_EQ(r.err.rfind("longstride: ", 0), 0u) << r.err;
    EXPECT_EQ(r.err.find('\n') + 1, r.err.size()) << r.err;
    EXPECT_LT(r.err.size(), 400u) << r.err;
    for (const std::string& words : expected) EXPECT_NE(r.err.find(words), std::string::npos) << words << "\n" << r.err;
  }
  void recipe_refused(const std::string& text, const Words& expected) {
    write_text(dir_ / "r.yaml", text);
    refused({"plan", "r.yaml"}, expected);
  }

  const TemporaryDirectory dir_;
};

struct Edit {
  const char *from, *to;
  Words expected;
};

TEST_F(Malformed, ValuesAndKeysOfARecipe) {
  const Edit edits[] = {
      {"heads: 2", "haeds: 2", {"r.yaml:7: ", "unknown key 'haeds'", "did you mean 'heads'?"}},
      {"heads: 2", "heads: 2\n  dropuot: 0.1", {"r.yaml:8: ", "'dropuot' in model", "did you mean 'dropout'?"}},
      {"name: small", "name: small\nname: b", {"r.yaml:2: ", "'name' is given twice", "r.yaml:1"}},
      {"  lr: 1.0e-3\n", "", {"r.yaml:13: ", "train.lr is missing"}},
      {"layers: 2", "layers: two", {"r.yaml:5: ", "model.layers is two", "positive whole number"}},
      {"layers: 2", "layers: [2]", {"r.yaml:5: ", "model.layers is a list"}},
      {"layers: 2", "layers: 99999", {"r.yaml:5: ", "99999", "at most 4096"}},
      {"layers: 2", "layers:", {"r.yaml:5: ", "model.layers has no value"}},
      {"heads: 2", "heads: 3", {"r.yaml:7: ", "model.heads is 3", "must divide model.width, 16"}},
      {"heads: 2", "heads: 2\n  key_ratio: 0.3", {"r.yaml:8: ", "model.key_ratio is 0.3", "whole number"}},
      {"heads: 2", "heads: 2\n  feed_forward_ratio: 0.03", {"r.yaml:8: ", "is 0.03", "inner width of 0.48"}},
      {"merged", "merge", {"r.yaml:9: ", "interleaved or merged or multihead", "did you mean 'merged'?"}},
      {"fixed_summary]", "summary]", {"r.yaml:10: ", "model.attention.parts is summary", "fixed_summary"}},
      {"stride: 8", "stride: 0", {"r.yaml:11: ", "model.attention.stride is 0", "positive number of positions"}},
      {"summary: 2", "summary: 9", {"r.yaml:12: ", "model.attention.summary is 9", "at most the stride 8"}},
      {"kind: bytes", "kind: text", {"r.yaml:2: ", "data.kind is text", "bytes or cifar10 or images or audio"}},
      {"name: small", "name: a/b", {"r.yaml:1: ", "name is 'a/b'", "no slashes"}},
      {"global_batch: 4", "global_batch: 4\n  micro_batch: 3", {"r.yaml:16: ", "must divide train.global_batch, 4"}},
      {"name: small", "base: nowhere.yaml", {"r.yaml:1: ", "nowhere.yaml", "cannot be read"}},
      {"name: small", "base: folder", {"r.yaml:1: ", "folder is a directory"}},
      {"name: small", "base: [a]", {"r.yaml:1: ", "base is a list"}},
  };
  for (const Edit& edit : edits) recipe_refused(edited(small_recipe, edit.from, edit.to), edit.expected);
}

TEST_F(Malformed, BasesOfBases) {
  write_text(dir_ / "a.yaml", small_recipe);
  write_text(dir_ / "b.yaml", "base: a.yaml\n");
  recipe_refused("base: b.yaml\n", {"b.yaml:1: ", "only one level"});
  recipe_refused("base: r.yaml\nname: itself\n", {"r.yaml:1: ", "only one level"});
}

TEST_F(Malformed, TextThatIsNotARecipe) {
  const std::string small = small_recipe;
  recipe_refused("", {"r.yaml:1: ", "this is empty"});
  recipe_refused("- a\n", {"r.yaml:1: ", "a list"});
  recipe_refused("a: &x 1\nb: *x\n", {"r.yaml:1: ", "no anchors or aliases"});
  recipe_refused("a: !!int 3\n", {"r.yaml:1: ", "no tags"});
  recipe_refused("name: x\n\tdata: y\n", {"r.yaml:2: ", "indented with a tab", "use spaces"});
  recipe_refused("name: x\ndata: [y\n", {"r.yaml:3: ", "not YAML"});
  recipe_refused(small + "---\n" + small, {"r.yaml: ", "more than one YAML document"});
  recipe_refused(std::string("\x7f"
                             "ELF\x02\x01\x01\0\0\0",
                             10),
                 {"r.yaml: ", "zero bytes"});
  recipe_refused("name: \xff\n", {"r.yaml:1: ", "0xff is not UTF-8"});
  recipe_refused("name: " + std::string(5000, '['), {"r.yaml:1: ", "nested deeper than 16 levels"});
  recipe_refused(std::string(3 << 20, '#'), {"r.yaml: ", "more than 1048576 bytes"});
}

TEST_F(Malformed, PathsThatDoNotFit) {
  for (const char* command : {"plan", "train"}) refused({command, ""}, {"'' names no file"});
  refused({"show", "pattern", "folder"}, {"folder: holds no checkpoint"});
  refused({"train", "good.yaml", "--set", "data.path=folder"}, {"folder", "directory"});
  for (const char* command : {"eval", "sample"})
    for (const auto& [run, what] :
         {std::pair("nowhere", "there is no such run"), {"words", "is a file; give the directory of a run"}})
      refused({command, run}, {run, what});
  refused({"info", "nowhere.h5"}, {"nowhere.h5"});
  refused({"info", "folder"}, {"folder", "directory"});
}

TEST_F(Malformed, Overrides) {
  const std::pair<const char*, Words> cases[] = {
      {"=3", {"--set =3: ", "KEY=VALUE"}},
      {"model..layers=3", {"empty key"}},
      {"model.layers.deep=3", {"'deep' is a key below a value that has no keys"}},
      {"model.layrs=3", {"unknown key 'layrs' in model", "did you mean 'layers'?"}},
      {"model.layers=", {"model.layers has no value"}},
      {"model.layers=0", {"--set model.layers=0: ", "positive whole number"}},
  };
  for (const auto& [assignment, words] : cases) refused({"plan", "good.yaml", "--set", assignment}, words);
}

// Cut at every 16th: planned if what is left is a whole recipe, otherwise refused with a line for each mistake.
TEST_F(Malformed, ARecipeCutShort) {
  const std::string whole = text_of(LONGSTRIDE_SOURCE_DIR "/recipes/table1/cifar10-strided.yaml");
  ASSERT_GT(whole.size(), 500u);
  int planned = 0;
  for (std::size_t cut = 0; cut <= 16; ++cut) {
    write_text(dir_ / "r.yaml", whole.substr(0, whole.size() * cut / 16));
    const CommandResult r = run_command({"plan", "r.yaml"}, dir_.path());
    planned += r.exit_code == 0 ? 1 : 0;
    if (r.exit_code == 0) continue;
    EXPECT_EQ(r.exit_code, 2) << r.err;
    std::istringstream lines(r.err);
    for (std::string line; std::getline(lines, line);)
      EXPECT_TRUE(line.starts_with("longstride: r.yaml:") || line.starts_with("  r.yaml:")) << line;
  }
  EXPECT_GE(planned, 1);
  EXPECT_LE(planned, 3);
}

}  // namespace
}  // namespace longstride::testing
