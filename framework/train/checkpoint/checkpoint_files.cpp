#include "framework/train/checkpoint/checkpoint_files.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <unordered_map>

#include "framework/core/errors.h"
#include "framework/core/files/inside.h"
#include "framework/core/files/temporaries.h"
#include "framework/train/checkpoint/checkpoint_state.h"
#include "framework/train/checkpoint/state_tensors.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

Tensor slice_of(const Tensor& flat, const Parameter& p) {
  return flat.slice(0, p.offset, p.offset + p.shape.count()).reshape(p.shape);
}

// A tensor in a file, and the memory that it is written from or read into.
struct Named {
  std::string name;
  Tensor tensor;
};

// Adds the parameters in these ranges of a flat buffer; `held` has the ranges' elements one after another. A parameter
// that a range cuts is added as "<name>[begin:end]": those of its elements, in one dimension.
void add_ranges(std::vector<Named>& all, const std::string& prefix, const ParameterSet& parameters, const Tensor& held,
                const std::vector<FlatRange>& ranges) {
  std::int64_t at = 0;  // where the range begins in `held`
  for (const FlatRange& range : ranges) {
    for (const Parameter& p : parameters.all()) {
      const std::int64_t first = std::max(range.begin, p.offset);
      const std::int64_t last = std::min(range.end(), p.offset + p.shape.count());
      if (first >= last) continue;
      const Tensor part = held.slice(0, at + first - range.begin, at + last - range.begin);
      if (last - first == p.shape.count())
        all.push_back({prefix + p.name, part.reshape(p.shape)});
      else
        all.push_back({fmt::format("{}{}[{}:{}]", prefix, p.name, first - p.offset, last - p.offset), part});
    }
    at += range.count;
  }
}

void add_rows(std::vector<Named>& all, const TrainingTensors& tensors) {
  const StateLayout& layout = tensors.state_layout;
  for (const State& state : layout.states->all())
    all.push_back({fmt::format("{}[{}:{}]", state.name, layout.first, layout.first + layout.rows.count()),
                   tensors.rows().now(state)});
}

FileDigest write_tensors(const std::string& path, const std::vector<Named>& all, std::int64_t step) {
  std::vector<TensorEntry> entries;
  for (const Named& n : all) entries.push_back({n.name, n.tensor.dtype(), n.tensor.shape()});
  SafetensorsWriter writer(path, std::move(entries), {{"format", "pt"}, {"step", std::to_string(step)}});
  for (const Named& n : all) writer.write(n.tensor);
  return writer.finish();
}

// Fills every tensor of `all`; the file must hold these and no others.
void read_tensors(const std::string& path, const std::vector<Named>& all) {
  const SafetensorsReader reader(path);
  for (const Named& n : all) {
    const TensorEntry* entry = reader.find(n.name);
    if (entry == nullptr)
      throw user_error("{}: holds no tensor '{}' {}, which the model has; use the recipe that the run was started with",
                       path, n.name, n.tensor.shape().text());
    if (!(entry->shape == n.tensor.shape()))
      throw user_error("{}: tensor '{}' is {}, but the model's is {}; use the recipe that the run was started with",
                       path, n.name, entry->shape.text(), n.tensor.shape().text());
  }
  if (reader.entries().size() != all.size()) {
    const auto known = [&](const std::string& name) {
      return std::any_of(all.begin(), all.end(), [&](const Named& n) { return n.name == name; });
    };
    for (const TensorEntry& entry : reader.entries())
      if (!known(entry.name))
        throw user_error(
            "{}: holds tensor '{}' {}, which the model lacks; use the recipe that the run was started with", path,
            entry.name, entry.shape.text());
  }
  for (const Named& n : all) reader.read(n.name, n.tensor);
}

// Renames the directory before deleting it, so a half-deleted checkpoint is never seen.
void remove_checkpoint(const std::string& directory) {
  const fs::path path(directory);
  const fs::path doomed = path.parent_path() / (".tmp-" + path.filename().string() + "-removed");
  std::error_code error;
  fs::rename(path, doomed, error);
  if (!error) fs::remove_all(doomed, error);
  if (error) spdlog::warn("{}: cannot be removed: {}", directory, error.message());
}

// A flat buffer (the parameters' own masters if absent) to fill from the tensors whose names begin with `prefix`.
struct Wanted {
  std::string prefix;
  const ParameterSet* parameters;
  Tensor flat;
  std::unordered_map<std::string, std::int64_t> read = {};  // elements by parameter
};

void read_entry(const SafetensorsReader& reader, const TensorEntry& entry, std::vector<Wanted>& all) {
  constexpr const char* advice = "use the recipe that the run was started with";
  for (Wanted& wanted : all) {
    if (!entry.name.starts_with(wanted.prefix)) continue;
    const std::optional<RangeName> name = parse_range_name(entry.name.substr(wanted.prefix.size()));
    const std::deque<Parameter>& known = wanted.parameters->all();
    const auto p =
        std::find_if(known.begin(), known.end(), [&](const Parameter& q) { return name && q.name == name->name; });
    if (p == known.end()) continue;
    const std::int64_t count = p->shape.count(), end = name->end < 0 ? count : name->end;
    const Shape shape = name->end < 0 ? p->shape : Shape{end - name->begin};
    if (name->begin < 0 || end <= name->begin || end > count || !(entry.shape == shape))
      throw user_error("{}: tensor '{}' is {}, but the model's '{}' is {}; {}", reader.path(), entry.name,
                       entry.shape.text(), p->name, p->shape.text(), advice);
    const Tensor whole = wanted.flat.given() ? slice_of(wanted.flat, *p) : p->master;
    reader.read(entry.name, whole.reshape({count}).slice(0, name->begin, end).reshape(shape));
    wanted.read[p->name] += end - name->begin;
    return;
  }
  throw user_error("{}: holds tensor '{}' {}, which the model lacks; {}", reader.path(), entry.name, entry.shape.text(),
                   advice);
}

void read_shards(const std::string& directory, const std::vector<std::string>& shards, std::vector<Wanted> all) {
  for (const std::string& shard : shards) {
    const SafetensorsReader reader(directory + "/" + shard);
    for (const TensorEntry& entry : reader.entries()) read_entry(reader, entry, all);
  }
  for (Wanted& wanted : all)
    for (const Parameter& p : wanted.parameters->all())
      if (wanted.read[p.name] != p.shape.count())
        throw user_error("{}: holds {} of the {} elements of '{}{}'; use the recipe that the run was started with",
                         directory, wanted.read[p.name], p.shape.count(), wanted.prefix, p.name);
}

template <class T>
bool all_finite(const Tensor& tensor) {
  const T* values = tensor.as<const T>();
  return std::all_of(values, values + tensor.count(), [](T value) { return std::isfinite(value); });
}

// A model with non-finite weights would silently score and sample nonsense.
void refuse_non_finite(const std::string& directory, const ParameterSet& parameters, const Tensor& flat) {
  for (const Parameter& p : parameters.all()) {
    const Tensor weights = flat.given() ? slice_of(flat, p) : p.master;
    if (!(weights.dtype() == Dtype::f64 ? all_finite<double>(weights) : all_finite<float>(weights)))
      throw user_error(
          "{}: weights of '{}' are not finite, so the model is unusable; move this checkpoint away to use the one "
          "before it",
          directory, p.name);
  }
}

}  // namespace

std::string checkpoints_directory(const std::string& run) { return run + "/checkpoints"; }
std::string checkpoint_directory(const std::string& run, std::int64_t step) {
  return fmt::format("{}/step-{:08}", checkpoints_directory(run), step);
}

std::int64_t elements_of(const std::vector<FlatRange>& ranges) {
  std::int64_t all = 0;
  for (const FlatRange& range : ranges) all += range.count;
  return all;
}

CheckpointShare share_of_writer(int writer, int writers, std::int64_t flat_size, bool with_average, int moments) {
  const auto averages = [&](int w) { return with_average && w == std::min(1, writers - 1); };
  const double even = (moments + (with_average ? 2.0 : 1.0)) / writers;
  const auto room = [&](int w) { return std::max(0.0, even - (w == 0 ? 1 : 0) - (averages(w) ? 1 : 0)); };
  double all = 0, before = 0;
  CheckpointShare share;
  share.shards = 0;
  for (int w = 0; w < writers; ++w) {
    all += room(w);
    if (room(w) == 0) continue;
    if (w < writer) before += room(w), ++share.shard;
    ++share.shards;
  }
  const auto edge = [&](double part) {
    const std::int64_t unit = ParameterSet::alignment, units = flat_size / unit;
    return part >= all ? flat_size : static_cast<std::int64_t>(part / all * static_cast<double>(units)) * unit;
  };
  share.model = writer == 0;
  if (averages(writer)) share.average = {{0, flat_size}};
  // The end equals the next writer's beginning exactly: the same sum, in the same order.
  const std::int64_t begin = edge(before), end = edge(before + room(writer));
  if (moments > 0 && end > begin) share.moments = {{begin, end - begin}};
  return share;
}

CheckpointShare share_of_owner(int rank, int ranks, const std::vector<FlatRange>& owned, bool with_average) {
  CheckpointShare share;
  share.model = rank == 0;
  share.moments = owned;
  if (with_average) share.average = owned;
  share.shard = share.average_shard = rank;
  share.shards = share.average_shards = ranks;
  return share;
}

void create_checkpoints_directory(const std::string& run) {
  const std::string all = inside(run, "checkpoints");
  std::error_code error;
  fs::create_directories(all, error);
  if (error) throw user_error("{}: cannot create the directory: {}", all, error.message());
}

std::unique_ptr<AtomicDirectory> begin_checkpoint(const std::string& run, std::int64_t step) {
  create_checkpoints_directory(run);
  remove_temporaries(checkpoints_directory(run));
  const fs::path directory = checkpoint_directory(run, step);
  return std::make_unique<AtomicDirectory>(inside(checkpoints_directory(run), directory.filename().string()));
}

std::vector<FlatRange> CheckpointShare::part_of(SavedIn file, std::int64_t count) const {
  if (file == SavedIn::average) return average;
  if (file == SavedIn::moments) return moments;
  const bool all = file == SavedIn::states ? states : model;
  return all ? std::vector<FlatRange>{{0, count}} : std::vector<FlatRange>{};
}

CheckpointShare share_of(const TrainingTensors& tensors, int writer, int writers) {
  const bool average = tensors.ema.given();
  CheckpointShare share =
      tensors.moment_ranges.empty()
          ? share_of_writer(writer, writers, tensors.parameters.flat_size(), average, tensors.moments())
          : share_of_owner(writer, writers, tensors.moment_ranges, average);
  share.states = tensors.states.given();
  share.state_shard = writer;
  share.state_shards = writers;
  return share;
}

namespace {

std::string name_of(const CheckpointShare& share, SavedIn file) {
  const auto shard = [](const char* prefix, int index, int count) {
    return fmt::format("{}{:05}-of-{:05}.safetensors", prefix, index, count);
  };
  if (file == SavedIn::model) return checkpoint_names::model;
  if (file == SavedIn::factors) return checkpoint_names::factors;
  if (file == SavedIn::moments) return shard(checkpoint_names::optimizer, share.shard, share.shards);
  if (file == SavedIn::states) return shard(checkpoint_names::states, share.state_shard, share.state_shards);
  if (share.average_shards == 1) return fmt::format("{}.safetensors", checkpoint_names::average);
  return shard("ema-", share.average_shard, share.average_shards);
}

}  // namespace

std::map<std::string, FileDigest> write_share(const std::string& directory, std::int64_t step,
                                              const TrainingTensors& tensors, const CheckpointShare& share) {
  std::map<std::string, std::vector<Named>> files;
  for (const SavedTensor& saved : saved_tensors) {
    const Tensor& t = tensors.*saved.tensor;
    const std::vector<FlatRange> part = share.part_of(saved.file, t.count());
    if (!t.given() || part.empty()) continue;
    std::vector<Named>& all = files[name_of(share, saved.file)];
    if (saved.file == SavedIn::states)
      add_rows(all, tensors);
    else
      add_ranges(all, saved.prefix, saved.layout_in(tensors), t, part);
  }
  std::map<std::string, FileDigest> written;
  for (const auto& [name, all] : files) written[name] = write_tensors(directory + "/" + name, all, step);
  return written;
}

namespace {

// All shards have the same types.
std::int64_t version_of(const std::string& directory, const std::map<std::string, FileDigest>& files) {
  for (const auto& [name, digest] : files)
    if (name.starts_with(checkpoint_names::states))
      return holds_16_bits(directory + "/" + name) ? checkpoint_version : version_of_f32_states;
  return version_without_states;
}

}  // namespace

void commit_checkpoint(const std::string& run, const CheckpointState& state,
                       const std::map<std::string, FileDigest>& files, AtomicDirectory& directory, std::int64_t keep,
                       bool keep_best) {
  const CheckpointManifest manifest{version_of(directory.path(), files), state, files};
  write_file_atomically(directory.path() + "/" + checkpoint_names::state, manifest_text(manifest));
  directory.commit();
  remove_oldest_checkpoints(run, state.step, keep, keep_best);
}

// Those that cannot be listed stay: the new one is saved.
void remove_oldest_checkpoints(const std::string& run, std::int64_t newest, std::int64_t keep, bool keep_best) try {
  std::vector<std::int64_t> steps = checkpoint_steps(run);
  std::erase_if(steps, [&](std::int64_t step) { return step > newest; });
  const auto kept = static_cast<std::size_t>(keep);
  if (keep == 0 || steps.size() <= kept) return;
  const std::optional<std::int64_t> best = keep_best ? best_step(run, newest) : std::nullopt;
  for (std::size_t i = 0; i + kept < steps.size(); ++i)
    if (steps[i] != best) remove_checkpoint(checkpoint_directory(run, steps[i]));
} catch (const UserError& error) {
  spdlog::warn("older checkpoints are not removed: {}", error.what());
}

void read_parameters(const std::string& path, const ParameterSet& parameters, const Tensor& flat) {
  std::vector<Named> all;
  for (const Parameter& p : parameters.all()) all.push_back({p.name, flat.given() ? slice_of(flat, p) : p.master});
  read_tensors(path, all);
  refuse_non_finite(path, parameters, flat);
}

void read_moments(const std::string& directory, const std::vector<std::string>& shards,
                  const TrainingTensors& tensors) {
  std::vector<Wanted> all;
  for (const SavedTensor& saved : saved_tensors)
    if (const Tensor& t = tensors.*saved.tensor;
        t.given() && (saved.file == SavedIn::moments || saved.file == SavedIn::factors))
      all.push_back({saved.prefix, &saved.layout_in(tensors), t});
  read_shards(directory, shards, all);
}

void read_average(const std::string& directory, const std::vector<std::string>& shards, const ParameterSet& parameters,
                  const Tensor& flat) {
  read_shards(directory, shards, {{"", &parameters, flat}});
  refuse_non_finite(directory, parameters, flat);
}

}  // namespace longstride
