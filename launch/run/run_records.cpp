#include "launch/run/run_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "framework/core/files/files.h"
#include "framework/core/files/inside.h"
#include "framework/core/text/json.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

constexpr const char *recipe_name = "recipe.yaml", *environment_name = "environment.json";

std::string record_path(const std::string& run, const std::string& name, int number) {
  const fs::path plain(name);
  const std::string numbered =
      number == 1 ? name : fmt::format("{}-{}{}", plain.stem().string(), number, plain.extension().string());
  return inside(run, numbered);
}

// Every start has an environment, and some have a recipe, so the numbers may have gaps.
int newest_number(const std::string& run, const std::string& name, int last) {
  while (last > 0 && !fs::exists(record_path(run, name, last))) --last;
  return last;
}

int starts(const std::string& run) {
  int number = 0;
  while (fs::exists(record_path(run, environment_name, number + 1)) ||
         fs::exists(record_path(run, recipe_name, number + 1)))
    ++number;
  return number;
}

}  // namespace

void record_start(const std::string& run, const std::string& recipe, const std::string& environment) {
  const int number = starts(run) + 1, before = newest_number(run, recipe_name, number - 1);
  if (before == 0 || read_at_most(record_path(run, recipe_name, before)) != recipe)
    write_file_atomically(record_path(run, recipe_name, number), recipe);
  write_file_atomically(record_path(run, environment_name, number), environment);
}

std::string newest_record(const std::string& run, const std::string& name) {
  return record_path(run, name, std::max(1, newest_number(run, name, starts(run))));
}

Beginning recorded_beginning(const std::string& run) {
  const int number = newest_number(run, environment_name, starts(run));
  if (number == 0) return {};
  const nlohmann::json environment = parse_json(read_at_most(record_path(run, environment_name, number)));
  if (!environment.is_object() || !environment.contains("run_id") || !environment["run_id"].is_string())
    return {true, ""};
  return {true, environment["run_id"].get<std::string>()};
}

void check_records(const std::string& run) {
  for (int number = starts(run) + 1; number > 0; --number)
    for (const char* name : {recipe_name, environment_name}) record_path(run, name, number);
  for (const char* name : {"checkpoints", "metrics.jsonl", "evaluations.jsonl"}) inside(run, name);
  for (const char* name : {"samples", "attention"}) folder_inside(run, name);
}

}  // namespace longstride
