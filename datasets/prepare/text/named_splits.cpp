#include "datasets/prepare/text/named_splits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include "datasets/formats/input_files.h"

namespace longstride {
namespace {

// The split that a name has as a word of its own, and the rest of the name without digits.
struct NamedSplit {
  std::size_t split;
  std::string rest;
};

std::optional<NamedSplit> split_of(const std::string& name) {
  static constexpr std::pair<const char*, std::size_t> words[] = {{"train", 0}, {"valid", 1}, {"validation", 1},
                                                                  {"val", 1},   {"dev", 1},   {"test", 2}};
  std::optional<NamedSplit> found;
  std::string rest, word;
  const auto end_word = [&] {
    const auto known = std::find_if(std::begin(words), std::end(words), [&](const auto& w) { return word == w.first; });
    if (known == std::end(words) || found)
      rest += word;
    else
      found = NamedSplit{known->second, ""};
    word.clear();
  };
  for (const char c : name + ".") {
    if (c >= '0' && c <= '9') continue;
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (lower >= 'a' && lower <= 'z') {
      word += lower;
      continue;
    }
    end_word();
    rest += c;
  }
  if (found) found->rest = rest;
  return found;
}

bool may_be_beside(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) return false;
  const std::string extension = lower_extension(path.string());
  return extension.empty() || extension == "csv" || extension == "tsv" || extension == "json" || extension == "md";
}

}  // namespace

PrepareBytesConfig with_named_splits(PrepareBytesConfig config, const PrepareOutput& output) {
  const bool divided = !config.split.empty() || config.seed || config.splits_given();
  if (config.inputs.size() != 1 || divided || !is_folder(config.inputs[0])) return config;
  std::array<std::vector<std::string>, 3> of_split;
  LeftOut left_out;
  std::string rest, first_name;
  std::error_code failed;
  std::vector<std::filesystem::path> entries;
  for (const auto& entry : std::filesystem::directory_iterator(config.inputs[0], failed))
    entries.push_back(entry.path());
  std::sort(entries.begin(), entries.end());
  for (const std::filesystem::path& path : entries) {
    const std::string name = path.filename().string();
    if (name.starts_with('.')) continue;
    const bool folder = std::filesystem::is_directory(path);
    const std::optional<NamedSplit> found = split_of(name);
    if (!found) {
      if (!may_be_beside(path)) return config;
      left_out.add(path.string());
      continue;
    }
    const std::string alike = (folder ? "/" : "") + found->rest;
    if (first_name.empty()) rest = alike, first_name = name;
    if (alike != rest) return config;
    of_split[found->split].push_back(path.string());
  }
  if (of_split[0].empty() || (of_split[1].empty() && of_split[2].empty())) return config;
  const std::string beside = left_out.listed();
  output.say(fmt::format("{}: train, valid and test are its {} with these names, such as {}{}{}", config.inputs[0],
                         rest.starts_with('/') ? "folders" : "files", first_name,
                         beside.empty() ? "" : "; left out " + beside, "; give --split to divide them all instead"));
  config.inputs = of_split[0], config.valid_inputs = of_split[1], config.test_inputs = of_split[2];
  return config;
}

}  // namespace longstride
