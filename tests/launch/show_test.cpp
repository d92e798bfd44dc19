// `longstride show pattern` draws what kernels::allowed says.
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "datasets/formats/png.h"
#include "launch/recipe/recipe.h"
#include "tests/launch/command.h"
#include "tests/recipe/recipe_texts.h"

namespace longstride::testing {
namespace {

constexpr std::int64_t positions = 40;

// The rows of the text, without their numbers.
std::vector<std::string> rows_of(const std::string& text) {
  std::vector<std::string> rows;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  while (std::getline(lines, line)) rows.push_back(line.substr(5));
  return rows;
}

TEST(ShowPattern, TextIsTheMask) {
  const TemporaryDirectory dir;
  write_text(dir / "r.yaml", small_recipe);
  const std::string cycle = "model.attention={integration: interleaved, parts: [local, column], stride: 6}";
  for (const std::vector<std::string>& overrides :
       {std::vector<std::string>{}, {"model.attention.distinct_heads=true"}, {cycle}})
    for (std::int64_t layer = 0; layer < 2; ++layer)
      for (std::int64_t head = 0; head < 2; ++head) {
        std::vector<std::string> arguments = {"show",
                                              "pattern",
                                              "r.yaml",
                                              "--positions",
                                              std::to_string(positions),
                                              "--layer",
                                              std::to_string(layer),
                                              "--head",
                                              std::to_string(head)};
        for (const std::string& o : overrides) arguments.insert(arguments.end(), {"--set", o});
        const CommandResult result = run_command(arguments, dir.path());
        ASSERT_EQ(result.exit_code, 0) << result.err;
        const kernels::PatternConfig pattern = decoder(read_recipe(dir / "r.yaml", overrides)).attention;
        const std::vector<std::string> rows = rows_of(result.out);
        ASSERT_EQ(rows.size(), static_cast<std::size_t>(positions));
        for (std::int64_t i = 0; i < positions; ++i) {
          std::string expected;
          for (std::int64_t j = 0; j <= i; ++j) {
            const bool seen = kernels::allowed(pattern, layer, 2, head, i, j);
            expected += !seen ? '.' : i == j ? '@' : '#';
          }
          EXPECT_EQ(rows[static_cast<std::size_t>(i)], expected) << layer << " " << head << " " << i;
        }
      }
}

TEST(ShowPattern, PicturesHaveASquareForEveryPairAndHighlightAQuery) {
  const TemporaryDirectory dir;
  write_text(dir / "r.yaml", small_recipe);
  const kernels::PatternConfig pattern = decoder(read_recipe(dir / "r.yaml")).attention;
  const std::int64_t scale = 3, query = 21;
  const CommandResult result =
      run_command({"show", "pattern", "r.yaml", "--positions", std::to_string(positions), "--scale",
                   std::to_string(scale), "--query", std::to_string(query), "--output", "x.png"},
                  dir.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string bytes = text_of(dir / "x.png");
  const Picture picture = read_png(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), "x.png");
  ASSERT_EQ(picture.rows, positions * scale);
  ASSERT_EQ(picture.columns, positions * scale);
  ASSERT_EQ(picture.channels, 3);
  const auto red = [&](std::int64_t i, std::int64_t j, std::int64_t corner) {
    const std::int64_t row = i * scale + corner, column = j * scale + corner;
    return picture.pixels[static_cast<std::size_t>((row * picture.columns + column) * 3)];
  };
  // One shade each: the future, the past that is not attended to, and attended to, by the query or by others.
  const int future = red(0, 1, 0), itself = red(query, query, 0), seen = red(query, query - 1, 0), faint = red(1, 0, 0);
  const int unseen = red(query, 0, 0);
  EXPECT_EQ((std::set{future, itself, seen, faint, unseen}.size()), 5u);
  for (std::int64_t i = 0; i < positions; ++i)
    for (std::int64_t j = 0; j < positions; ++j) {
      const bool attends = kernels::allowed(pattern, 0, 2, 0, i, j);
      const int expected = j > i ? future : !attends ? unseen : i != query ? faint : i == j ? itself : seen;
      EXPECT_EQ(red(i, j, 0), expected) << i << " " << j;
      EXPECT_EQ(red(i, j, scale - 1), expected) << i << " " << j;
    }
}

}  // namespace
}  // namespace longstride::testing
