// A recipe is text: invalid UTF-8 and control characters are refused when it is read, with their line, wherever they
// occur. A comment with such a byte used to end the run at its first checkpoint.
#include <gtest/gtest.h>

#include "launch/recipe/recipe.h"
#include "tests/launch/recipe/recipe_texts.h"
#include "tests/support/command.h"

namespace longstride::testing::recipe_characters_test {
namespace {

using namespace std::string_literals;

std::string error_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return user_error_of([&] { parse_recipe(text, "r.yaml", overrides); });
}

// Overlong forms, surrogates, numbers above U+10FFFF, stray and missing continuations, bytes that never occur.
const std::string no_utf8[] = {"\x80",
                               "\xbf",
                               "\xc0\x80",
                               "\xc1\xbf",
                               "\xe0\x80\x80",
                               "\xe0\x9f\xbf",
                               "\xf0\x80\x80\x80",
                               "\xf0\x8f\xbf\xbf",
                               "\xed\xa0\x80",
                               "\xed\xbf\xbf",
                               "\xf4\x90\x80\x80",
                               "\xf5\x80\x80\x80",
                               "\xfe",
                               "\xff",
                               "\xc3",
                               "\xe2\x82",
                               "\xf0\x9f\x98",
                               "\xc3("};

TEST(RecipeCharacters, WhatIsNotUtf8IsRefusedAtItsLine) {
  for (const std::string& bytes : no_utf8) {
    char byte[8];
    std::snprintf(byte, sizeof byte, "%#04x", static_cast<unsigned char>(bytes[0]));
    const std::string sentence = ": byte "s + byte + " is not UTF-8; a recipe is YAML text";
    EXPECT_EQ(error_of(edited(small_recipe, "layers: 2", "layers: 2  # " + bytes)), "r.yaml:5" + sentence);
    EXPECT_EQ(error_of(edited(small_recipe, "x.h5", "'x" + bytes + ".h5'")), "r.yaml:2" + sentence);
    EXPECT_EQ(error_of(edited(small_recipe, "summary: 2", "summ" + bytes + "ary: 2")), "r.yaml:12" + sentence);
    EXPECT_EQ(error_of(small_recipe + bytes), "r.yaml:18" + sentence);
    EXPECT_NE(error_of(small_recipe, {"data.path=x" + bytes}).find(sentence), std::string::npos);
  }
}

TEST(RecipeCharacters, ControlCharactersAreRefusedAsTheyAreAndEscaped) {
  const std::pair<std::string, const char*> controls[] = {
      {"\x01", "\\x01"}, {"\x1b", "\\x1b"}, {"\x7f", "\\x7f"}, {"\xc2\x9b", "\\u009b"}};
  for (const auto& [raw, shown] : controls) {
    const std::string sentence = ": the control character "s + shown + " occurs here; a recipe is YAML text";
    EXPECT_EQ(error_of(edited(small_recipe, "layers: 2", "layers: 2  # " + raw)), "r.yaml:5" + sentence);
  }
  for (const char* escape : {"\\0", "\\e", "\\a", "\\x7f", "\\u009b"})
    EXPECT_NE(error_of(edited(small_recipe, "x.h5", "\"x"s + escape + "\"")).find("r.yaml:2: the control character "),
              std::string::npos)
        << escape;
  EXPECT_EQ(error_of(small_recipe + "\0"s), "r.yaml: holds zero bytes; a recipe is YAML text");
}

TEST(RecipeCharacters, OtherCharactersOfAllLengthsAreText) {
  for (const std::string text :
       {"\t", "\xc2\xa0", "\xc3\xa9", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xe2\x82\xac",
        "\xf0\x90\x80\x80", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(parse_recipe(edited(small_recipe, "x.h5", "\"x" + text + "\""), "r").data.path, "x" + text);
    EXPECT_EQ(error_of(edited(small_recipe, "layers: 2", "layers: 2  # " + text)), "");
  }
}

// Messages with a value have one line, without control characters, and are cut between characters.
TEST(RecipeCharacters, MessagesShowValuesOnOneLine) {
  EXPECT_EQ(error_of(edited(small_recipe, "layers: 2", "layers: \"a\\nb\"")),
            "r.yaml:5: model.layers is 'a\\nb', but must be a positive whole number");
  EXPECT_EQ(error_of(edited(small_recipe, "name: small", "name: \"\\\xde\x8b\"")),  // the parser quotes its first byte
            "r.yaml:1: not YAML: unknown escape character: \\xde");
  std::string euros;
  for (int i = 0; i < 30; ++i) euros += "\xe2\x82\xac";
  EXPECT_EQ(error_of(edited(small_recipe, "layers: 2", "layers: " + euros)),
            "r.yaml:5: model.layers is " + euros.substr(0, 57) + "..., but must be a positive whole number");
}

TEST(RecipeCharacters, ABaseAndTheCommandLineAreCheckedToo) {
  const TemporaryDirectory dir;
  write_text(dir / "base.yaml", edited(small_recipe, "stride: 8", "stride: 8  # \xed\xa0\x80"));
  write_text(dir / "r.yaml", "base: base.yaml\nname: mine\n");
  write_text(dir / "good.yaml", small_recipe);
  const CommandResult base = run_command({"train", "r.yaml"}, dir.path());
  EXPECT_EQ(base.exit_code, 2);
  EXPECT_EQ(base.err, "longstride: base.yaml:11: byte 0xed is not UTF-8; a recipe is YAML text\n");
  const CommandResult set = run_command({"train", "good.yaml", "--set", "data.path=x\xff\x1b.h5"}, dir.path());
  EXPECT_EQ(set.exit_code, 2);
  EXPECT_EQ(set.err, "longstride: --set data.path=x\\xff\\x1b.h5: byte 0xff is not UTF-8; a recipe is YAML text\n");
}

}  // namespace
}  // namespace longstride::testing::recipe_characters_test
