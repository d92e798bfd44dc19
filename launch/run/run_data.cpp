#include "launch/run/run_data.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "framework/core/errors.h"
#include "framework/core/files/sha256.h"
#include "framework/core/text/numbers.h"
#include "framework/core/text/printable.h"
#include "framework/train/stages.h"
#include "launch/hub/pretrained.h"

namespace longstride {

std::string sha256_of_text(const std::string& text) {
  Sha256 sha;
  sha.update(text.data(), text.size());
  return sha.hex();
}

namespace {

std::string checksum_of(const Dataset& dataset, const char* split) {
  std::string stored = dataset.stored_sha256(split);
  if (!stored.empty()) return stored;
  Sha256 sha;
  dataset.scan(split, [&](const std::uint8_t* bytes, std::int64_t count) {
    sha.update(bytes, static_cast<std::size_t>(count));
  });
  return sha.hex();
}

// Empty if the run's checkpoints do not record it; older ones do not.
std::string known(const DataRecord& record, const std::string& name) {
  const auto found = record.find(name);
  return found == record.end() ? "" : found->second;
}

DataRecord form_of(const Dataset& dataset) {
  const DatasetInfo& info = dataset.info();
  DataRecord record = {{"path", dataset.path()}, {"kind", name_of(info.kind)}};
  if (info.rows > 0) record["geometry"] = fmt::format("{} x {} x {}", info.rows, info.columns, info.channels);
  if (info.rate > 0) record["rate"] = std::to_string(info.rate);
  if (!info.encoding.empty()) record["encoding"] = info.encoding;
  if (!info.tokenizer.empty()) record["tokenizer"] = sha256_of_text(info.tokenizer);
  if (!info.label_names.empty())
    record["label_names"] = sha256_of_text(fmt::format("{}", fmt::join(info.label_names, "\n")));
  return record;
}

}  // namespace

// Stages that only cut rows into shorter sequences read the rows that the run reads.
std::unique_ptr<BatchSource> open_rows(const Dataset& dataset, const Recipe& recipe) {
  std::vector<RowStage> stages;
  bool own_rows = false;
  for (const StageSteps& steps : stretches(recipe.train, recipe.data.context)) {
    if (steps.stage == nullptr) continue;
    stages.push_back({steps.end, steps.shape.rows, steps.shape.context});
    own_rows = own_rows || steps.shape.rows != recipe.train.global_batch || steps.shape.context != recipe.data.context;
  }
  if (!own_rows) stages.clear();
  check_grouped(*dataset.split("train", recipe.data), recipe.model->reader_of_groups(),
                fmt::format("{}: 'train'", recipe.data.path));
  if (recipe.data.kind == DataKind::tokens)
    recipe.objective->set_tokens(recipe.data.vocabulary, dataset.size("train").bytes_per_token());
  return open_training_data(dataset, recipe.data, recipe.train.seed, recipe.train.global_batch, stages,
                            *recipe.objective);
}

BatchFields exported_fields(const Recipe& recipe) {
  BatchFields fields = recipe.model->make_model()->fields();
  fields.targets = recipe.objective->fields().targets;
  return fields;
}

std::string short_checksum(const std::string& text) {
  constexpr std::size_t digits = 64, shown = 12;
  const bool checksum = text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
  return checksum ? text.substr(0, shown) + "..." : text;
}

std::string other_tokenizer(const DataRecord& trained_on, const DataRecord& now) {
  const std::string before = known(trained_on, "tokenizer"), found = known(now, "tokenizer");
  if (before == found) return "";
  const auto text = [](const std::string& sha) {
    return sha.empty() ? std::string("without a tokenizer")
                       : "of tokenizer " + printable_beginning(short_checksum(sha));
  };
  return fmt::format("its ids are {}, but the model was trained on ids {}, so the same ids may mean other text",
                     text(found), text(before));
}

DataRecord record_of(const Dataset& dataset) {
  DataRecord record = form_of(dataset);
  for (const char* split : split_names) record[split] = checksum_of(dataset, split);
  if (const std::string documents = dataset.sha256_of_boundaries("train");
      !documents.empty() && is_text(dataset.info().kind))
    record["documents"] = documents;
  const SplitSize train = dataset.size("train");
  record[train_bytes_name] = std::to_string(train.bytes);
  if (train.text_bytes > 0) record[train_text_bytes_name] = std::to_string(train.text_bytes);
  return record;
}

void tell_objective(const Recipe& recipe, const DataRecord& data) {
  if (recipe.data.kind != DataKind::tokens) return;
  const auto number = [&](const char* name) { return std::strtod(known(data, name).c_str(), nullptr); };
  const double tokens = number(train_bytes_name), bytes = number(train_text_bytes_name);
  recipe.objective->set_tokens(recipe.data.vocabulary, tokens > 0 && bytes > 0 ? bytes / tokens : 0);
}

std::string Passes::number() const {
  constexpr double exact = 10;
  return count < exact ? fmt::format("{:.2g}", count) : thousands(std::llround(std::min(count, 9e18)));
}

std::string Passes::text() const {
  return fmt::format("{} passes over {} {} of train", number(), thousands(train_bytes), unit);
}

std::string Passes::warning() const {
  constexpr double most = 100;
  if (count <= most) return "";
  return fmt::format("{}: after so many a model repeats what it has read; prepare more data, or lower train.steps",
                     text());
}

Passes passes_of(const Recipe& recipe, std::int64_t train_bytes) {
  const auto read = static_cast<double>(positions_before(recipe.train, recipe.train.steps, recipe.data.context));
  return {train_bytes > 0 ? read / static_cast<double>(train_bytes) : 0, train_bytes,
          recipe.data.kind == DataKind::tokens ? "tokens" : "bytes"};
}

namespace {

// The recipe of a run names its data from where it was trained.
void check_found(const std::string& path, const std::string& remedy) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::status(path, error).type() != fs::file_type::not_found) return;
  if (fs::path(path).is_relative())
    throw user_error(
        "{}: does not exist in this directory; the recipe of the run names its data from where it was trained: run the "
        "command there{}",
        printable(path), remedy);
  throw user_error("{}: does not exist, but the run was trained on it; put it back{}", printable(path), remedy);
}

// A folder in the layout of Hugging Face names none.
void refuse_unnamed(const LoadedRun& run, const std::string& remedy) {
  if (run.recipe.data.path == unnamed_data)
    throw user_error("the folder of this model does not say which data it was trained on; {}", remedy);
}

std::shared_ptr<const Dataset> open_fitting(const LoadedRun& run, const std::string& path) {
  auto dataset = Dataset::open(path);
  if (const DataKind kind = dataset->info().kind; kind != run.recipe.data.kind)
    throw user_error("{}: holds {}, but the run was trained on {}; choose data of that kind, or a run of this one",
                     printable(path), name_of(kind), name_of(run.recipe.data.kind));
  check_fits(*dataset, run.recipe.data);
  const DataRecord now = form_of(*dataset);
  if (const std::string other = other_tokenizer(run.data, now); !other.empty())
    throw user_error("{}: {}; choose data prepared the same way", printable(path), other);
  if (const std::string before = known(run.data, "label_names");
      !before.empty() && run.recipe.objective->labels() > 0 && known(now, "label_names") != before)
    throw user_error(
        "{}: its labels have other names, or another order, than those that the model was trained on; prepare it with "
        "--classes and the same names",
        printable(path));
  for (const char* name : {"geometry", "rate", "encoding"})
    if (const std::string before = known(run.data, name); !before.empty() && known(now, name) != before)
      throw user_error("{}: its {} is {}, but the model was trained on {}; choose data prepared the same way", path,
                       name, known(now, name), before);
  return dataset;
}

// `remedy`: what else to do than to prepare it as it was.
void check_unchanged(const LoadedRun& run, const Dataset& dataset, const std::string& split,
                     const std::string& remedy) {
  const std::string before = known(run.data, split);
  if (before.empty()) return;
  if (const std::string found = checksum_of(dataset, split.c_str()); found != before)
    throw user_error(
        "{}: '{}' has changed since the run was trained: its sha256 was {}, but is now {}; prepare it as it "
        "was, or {}",
        dataset.path(), split, short_checksum(before), short_checksum(found), remedy);
}

}  // namespace

std::shared_ptr<const Dataset> open_run_data(const LoadedRun& run, const std::string& other, const std::string& split) {
  if (!other.empty()) return open_fitting(run, other);
  refuse_unnamed(run, "name a prepared dataset with --data");
  check_found(run.recipe.data.path, ", or name the file with --data");
  return open_own_data(run, split, fmt::format("use this file anyway with --data {}", run.recipe.data.path));
}

std::shared_ptr<const Dataset> open_own_data(const LoadedRun& run, const std::string& split,
                                             const std::string& remedy) {
  refuse_unnamed(run, remedy);
  check_found(run.recipe.data.path, "");
  auto dataset = open_fitting(run, run.recipe.data.path);
  check_unchanged(run, *dataset, split, remedy);
  return dataset;
}

std::vector<std::string> label_names_of(const LoadedRun& run) {
  const std::string before = known(run.data, "label_names");
  std::error_code none;
  if (before.empty() || run.recipe.objective->labels() == 0) return {};  // those of groups have no names
  if (!std::filesystem::is_regular_file(run.recipe.data.path, none)) return {};
  const auto dataset = Dataset::open(run.recipe.data.path);
  if (known(form_of(*dataset), "label_names") != before) return {};
  return dataset->info().label_names;
}

}  // namespace longstride
