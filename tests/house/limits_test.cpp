// The limits of the house (docs/develop/contributing.md): files of at most 500 lines, folders of at most 25 files,
// functions of at most 60 lines. Functions for the GPU are exempt, because a kernel is one loop over registers that
// cannot be divided.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "tests/house/comments.h"
#include "tests/house/functions.h"

namespace longstride::house {
namespace {

namespace fs = std::filesystem;

constexpr int most_lines = 500, most_files = 25, most_lines_of_a_function = 60;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool is_source(const fs::path& path) {
  static const std::set<std::string> endings = {".h", ".cpp", ".cu", ".cuh", ".py", ".sh", ".cmake", ".txt", ".yaml"};
  return endings.contains(path.extension().string());
}

bool is_cpp(const fs::path& path) {
  static const std::set<std::string> endings = {".h", ".cpp", ".cu", ".cuh"};
  return endings.contains(path.extension().string());
}

// Every file of the repository's folders, as a path from the root. What Python leaves behind does not count.
std::vector<fs::path> files() {
  std::vector<fs::path> found;
  for (const char* folder : {"cmake", "datasets", "docs", "framework", "kernels", "launch", "recipes", "tests"})
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(LONGSTRIDE_SOURCE_DIR) / folder))
      if (entry.is_regular_file() && entry.path().extension() != ".pyc")
        found.push_back(entry.path().lexically_relative(LONGSTRIDE_SOURCE_DIR));
  return found;
}

TEST(Limits, NoSourceFileHasMoreThan500Lines) {
  int read = 0;
  for (const fs::path& path : files()) {
    if (!is_source(path)) continue;
    const std::string text = text_of(fs::path(LONGSTRIDE_SOURCE_DIR) / path);
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), most_lines) << path;
    ++read;
  }
  EXPECT_GT(read, 300);
}

TEST(Limits, NoFolderHasMoreThan25Files) {
  std::map<fs::path, int> count;
  for (const fs::path& path : files()) ++count[path.parent_path()];
  for (const auto& [folder, number] : count) EXPECT_LE(number, most_files) << folder;
  EXPECT_GT(count.size(), 50u);
}

TEST(Limits, NoFunctionHasMoreThan60Lines) {
  std::size_t read = 0;
  std::string where;
  for (const fs::path& path : files()) {
    if (!is_cpp(path)) continue;
    for (const Function& f : functions_of(text_of(fs::path(LONGSTRIDE_SOURCE_DIR) / path))) {
      ++read;
      if (f.on_gpu || f.lines <= most_lines_of_a_function) continue;
      where += path.string() + ":" + std::to_string(f.line) + ": " + f.head + "\n";
    }
  }
  EXPECT_EQ(where, "");
  EXPECT_GT(read, 2000u);
}

// Words as `wc -w` counts them, in pages whose paths begin so.
TEST(Limits, PagesStayShort) {
  std::vector<fs::path> pages = files();
  pages.insert(pages.end(), {"README.md", "CHANGELOG.md"});
  for (const auto& [begin, most] : std::map<std::string, std::ptrdiff_t>{
           {"", 58000}, {"docs/notes/", 8000}, {"docs/develop/kernels.md", 3500}, {"docs/guide/recipes.md", 5000}}) {
    std::ptrdiff_t words = 0;
    for (const fs::path& page : pages) {
      if (page.extension() != ".md" || !page.string().starts_with(begin)) continue;
      std::istringstream text(text_of(fs::path(LONGSTRIDE_SOURCE_DIR) / page));
      words += std::distance(std::istream_iterator<std::string>(text), {});
    }
    EXPECT_LE(words, most) << begin;
    EXPECT_GT(words, most / 2) << begin;
  }
}

TEST(Functions, AreFoundWithTheLinesBetweenTheirBraces) {
  const std::string source = R"(
#define OPEN(x) namespace x { \
  {
namespace a::b {
template <class T, int n = 3>
struct alignas(16) S {
  class C {
   public:
    struct D {
      void inner() {
      }
    };
  };
  S(int p) : x{p}, y("}") {
    x = '}';
    // }
    /* } */
  }
  std::string text() const override { return R"q(
}{{)q"; }
  int x = 1'000'000;
};
constexpr int table[] = {
    1,
    2,
};
enum class E { one, two };
extern "C" {
int c_function(struct S* s) { return 0; }
}
TEST(Suite, Name) {
  auto f = [&] {
    if (true) {
    }
  };
}
__global__ void kernel() {

}
}
)";
  std::vector<std::pair<std::string, int>> found;
  for (const Function& f : functions_of(source)) found.emplace_back(f.head + (f.on_gpu ? "GPU" : ""), f.lines);
  const std::vector<std::pair<std::string, int>> expected = {
      {"void inner() ", 0},
      {"S(int p) : x", 0},
      {", y( ) ", 3},
      {"std::string text() const override ", 0},
      {"int c_function(struct S* s) ", 0},
      {"TEST(Suite, Name) ", 4},
      {"__global__ void kernel() GPU", 1},
  };
  EXPECT_EQ(found, expected);
}

TEST(Limits, NoCommentBeginsWithOfWhatOrWhether) {
  std::size_t read = 0;
  std::string where;
  for (const fs::path& path : files()) {
    if (!is_cpp(path)) continue;
    for (const Comment& comment : comments_of(text_of(fs::path(LONGSTRIDE_SOURCE_DIR) / path))) {
      ++read;
      if (begins_badly(comment.text))
        where += path.string() + ":" + std::to_string(comment.line) + ": " + comment.text + "\n";
    }
  }
  EXPECT_EQ(where, "");
  EXPECT_GT(read, 1000u);
}

TEST(Comments, OfConsecutiveLinesAreOne) {
  const std::string source = R"(// First,
// of two lines.
int x;  // behind code
        // whether or not it continues
// before the next line
#pragma once  // of a directive
const char* s = "// of a literal";

//   after a gap
int y;
)";
  std::vector<std::pair<std::string, int>> found;
  for (const Comment& comment : comments_of(source)) found.emplace_back(comment.text, comment.line);
  const std::vector<std::pair<std::string, int>> expected = {
      {"First,", 1}, {"behind code", 3}, {"before the next line", 5}, {"after a gap", 9}};
  EXPECT_EQ(found, expected);
  for (const char* text : {"of branches", "What a step reads", "whether, and how"})
    EXPECT_TRUE(begins_badly(text)) << text;
  for (const char* text : {"", "offset of a row", "whatever it holds", "rows of a tile"})
    EXPECT_FALSE(begins_badly(text)) << text;
}

// Differences between devices are in framework/core/device; training only passes a device along.
TEST(Limits, TrainingNeverChecksItsDevice) {
  int read = 0;
  for (const fs::path& path : files()) {
    if (!is_cpp(path) || !path.string().starts_with("framework/train/")) continue;
    const std::string text = text_of(fs::path(LONGSTRIDE_SOURCE_DIR) / path);
    for (const char* question : {"== Device::", "!= Device::", "Device::cuda"})
      EXPECT_EQ(text.find(question), std::string::npos) << path << ": " << question;
    ++read;
  }
  EXPECT_GT(read, 30);
}

}  // namespace
}  // namespace longstride::house
