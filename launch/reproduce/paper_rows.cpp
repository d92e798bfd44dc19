#include "launch/reproduce/paper_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "launch/recipe/recipe_writer.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

// The paper's order.
const std::map<int, std::vector<std::string>> orders = {
    {1, {"cifar10-strided", "enwik8-fixed", "imagenet64-strided", "audio-strided"}},
    {2, {"enwik8-dense", "enwik8-fixed", "enwik8-strided", "cifar10-dense", "cifar10-fixed", "cifar10-strided"}},
    {3, {"enwik8-fixed"}},
    {4, {"audio-65k", "audio-262k", "audio-1m"}}};

auto place_of(int table, const std::string& key) {
  const std::vector<std::string>& order = orders.at(table);
  return std::find(order.begin(), order.end(), key) - order.begin();
}

std::vector<fs::path> recipe_files(int table, const std::string& recipes) {
  const fs::path folder = fs::path(recipes) / fmt::format("table{}", table);
  std::vector<fs::path> files;
  for (const fs::path path : entries_of(folder.string()))
    if (path.extension() == ".yaml") files.push_back(path);
  if (files.empty())
    throw user_error("{}: holds no recipes; run this where the folder recipes is, or give its path with --recipes",
                     folder.string());
  std::sort(files.begin(), files.end(), [&](const fs::path& a, const fs::path& b) {
    return std::pair(place_of(table, a.stem()), a.stem()) < std::pair(place_of(table, b.stem()), b.stem());
  });
  return files;
}

// The identity of a training: data, model and optimizer, but not the recipe's name.
std::string training_of(const Recipe& recipe) {
  Recipe bare = recipe;
  bare.name = "x";
  bare.reproduces = {};
  bare.unpublished.clear();
  RecipeWriter writer;
  visit_recipe(writer, bare);
  return writer.text();
}

// The name of a training's run: the key of its row in the first table that has it.
std::string run_of(const Recipe& published, int table, const std::string& key, const std::string& recipes) {
  const std::string training = training_of(published);
  for (int earlier = 1; earlier < table; ++earlier)
    for (const fs::path path : entries_of((fs::path(recipes) / fmt::format("table{}", earlier)).string()))
      if (path.extension() == ".yaml" && training_of(read_recipe(path.string())) == training) return path.stem();
  return key;
}

// A model that a CPU trains in seconds, on the same kind of data. Pictures keep their size, which the data fixes; text
// and sound become shorter.
std::vector<std::string> toy_overrides(const Recipe& r) {
  const auto set = [](const char* key, auto value) { return fmt::format("{}={}", key, value); };
  const bool bytes = r.data.kind == DataKind::bytes, cifar = r.data.kind == DataKind::cifar10;
  const bool stream = bytes || r.data.kind == DataKind::audio;
  std::vector<std::string> out = r.model->toy_overrides();
  out.insert(out.end(),
             {set("train.lr", 3e-3), set("train.warmup", 10), set("train.beta2", 0.99), set("train.log_every", 5),
              set("train.checkpoint_every", 0), set("train.evaluate_windows", 4), set("train.micro_batch", 0)});
  if (!r.train.stages.empty()) out.push_back(set("train.stages", "[]"));
  if (!stream) {
    out.push_back(set("train.steps", 60));
    out.push_back(set("train.global_batch", cifar ? 2 : 1));
    return out;
  }
  const std::int64_t context = bytes ? r.data.context / 12 : r.data.context / 16;
  out.push_back(set("data.context", context));
  out.push_back(set("train.steps", bytes ? 150 : 60));
  out.push_back(set("train.global_batch", std::max<std::int64_t>(1, 8192 / context)));
  return out;
}

// Table 3: the minimum context and the paper's bits per byte.
const std::vector<std::pair<std::int64_t, double>> minimum_contexts = {
    {6144, 0.9952}, {9216, 0.9936}, {10752, 0.9932}, {11904, 0.9930}, {12096, 0.9922}, {12160, 0.9908}};

bool names(const std::vector<std::string>& keys, const std::string& key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

void add_rows(int table, const PaperRow& row, std::vector<PaperRow>& rows) {
  if (table != 3) return rows.push_back(row);
  for (const auto& [least, bits] : minimum_contexts) {
    PaperRow scored = row;
    scored.min_context = least * row.recipe.data.context / row.published.data.context;
    scored.bits_per_byte = bits;
    scored.label = fmt::format("enwik8, minimum context {}", least);
    rows.push_back(scored);
  }
}

}  // namespace

std::vector<PaperRow> paper_rows(int table, const std::string& recipes, Scale scale,
                                 const std::vector<std::string>& overrides, const std::vector<std::string>& wanted) {
  std::vector<PaperRow> rows;
  std::vector<std::string> keys;
  for (const fs::path& file : recipe_files(table, recipes)) {
    PaperRow row;
    row.key = file.stem();
    row.published = read_recipe(file.string());
    if (row.published.reproduces.table != table) continue;
    keys.push_back(row.key);
    if (!wanted.empty() && !names(wanted, row.key)) continue;
    std::vector<std::string> all = scale == Scale::smoke ? toy_overrides(row.published) : std::vector<std::string>{};
    all.insert(all.end(), overrides.begin(), overrides.end());
    row.recipe = read_recipe(file.string(), all);
    row.label = row.published.reproduces.row;
    row.bits_per_byte = row.published.reproduces.bits_per_byte;
    row.run = run_of(row.published, table, row.key, recipes);
    add_rows(table, row, rows);
  }
  for (const std::string& key : wanted)
    if (!keys.empty() && !names(keys, key))
      throw user_error("--row {}: no recipe of table{} has this name; choose from {}", key, table,
                       fmt::join(keys, ", "));
  if (rows.empty())
    throw user_error("{}: holds no recipe that reproduces table {}; give another folder with --recipes", recipes,
                     table);
  return rows;
}

}  // namespace longstride
