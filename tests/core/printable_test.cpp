#include "framework/core/text/printable.h"

#include <gtest/gtest.h>

namespace longstride {
namespace {

TEST(Printable, WhatCanBeShownStaysAsItIs) {
  for (const char* text :
       {"", "data/x.h5", "R\xc3\xa9sum\xc3\xa9 \xe6\x96\x87 \xf0\x9f\x8e\xb5", "C:\\n", "a 'b' \"c\""})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, ControlCharactersAreEscaped) {
  EXPECT_EQ(printable("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  EXPECT_EQ(printable("\x1b[31mred\x7f"), "\\x1b[31mred\\x7f");
  EXPECT_EQ(printable(std::string("\0a", 2)), "\\x00a");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\u009b31m");  // the same escape sequence in one character
  EXPECT_EQ(printable("gpj\xe2\x80\xae.exe"), "gpj\\u202e.exe");
}

TEST(Printable, BytesThatAreNotUtf8AreEscaped) {
  EXPECT_EQ(printable("a\xff\xfe"
                      "b"),
            "a\\xff\\xfeb");
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");           // overlong
  EXPECT_EQ(printable("\xe0\x80\x80"), "\\xe0\\x80\\x80");  // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // half of a surrogate pair
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(printable("caf\xc3"), "caf\\xc3");  // cut short
}

// A line break cannot fake a separate message.
TEST(Printable, AMessageKeepsTheLinesOfItsListsOnly) {
  EXPECT_EQ(printable_message("2 mistakes:\n  a.yaml:1: x\n  a.yaml:2: \x1b"),
            "2 mistakes:\n  a.yaml:1: x\n  a.yaml:2: \\x1b");
  EXPECT_EQ(printable_message("a\nlongstride: b\n c\n"), "a\\nlongstride: b\\n c\\n");
}

TEST(Printable, ABeginningEndsAfterAWholeCharacter) {
  EXPECT_EQ(printable_beginning("caf\xc3\xa9\x1b", 6), "caf\xc3\xa9\\x1b");
  EXPECT_EQ(printable_beginning("caf\xc3\xa9\x1b", 5), "caf\xc3\xa9...");
  EXPECT_EQ(printable_beginning("caf\xc3\xa9", 4), "caf...");
  EXPECT_EQ(printable_beginning(std::string(81, 'n')), std::string(80, 'n') + "...");
}

TEST(Printable, EscapingTwiceIsEscapingOnce) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  EXPECT_EQ(printable(printable(all)), printable(all));
}

}  // namespace
}  // namespace longstride
