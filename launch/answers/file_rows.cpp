#include "launch/answers/file_rows.h"

#include <algorithm>
#include <filesystem>
#include <future>

#include "datasets/dataset.h"
#include "datasets/group_finder.h"
#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/text/printable.h"
#include "framework/train/evaluate/evaluation_memory.h"
#include "framework/train/step/precision.h"
#include "launch/console/device_option.h"

namespace longstride {

std::vector<std::uint8_t> bytes_of_input(const LoadedRun& run, const std::string& path) {
  if (!is_text(run.recipe.data.kind))
    throw user_error("--input is a file of text or other bytes, but this run was trained on {}; choose another run",
                     name_of(run.recipe.data.kind));
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none))
    throw user_error("--input {}: is no file; correct the path", printable(path));
  const std::string text = read_file(path);
  if (text.empty()) throw user_error("--input {}: is empty; choose another file", printable(path));
  return run.tokens().ids({text.begin(), text.end()});
}

void add_groups_option(CLI::App& command, GroupsOption& option) {
  command
      .add_option("--groups", option.which,
                  "what groups are, for models that read them: sentences, the default, or paragraphs")
      ->check(CLI::IsMember({"sentences", "paragraphs"}));
}

std::vector<std::int64_t> groups_of_input(const LoadedRun& run, const GroupsOption& option,
                                          const std::vector<std::uint8_t>& bytes) {
  const BatchFields fields = run.model->fields();
  const bool read = run.recipe.objective->reads_groups() || fields.types || fields.sentences;
  if (!read && !option.which.empty())
    throw user_error("--groups is {}, but this run reads no groups; leave it out", option.which);
  if (!read) return {};
  return groups_of(bytes, option.which == "paragraphs" ? GroupsAre::paragraphs : GroupsAre::sentences);
}

void read_windows(const LoadedRun& run, std::int64_t bytes, bool asks, Device device, const ReadWindow& read) {
  Model& model = *run.model;
  const Objective& objective = *run.recipe.objective;
  if (!model.states().empty())
    throw user_error(
        "this model remembers what its rows have read, and gives no rows by themselves; choose another run");
  asks ? static_cast<void>(required<Predicts>(model, "predict what is asked; use eval or sample"))
       : static_cast<void>(required<Encodes>(model, "give hidden rows"));
  check_device_computes(model, device);
  EvaluationMemory memory(
      model, run.masters, run.recipe.train.precision, device,
      [&](const Context& ctx) { return RowReader::bytes(model, objective, ctx, asks); },
      low_precision_residual(run.recipe.train, device));
  Context ctx = memory.context();
  run.describe(ctx);
  RowReader reader(model, objective, ctx, asks);
  FileWindow window;
  std::future<void> before;  // uses the results of the window before
  for (; window.first < bytes; ++window.number, window.first += window.count) {
    window.count = std::min(reader.row_bytes(), bytes - window.first);
    auto use = read(reader, window);
    if (before.valid()) before.get();
    before = std::async(std::launch::async, std::move(use));
  }
  if (before.valid()) before.get();
}

}  // namespace longstride
