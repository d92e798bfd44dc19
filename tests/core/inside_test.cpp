#include "framework/core/files/inside.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "framework/core/text/json.h"
#include "tests/support/temporary_directory.h"

namespace longstride::testing::inside_test {
namespace {

namespace fs = std::filesystem;

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

TEST(Inside, FollowsALinkToTheFolderButNoneInIt) {
  const TemporaryDirectory dir;
  fs::create_directories(dir / "a/b");
  write(dir / "a/b/c", "text");
  fs::create_symlink("a", dir / "link");
  EXPECT_EQ(read_at_most(inside(dir / "link", "b/c")), "text");
  EXPECT_EQ(inside(dir / "a", "b/absent/x"), dir / "a/b/absent/x");
  fs::create_symlink("b", dir / "a/d");
  fs::create_symlink("nowhere", dir / "a/e");
  for (const char* name : {"d/c", "d", "e"})
    EXPECT_NE(user_error_of([&] { inside(dir / "a", name); }).find(": is a link, and links within"), std::string::npos);
  fs::create_symlink("../a", dir / "a/b/up");
  inside(dir / "a", "b");
  EXPECT_NE(user_error_of([&] { folder_inside(dir / "a", "b"); }).find("b/up: is a link"), std::string::npos);
  ASSERT_EQ(::mkfifo((dir / "a/pipe").c_str(), 0600), 0);
  EXPECT_EQ(user_error_of([&] { inside(dir / "a", "pipe"); }),
            (dir / "a/pipe") + ": is neither a file nor a folder; remove it");
}

TEST(Inside, WhatIsReadWholeHasABound) {
  const TemporaryDirectory dir;
  write(dir / "x", "12345678");
  EXPECT_EQ(read_at_most(dir / "x", 8), "12345678");
  EXPECT_NE(user_error_of([&] { read_at_most(dir / "x", 7); }).find("has 8 bytes, but at most 7 are read"),
            std::string::npos);
  EXPECT_EQ(read_beginning(dir / "x", 3), "123");
}

TEST(Inside, LinesOfAnySizeOfFileAreReadUntilOneIsTooLong) {
  const TemporaryDirectory dir;
  const auto lines_of = [&](const std::string& text) {
    write(dir / "x", text);
    std::vector<std::string> lines;
    const std::int64_t foreign = for_each_line(dir / "x", [&](const std::string& line) { lines.push_back(line); });
    return std::pair(lines, foreign);
  };
  using Lines = std::vector<std::string>;
  EXPECT_EQ(lines_of(""), std::pair(Lines{}, std::int64_t{0}));
  EXPECT_EQ(lines_of("a\n\nb"), std::pair(Lines{"a", "", "b"}, std::int64_t{0}));
  const std::string longest(longest_line, 'x');
  EXPECT_EQ(lines_of("a\n" + longest + "\nb\n"), std::pair(Lines{"a", longest, "b"}, std::int64_t{0}));
  EXPECT_EQ(lines_of("a\n" + longest + "x\nb\n"), std::pair(Lines{"a"}, std::int64_t{2}));
}

TEST(Inside, AFileThatIsNearlyAllHoleIsHollow) {
  const TemporaryDirectory dir;
  write(dir / "x", "abc");
  EXPECT_FALSE(is_hollow(dir / "x"));
  fs::resize_file(dir / "x", std::uintmax_t{1} << 20);
  EXPECT_FALSE(is_hollow(dir / "x"));  // a small one is soon read
  fs::resize_file(dir / "x", std::uintmax_t{6} << 30);
  EXPECT_TRUE(is_hollow(dir / "x"));
}

TEST(Json, IsParsedToADepth) {
  EXPECT_EQ(parse_json(R"({"a": [1, "]]}}[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[["]})").at("a").at(0), 1);
  EXPECT_FALSE(parse_json(std::string(16, '[') + std::string(16, ']')).is_discarded());
  EXPECT_TRUE(parse_json(std::string(17, '[') + std::string(17, ']')).is_discarded());
  EXPECT_TRUE(parse_json(std::string(1 << 20, '[')).is_discarded());
  EXPECT_TRUE(parse_json("{").is_discarded());
}

}  // namespace
}  // namespace longstride::testing::inside_test
