// Malformed recipes given to the command itself: exit code 2 and one line that says where, what and what is allowed.
// The tests of launch/recipe have every sentence of the parser, command_test.cpp the mistakes on the command line.
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

TEST_F(Malformed, Recipes) {
  recipe_refused(edited(small_recipe, "heads: 2", "haeds: 2"),
                 {"r.yaml:7: ", "unknown key 'haeds'", "did you mean 'heads'?"});
  recipe_refused(edited(small_recipe, "name: small", "base: folder"), {"r.yaml:1: ", "folder is a directory"});
  recipe_refused("name: x\n\tdata: y\n", {"r.yaml:2: ", "indented with a tab", "use spaces"});
  recipe_refused(std::string("\x7f"
                             "ELF\x02\x01\x01\0\0\0",
                             10),
                 {"r.yaml: ", "zero bytes"});
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
      {"model..layers=3", {"empty key"}},
      {"model.layers.deep=3", {"'deep' is a key below a value that has no keys"}},
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
