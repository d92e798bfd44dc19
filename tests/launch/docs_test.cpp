// The pages of docs/: docs/guide/recipes.md lists exactly the keys that the parser accepts, with their defaults, and
// commands.md what --help prints; links lead to files and headings; commit ids occur only in notes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <typeinfo>

#include "launch/recipe/recipe_writer.h"
#include "tests/launch/recipe/recipe_texts.h"
#include "tests/support/command.h"

namespace longstride::testing {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> pages_in(const std::string& folder) {
  std::vector<fs::path> pages;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(LONGSTRIDE_SOURCE_DIR "/" + folder))
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  return pages;
}

// The targets of a page's links: "](target" up to a parenthesis or a space. A line indented by four is code, in which a
// lambda looks like a link.
std::vector<std::string> links_in(const std::string& text) {
  std::vector<std::string> targets;
  for (std::size_t at = 0; (at = text.find("](", at)) != std::string::npos;) {
    at += 2;
    if (text.compare(text.rfind('\n', at) + 1, 4, "    ") == 0) continue;
    const std::string target = text.substr(at, text.find_first_of(") ", at) - at);
    if (!target.empty() && target.find("://") == std::string::npos) targets.push_back(target);
  }
  return targets;
}

// The anchors of a page's headings: in small letters, with hyphens for blanks and without punctuation.
std::set<std::string> anchors_in(const std::string& text) {
  std::set<std::string> anchors;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("#")) continue;
    std::string anchor;
    for (const char c : line.substr(std::min(line.find(' '), line.size() - 1) + 1)) {
      if (c == ' ' || c == '-' || c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0)
        anchor += c == ' ' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    anchors.insert(anchor);
  }
  return anchors;
}

// Words between backquotes that name a file of the sources.
std::vector<std::string> paths_in(const std::string& text) {
  std::vector<std::string> paths;
  for (std::size_t at = 0; (at = text.find('`', at)) != std::string::npos;) {
    const std::size_t end = text.find('`', at + 1);
    if (end == std::string::npos) break;
    const std::string quoted = text.substr(at + 1, end - at - 1), word = quoted.substr(0, quoted.find(' '));
    const bool in_sources = std::ranges::any_of(std::array{"kernels/", "framework/", "launch/", "tests/", "datasets/"},
                                                [&](const char* room) { return word.starts_with(room); });
    if (in_sources && word.find_first_of("*{}<>ABCDEFGHIJKLMNOPQRSTUVWXYZ") == std::string::npos) paths.push_back(word);
    at = end + 1;
  }
  return paths;
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

TEST(Docs, EveryLinkLeadsToAFileAndAHeading) {
  std::vector<fs::path> pages = pages_in("docs");
  for (const char* page : {"/README.md", "/CHANGELOG.md"})
    pages.emplace_back(std::string(LONGSTRIDE_SOURCE_DIR) + page);
  std::size_t links = 0, anchors = 0;
  for (const fs::path& page : pages)
    for (const std::string& target : links_in(text_of(page.string()))) {
      const std::size_t hash = std::min(target.find('#'), target.size());
      const fs::path file = hash == 0 ? page : page.parent_path() / target.substr(0, hash);
      EXPECT_TRUE(fs::exists(file)) << page << " links to " << target;
      ++links;
      if (hash == target.size() || file.extension() != ".md") continue;
      EXPECT_TRUE(anchors_in(text_of(file.string())).contains(target.substr(hash + 1)))
          << page << " links to " << target << ", which is no heading";
      ++anchors;
    }
  EXPECT_GT(links, 20U);
  EXPECT_GT(anchors, 20U);
}

// Notes tell of files as they were, and a page that adds files names them.
TEST(Docs, EveryFileThatAPageNamesExists) {
  std::vector<fs::path> pages = pages_in("docs/guide");
  for (const fs::path& page : pages_in("docs/develop")) pages.push_back(page);
  pages.emplace_back(LONGSTRIDE_SOURCE_DIR "/README.md");
  std::size_t named = 0;
  for (const fs::path& page : pages) {
    const std::string text = text_of(page.string());
    for (const std::string& path : paths_in(text)) {
      if (text.find("<!-- file " + path + " -->") != std::string::npos) continue;
      EXPECT_TRUE(fs::exists(fs::path(LONGSTRIDE_SOURCE_DIR) / path)) << page << " names " << path;
      ++named;
    }
  }
  EXPECT_GT(named, 50U);
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

// Commands, with "" for the whole program, and the arguments of each: name, type and default, a bar, and the meaning.
using Reference = std::map<std::string, std::vector<std::string>>;

std::string single_spaced(const std::string& line) {
  std::istringstream text(line);
  std::string words;
  for (std::string word; text >> word;) words += (words.empty() ? "" : " ") + word;
  return words;
}

// An argument's line of --help. The meaning is in a column of its own, or in the next line.
std::string with_bar(const std::string& line, bool continues) {
  constexpr std::size_t column = 29;
  const std::size_t gap = std::min(line.find("  ", 2), continues ? line.npos : column);
  return single_spaced(line.substr(0, gap)) + " | " + (gap < line.size() ? single_spaced(line.substr(gap)) : "");
}

// Adds the arguments that --help of the command and of its subcommands names.
void add_help_of(const std::vector<std::string>& command, Reference& out) {
  std::vector<std::string> arguments = command;
  arguments.emplace_back("--help");
  const std::string help = run_command(arguments, ".").out;
  std::istringstream lines(help);
  std::string name, section;
  for (const std::string& word : command) name += (name.empty() ? "" : " ") + word;
  std::vector<std::string>& found = out[name];
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.find_first_not_of(' ') == 0) section = line;
    if (!line.starts_with("  ")) continue;
    const std::string words = single_spaced(line);
    if (section == "Subcommands:") {
      std::vector<std::string> subcommand = command;
      subcommand.push_back(words.substr(0, words.find(' ')));
      if (line[2] != ' ') add_help_of(subcommand, out);
    } else if (line[2] != ' ') {
      found.push_back(with_bar(line, help.compare(static_cast<std::size_t>(lines.tellg()), 3, "   ") == 0));
    } else {
      found.back() += (found.back().ends_with(' ') ? "" : " ") + words;
    }
  }
  // The page names the options that every command has only once.
  const std::string json = "--json | print one JSON object instead of text";
  std::erase_if(found, [&](const std::string& entry) { return entry.find("--help") < 4 || entry == json; });
}

// The arguments that a page names: a heading "## `longstride COMMAND`" and a table "| `--option TYPE=DEFAULT` | meaning
// |".
Reference reference_of(const std::string& page) {
  Reference out;
  std::string command;
  std::istringstream lines(text_of(page));
  for (std::string line; std::getline(lines, line);) {
    const bool heading = line.starts_with("## `longstride");
    const std::size_t bar = line.find(" | ");
    if (!heading && (!line.starts_with("| `") || bar == std::string::npos)) continue;
    std::string name = line.substr(0, bar);
    std::erase(name, '`');
    if (heading)
      out[command = name.substr(std::min(name.size(), std::string("## longstride ").size()))];
    else
      out[command].push_back(name.substr(2) + " | " + line.substr(bar + 3, line.rfind(" |") - bar - 3));
  }
  return out;
}

TEST(Docs, TheReferenceOfCommandsSaysWhatHelpSays) {
  Reference helped;
  add_help_of({}, helped);
  const Reference documented = reference_of(LONGSTRIDE_SOURCE_DIR "/docs/guide/commands.md");
  EXPECT_GT(helped.size(), 15U);
  for (const auto& [command, entries] : documented)
    EXPECT_TRUE(helped.contains(command)) << command << " is no command";
  for (const auto& [command, entries] : helped) {
    const auto found = documented.find(command);
    EXPECT_EQ(found != documented.end() ? found->second : std::vector<std::string>{}, entries) << command;
  }
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
  std::map<std::string, std::string> values;  // values of the keys that have one, as written in the resolved recipe
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

// The first table has every key of a recipe of the default kind, whatever its name; other kinds have those keys of
// `model` that the default kind lacks or for which it has another default.
TEST(RecipeDocs, EveryKeyIsDocumentedAndEveryDocumentedKeyExists) {
  for (const ModelKind kind : model_kinds()) {
    Recipe recipe;
    recipe.model = kind();
    const std::string name = recipe.model->kind();
    std::vector<std::string> listed, known = resolve(recipe).keys;
    const std::unique_ptr<ModelConfig> first = model_kinds().front()();
    const ModelConfig &of_kind = *recipe.model, &of_default = *first;
    const bool is_default = typeid(of_kind) == typeid(of_default);
    if (!is_default) {
      Recipe usual;
      usual.model = model_kinds().front()();
      const auto values = resolve(recipe).values, of_usual = resolve(usual).values;
      const auto value = [](const auto& of, const std::string& key) {
        return of.contains(key) ? of.at(key) : std::string("not set");
      };
      const std::vector<std::string> shared = resolve(usual).keys;
      std::erase_if(known, [&](const std::string& key) {
        const bool has = std::find(shared.begin(), shared.end(), key) != shared.end();
        return !key.starts_with("model.") || key == "model.kind" || (has && value(values, key) == value(of_usual, key));
      });
    }
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
  // An optional section is written if one of its keys is set; the other then has its default.
  const std::string deviations = "model.init_deviations.", embedding = deviations + "embedding",
                    table = deviations + "distance_table";
  const std::vector<std::string> learned = {table + "=1", "model.distance.table=learned", "model.distance.distances=9"};
  values[table] = resolve(parse_recipe(small_recipe, "r", {embedding + "=1"})).values.at(table);
  values[embedding] = resolve(parse_recipe(small_distance_recipe, "r", learned)).values.at(embedding);
  const std::string cutoffs = "model.adaptive.cutoffs", divide = "model.adaptive.divide";
  values[divide] = resolve(parse_recipe(small_recipe, "r", {cutoffs + "=9"})).values.at(divide);
  for (const auto& [key, type] : documented()) {
    if (key.starts_with("reproduces.") || key == "unpublished" || key == "model.mixers" || key == "objective.kind" ||
        key == "model.attention.shifts" || key == cutoffs)
      continue;  // not written by default
    SCOPED_TRACE(key);
    const std::string own = key.substr(key.rfind('.') + 1) + ":";
    const bool required = type.ends_with("required");
    const bool distance = key.starts_with("model.distance.") || key.starts_with("model.memory.");
    const std::string small = distance ? small_distance_recipe : small_recipe;
    const bool set =
        small.find(own) != std::string::npos && small.find(key.substr(0, key.find('.')) + ":") < small.size();
    if (required || set) {
      EXPECT_TRUE(set);  // the small recipe sets what is required, and these
      const std::set<std::string> others = {"model.attention.integration", "model.attention.stride",
                                            "model.attention.summary", "train.warmup"};
      EXPECT_TRUE(required || others.contains(key));
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
