// A value that --set assigns to a key of text is taken whole; other values are YAML, or the value itself.
#include <gtest/gtest.h>

#include "launch/recipe/recipe.h"
#include "tests/launch/recipe/recipe_texts.h"
#include "tests/support/command.h"

namespace longstride::testing::recipe_overrides_test {
namespace {

Recipe with(const std::vector<std::string>& overrides) { return parse_recipe(small_recipe, "r.yaml", overrides); }

TEST(RecipeOverrides, TextIsTakenWhole) {
  for (const char* text :
       {"sweep #2", "# 2",  "a: b", "[x]",  "[x].h5", "{x",   "@x",     "%x",  "*x",  "&x",   "!x",
        "`x`",      "x\"y", "- x",  "a, b", "1e3",    "true", "key: [", "| x", "> x", "100%", "x y"}) {
    EXPECT_EQ(with({std::string("name=") + text}).name, text) << text;
    EXPECT_EQ(with({std::string("data.path=d/") + text}).data.path, std::string("d/") + text) << text;
    EXPECT_EQ(with({std::string("train.mirror=") + text}).train.mirror, text) << text;
    const Recipe resolved = recipe_of_run(with({std::string("data.path=") + text}).resolved, "recipe.yaml");
    EXPECT_EQ(resolved.data.path, text);
  }
  EXPECT_EQ(with({"name='sweep #2'"}).name, "sweep #2");  // quoted for YAML, as before
  EXPECT_EQ(with({"name= x "}).name, "x");
}

TEST(RecipeOverrides, NothingBehindAValueIsDropped) {
  const auto error = [](const std::string& set) { return user_error_of([&] { with({set}); }); };
  EXPECT_NE(error("model.layers=2 # two").find("model.layers is 2 # two, but must be"), std::string::npos);
  EXPECT_NE(error("model.kind=decoder # x").find("model.kind is decoder # x, but must be"), std::string::npos);
  EXPECT_NE(error("model.layers=*a").find("model.layers is *a, but must be"), std::string::npos);
  EXPECT_NE(error("train.stages=[{until: 5").find("but must be a list of maps"), std::string::npos);
}

TEST(RecipeOverrides, OtherValuesRemainYaml) {
  const Recipe recipe = with({"train.stages=[{until: 5, context: 8}]", "train.lr=1e-4"});
  EXPECT_EQ(recipe.train.stages.size(), 1u);
  EXPECT_EQ(recipe.train.lr, 1e-4);
}

TEST(RecipeFiles, ThatArePointersOrUtf16AreNamed) {
  const TemporaryDirectory dir;
  write_text(dir / "r.yaml", "version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 1\n");
  EXPECT_NE(user_error_of([&] { read_recipe(dir / "r.yaml"); }).find("git lfs pull"), std::string::npos);
  write_text(dir / "r.yaml", std::string("\xff\xfen\0a\0m\0e\0", 10));
  EXPECT_NE(user_error_of([&] { read_recipe(dir / "r.yaml"); }).find("iconv -f UTF-16"), std::string::npos);
}

// Names of files with what CLI11, YAML and shells of other programs take apart.
TEST(RecipePaths, AreTakenWhole) {
  const TemporaryDirectory dir;
  for (const char* name : {"a #1 [x] @y %z *.txt", "[x]", "[x,y]", "%s%n", "{}"}) {
    const std::string data = std::string(name) + ".h5", recipe = std::string(name) + ".yaml";
    write_text(dir / name, std::string(2000, 'x') + name);
    write_text(dir / recipe, small_recipe);
    CommandResult result = run_command({"prepare", "bytes", "--input", name, "--output", data}, dir.path());
    EXPECT_EQ(result.exit_code, 0) << result.err;
    result = run_command({"plan", recipe, "--set", "data.path=" + data, "--device", "cpu", "--peak-tflops", "1"},
                         dir.path());
    EXPECT_NE(result.out.find("passes over 1,8"), std::string::npos) << result.out << result.err;
  }
  write_text(dir / "second", "more");
  const CommandResult both =
      run_command({"prepare", "bytes", "--input", "[x]", "second", "--output", "y.h5"}, dir.path());
  EXPECT_EQ(both.exit_code, 0) << both.err;
  EXPECT_NE(both.out.find("second"), std::string::npos) << both.out;
}

}  // namespace
}  // namespace longstride::testing::recipe_overrides_test
