// docs/guide/recipes.md lists the keys that the parser knows, all of them and no others, with their defaults.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "launch/recipe/recipe_writer.h"
#include "tests/launch/command.h"
#include "tests/launch/recipe_texts.h"

namespace longstride::testing {
namespace {

// First and second column of the table of keys.
std::map<std::string, std::string> documented() {
  std::map<std::string, std::string> keys;
  std::istringstream lines(text_of(LONGSTRIDE_SOURCE_DIR "/docs/guide/recipes.md"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `")) continue;
    const std::size_t end = line.find('`', 3), type = line.find("| ", end), last = line.find(" |", type);
    keys[line.substr(3, end - 3)] = line.substr(type + 2, last - type - 2);
  }
  return keys;
}

struct Resolved {
  std::vector<std::string> keys;
  std::map<std::string, std::string> values;  // of the keys that have one, as the resolved recipe writes them
};

Resolved resolve(Recipe recipe) {
  RecipeWriter writer;
  visit_recipe(writer, recipe);
  Resolved out{writer.keys(), {}};
  std::vector<std::string> path;
  std::istringstream lines(writer.text());
  for (std::string line; std::getline(lines, line);) {
    const std::size_t depth = line.find_first_not_of(' ') / 2, colon = line.find(':');
    path.resize(depth);
    path.push_back(line.substr(2 * depth, colon - 2 * depth));
    std::string key;
    for (const std::string& p : path) key += (key.empty() ? "" : ".") + p;
    if (colon + 2 < line.size()) out.values[key] = line.substr(colon + 2);
  }
  return out;
}

TEST(RecipeDocs, EveryKeyIsDocumentedAndEveryDocumentedKeyExists) {
  std::vector<std::string> listed, known = resolve(Recipe()).keys;
  for (const auto& [key, type] : documented()) listed.push_back(key);
  std::sort(known.begin(), known.end());
  EXPECT_EQ(listed, known);
  EXPECT_GT(known.size(), 40u);
}

TEST(RecipeDocs, RequiredKeysAndDefaultsAreAsDocumented) {
  const auto values = resolve(parse_recipe(small_recipe, "r")).values;
  for (const auto& [key, type] : documented()) {
    if (key.starts_with("reproduces.") || key == "unpublished") continue;
    SCOPED_TRACE(key);
    const std::string own = key.substr(key.rfind('.') + 1) + ":";
    const bool required = type.ends_with("required");
    const auto in_small_recipe = [](const std::string& name) {
      return std::string(small_recipe).find(name) != std::string::npos;
    };
    const bool set = in_small_recipe(own) && in_small_recipe(key.substr(0, key.find('.')) + ":");
    if (required || set) {
      EXPECT_TRUE(set);  // the small recipe sets what is required, the summary and the warmup
      EXPECT_TRUE(required || key == "model.attention.summary" || key == "train.warmup");
      continue;
    }
    std::string text = type.substr(type.find_last_of(",;") + 2);
    text.erase(std::remove(text.begin(), text.end(), '`'), text.end());
    ASSERT_TRUE(values.contains(key));
    const std::string& actual = values.at(key);
    const bool number = actual.find_first_not_of("0123456789.e-+") == std::string::npos;
    if (number)
      EXPECT_EQ(std::stod(text), std::stod(actual));
    else
      EXPECT_EQ(text, actual);
  }
}

}  // namespace
}  // namespace longstride::testing
