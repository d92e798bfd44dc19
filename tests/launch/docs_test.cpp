// The pages of docs/: docs/guide/recipes.md lists exactly the keys that the parser accepts, with their defaults; links
// lead to files; commit ids occur only in notes.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>
#include <typeinfo>

#include "launch/recipe/recipe_writer.h"
#include "tests/launch/command.h"
#include "tests/recipe/recipe_texts.h"

namespace longstride::testing {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> pages_in(const std::string& folder) {
  std::vector<fs::path> pages;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(LONGSTRIDE_SOURCE_DIR "/" + folder))
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  return pages;
}

// The files that the page links to: "](target" up to a parenthesis, an anchor or a space. A line indented by four is
// code, in which a lambda looks like a link.
std::vector<std::string> links_in(const std::string& text) {
  std::vector<std::string> targets;
  for (std::size_t at = 0; (at = text.find("](", at)) != std::string::npos;) {
    at += 2;
    if (text.compare(text.rfind('\n', at) + 1, 4, "    ") == 0) continue;
    const std::string target = text.substr(at, text.find_first_of(")# ", at) - at);
    if (!target.empty() && target.find("://") == std::string::npos) targets.push_back(target);
  }
  return targets;
}

// Words of seven hexadecimal digits, with a letter and a figure among them.
std::vector<std::string> commit_ids_in(const std::string& text) {
  constexpr const char* letters = "abcdef";
  constexpr const char* figures = "0123456789";
  constexpr const char* word = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  std::vector<std::string> found;
  for (std::size_t at = 0; (at = text.find_first_of(word, at)) != std::string::npos;) {
    const std::size_t end = std::min(text.find_first_not_of(word, at), text.size());
    const std::string candidate = text.substr(at, end - at);
    if (candidate.size() == 7 && candidate.find_first_not_of("0123456789abcdef") == std::string::npos &&
        candidate.find_first_of(letters) != std::string::npos && candidate.find_first_of(figures) != std::string::npos)
      found.push_back(candidate);
    at = end;
  }
  return found;
}

TEST(Docs, EveryLinkLeadsToAFile) {
  std::vector<fs::path> pages = pages_in("docs");
  for (const char* page : {"/README.md", "/CHANGELOG.md"})
    pages.emplace_back(std::string(LONGSTRIDE_SOURCE_DIR) + page);
  std::size_t links = 0;
  for (const fs::path& page : pages)
    for (const std::string& target : links_in(text_of(page.string()))) {
      EXPECT_TRUE(fs::exists(page.parent_path() / target)) << page << " links to " << target;
      ++links;
    }
  EXPECT_GT(links, 20u);
}

TEST(Docs, OnlyNotesHoldCommitIds) {
  for (const char* folder : {"docs/guide", "docs/develop"})
    for (const fs::path& page : pages_in(folder))
      EXPECT_EQ(commit_ids_in(text_of(page.string())), std::vector<std::string>{}) << page;
  EXPECT_FALSE(commit_ids_in(text_of(LONGSTRIDE_SOURCE_DIR "/docs/notes/2026-11/results.md")).empty());
}

// A comment "<!-- from FILE -->" of a page says that the code below it, indented by four, is in FILE.
struct Listing {
  std::string file, code;
};

std::vector<Listing> listings_in(const fs::path& page) {
  std::vector<Listing> found;
  std::istringstream lines(text_of(page.string()));
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    const std::string before = "<!-- from ";
    if (line.starts_with(before)) found.push_back({line.substr(before.size(), line.find(" -->") - before.size()), ""});
    inside = line.starts_with(before) || (inside && (line.empty() || line.starts_with("    ")));
    if (inside && line.starts_with("    ")) found.back().code += line.substr(4) + "\n";
    if (inside && line.empty() && !found.back().code.empty()) found.back().code += "\n";
  }
  for (Listing& listing : found) listing.code.erase(listing.code.find_last_not_of('\n') + 1);
  return found;
}

TEST(Docs, ListingsAreInTheFilesThatTheyAreFrom) {
  std::size_t listings = 0;
  for (const fs::path& page : pages_in("docs/develop"))
    for (const auto& [file, code] : listings_in(page)) {
      EXPECT_FALSE(code.empty()) << page << " shows nothing from " << file;
      EXPECT_NE(text_of(LONGSTRIDE_SOURCE_DIR "/" + file).find(code), std::string::npos)
          << page << " shows what is not in " << file << ":\n"
          << code;
      ++listings;
    }
  EXPECT_GE(listings, 7U);
}

// First and second column of the table of keys under a heading.
std::map<std::string, std::string> documented(const std::string& heading = "Keys") {
  std::map<std::string, std::string> keys;
  std::istringstream lines(text_of(LONGSTRIDE_SOURCE_DIR "/docs/guide/recipes.md"));
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("## ")) inside = line == "## " + heading;
    if (!inside || !line.starts_with("| `")) continue;
    const std::size_t end = line.find('`', 3), type = line.find("| ", end), last = line.find(" |", type);
    keys[line.substr(3, end - 3)] = line.substr(type + 2, last - type - 2);
  }
  return keys;
}

struct Resolved {
  std::vector<std::string> keys;
  std::map<std::string, std::string> values;  // of the keys that have one, as written in the resolved recipe
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

// The first table has every key of a recipe of the default kind, whatever its name; other kinds have their own keys of
// `model`.
TEST(RecipeDocs, EveryKeyIsDocumentedAndEveryDocumentedKeyExists) {
  for (const ModelKind kind : model_kinds()) {
    Recipe recipe;
    recipe.model = kind();
    const std::string name = recipe.model->kind();
    std::vector<std::string> listed, known = resolve(recipe).keys;
    const std::unique_ptr<ModelConfig> first = model_kinds().front()();
    const ModelConfig &of_kind = *recipe.model, &of_default = *first;
    const bool is_default = typeid(of_kind) == typeid(of_default);
    if (!is_default)
      std::erase_if(known, [](const std::string& key) { return !key.starts_with("model.") || key == "model.kind"; });
    for (const auto& [key, type] : documented(is_default ? "Keys" : "Keys of " + name)) listed.push_back(key);
    std::sort(known.begin(), known.end());
    EXPECT_EQ(listed, known) << name;
    EXPECT_GT(known.size(), is_default ? 40u : 0u);
    EXPECT_NE(documented()["model.kind"].find("`" + name + "`"), std::string::npos) << name;
  }
}

TEST(RecipeDocs, RequiredKeysAndDefaultsAreAsDocumented) {
  auto values = resolve(parse_recipe(small_recipe, "r")).values;
  for (const auto& [key, value] : resolve(parse_recipe(small_distance_recipe, "r")).values)
    if (key.starts_with("model.distance.") || key.starts_with("model.memory.")) values.emplace(key, value);
  for (const auto& [key, type] : documented()) {
    if (key.starts_with("reproduces.") || key == "unpublished") continue;
    SCOPED_TRACE(key);
    const std::string own = key.substr(key.rfind('.') + 1) + ":";
    const bool required = type.ends_with("required");
    const bool distance = key.starts_with("model.distance.") || key.starts_with("model.memory.");
    const std::string small = distance ? small_distance_recipe : small_recipe;
    const bool set =
        small.find(own) != std::string::npos && small.find(key.substr(0, key.find('.')) + ":") < small.size();
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
