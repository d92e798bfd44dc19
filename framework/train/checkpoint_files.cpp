#include "framework/train/checkpoint_files.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <unordered_map>

#include "framework/core/errors.h"
#include "framework/train/checkpoint_state.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

constexpr const char* moment_names[] = {"m.", "v."};

Tensor slice_of(const Tensor& flat, const Parameter& p) {
  return flat.slice(0, p.offset, p.offset + p.shape.count()).reshape(p.shape);
}

// A tensor of a file and the memory it is written from or read into.
struct Named {
  std::string name;
  Tensor tensor;
};

std::vector<Named> slices_of(const ParameterSet& parameters, const Tensor& flat) {
  LONGSTRIDE_CHECK(flat.rank() == 1 && flat.size(0) == parameters.flat_size(), "a flat buffer is {}, not ({})",
                   flat.shape().text(), parameters.flat_size());
  std::vector<Named> all;
  for (const Parameter& p : parameters.all()) all.push_back({p.name, slice_of(flat, p)});
  return all;
}

// The parameters of a range of a moment. One that the range cuts is there as "m.<name>[begin:end]": those elements of
// it, in one dimension.
void add_range(std::vector<Named>& all, const std::string& prefix, const TrainingTensors& tensors, const Tensor& moment,
               std::int64_t begin, std::int64_t end) {
  for (const Parameter& p : tensors.parameters.all()) {
    const std::int64_t first = std::max(begin, p.offset), last = std::min(end, p.offset + p.shape.count());
    if (first >= last) continue;
    const Tensor part = moment.slice(0, first - tensors.moments_begin, last - tensors.moments_begin);
    if (last - first == p.shape.count())
      all.push_back({prefix + p.name, part.reshape(p.shape)});
    else
      all.push_back({fmt::format("{}{}[{}:{}]", prefix, p.name, first - p.offset, last - p.offset), part});
  }
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
            "{}: holds tensor '{}' {}, which the model has not; use the recipe that the run was started with", path,
            entry.name, entry.shape.text());
  }
  for (const Named& n : all) reader.read(n.name, n.tensor);
}

// Gone at once under its name, then byte by byte: a half-deleted checkpoint is never seen.
void remove_checkpoint(const std::string& directory) {
  const fs::path path(directory);
  const fs::path doomed = path.parent_path() / (".tmp-" + path.filename().string() + "-removed");
  std::error_code error;
  fs::rename(path, doomed, error);
  if (!error) fs::remove_all(doomed, error);
  if (error) spdlog::warn("{}: cannot be removed: {}", directory, error.message());
}

// Checkpoints of later steps than the one just saved were passed over as damaged when the run resumed; they neither
// count nor go.
void remove_oldest(const std::string& run, std::int64_t newest, std::int64_t keep) {
  std::vector<std::int64_t> steps = checkpoint_steps(run);
  std::erase_if(steps, [&](std::int64_t step) { return step > newest; });
  const auto kept = static_cast<std::size_t>(keep);
  for (std::size_t i = 0; keep > 0 && i + kept < steps.size(); ++i)
    remove_checkpoint(checkpoint_directory(run, steps[i]));
}

// "m.<name>" or "m.<name>[begin:end]".
struct MomentName {
  int moment = 0;
  std::string parameter;
  std::optional<std::pair<std::int64_t, std::int64_t>> range;
};

std::optional<MomentName> parse_moment_name(const std::string& name) {
  for (int moment = 0; moment < 2; ++moment) {
    const std::string prefix = moment_names[moment];
    if (!name.starts_with(prefix)) continue;
    MomentName parsed{moment, name.substr(prefix.size()), {}};
    const std::size_t open = parsed.parameter.rfind('[');
    if (!name.ends_with("]") || open == std::string::npos) return parsed;
    const char* at = parsed.parameter.data() + open + 1;
    const char* end = parsed.parameter.data() + parsed.parameter.size() - 1;
    std::int64_t first = 0, last = 0;
    const auto colon = std::from_chars(at, end, first);
    if (colon.ec != std::errc() || colon.ptr == end || *colon.ptr != ':') return std::nullopt;
    const auto stop = std::from_chars(colon.ptr + 1, end, last);
    if (stop.ec != std::errc() || stop.ptr != end) return std::nullopt;
    parsed.range = {first, last};
    parsed.parameter.resize(open);
    return parsed;
  }
  return std::nullopt;
}

}  // namespace

std::string checkpoints_directory(const std::string& run) { return run + "/checkpoints"; }
std::string checkpoint_directory(const std::string& run, std::int64_t step) {
  return fmt::format("{}/step-{:08}", checkpoints_directory(run), step);
}

CheckpointShare share_of_writer(int writer, int writers, std::int64_t flat_size, bool with_average) {
  const auto whole_files = [&](int w) {
    return (w == 0 ? 1 : 0) + (with_average && w == std::min(1, writers - 1) ? 1 : 0);
  };
  const double even = (with_average ? 4.0 : 3.0) / writers;
  const auto room = [&](int w) { return std::max(0.0, even - whole_files(w)); };
  double all = 0, before = 0;
  CheckpointShare share;
  share.shards = 0;
  for (int w = 0; w < writers; ++w) {
    all += room(w);
    if (w < writer) before += room(w);
    if (room(w) > 0 && w < writer) ++share.shard;
    if (room(w) > 0) ++share.shards;
  }
  const auto edge = [&](double part) {
    const std::int64_t unit = ParameterSet::alignment, units = flat_size / unit;
    return part >= all ? flat_size : static_cast<std::int64_t>(part / all * static_cast<double>(units)) * unit;
  };
  share.model = writer == 0;
  share.average = with_average && writer == std::min(1, writers - 1);
  share.begin = edge(before);
  share.end = edge(before + room(writer));  // the next one's beginning: the same sum, in the same order
  return share;
}

void create_checkpoints_directory(const std::string& run) {
  const std::string all = checkpoints_directory(run);
  std::error_code error;
  fs::create_directories(all, error);
  if (error) throw user_error("{}: cannot create the directory: {}", all, error.message());
}

std::unique_ptr<AtomicDirectory> begin_checkpoint(const std::string& run, std::int64_t step) {
  create_checkpoints_directory(run);
  remove_temporaries(checkpoints_directory(run));
  return std::make_unique<AtomicDirectory>(checkpoint_directory(run, step));
}

std::map<std::string, FileDigest> write_share(const std::string& directory, std::int64_t step,
                                              const TrainingTensors& tensors, const CheckpointShare& share) {
  std::map<std::string, FileDigest> written;
  const auto write = [&](const std::string& name, const std::vector<Named>& all) {
    written[name] = write_tensors(directory + "/" + name, all, step);
  };
  if (share.model) write(checkpoint_names::model, slices_of(tensors.parameters, tensors.masters));
  if (share.average) write(checkpoint_names::average, slices_of(tensors.parameters, tensors.ema));
  if (share.end <= share.begin) return written;
  std::vector<Named> moments;
  add_range(moments, moment_names[0], tensors, tensors.m, share.begin, share.end);
  add_range(moments, moment_names[1], tensors, tensors.v, share.begin, share.end);
  write(fmt::format("{}{:05}-of-{:05}.safetensors", checkpoint_names::optimizer, share.shard, share.shards), moments);
  return written;
}

void commit_checkpoint(const std::string& run, const CheckpointState& state,
                       const std::map<std::string, FileDigest>& files, AtomicDirectory& directory, std::int64_t keep) {
  const CheckpointManifest manifest{checkpoint_version, state, files};
  write_file_atomically(directory.path() + "/" + checkpoint_names::state, manifest_text(manifest));
  directory.commit();
  remove_oldest(run, state.step, keep);
}

void read_parameters(const std::string& path, const ParameterSet& parameters, const Tensor& flat) {
  if (flat.given()) return read_tensors(path, slices_of(parameters, flat));
  std::vector<Named> all;
  for (const Parameter& p : parameters.all()) all.push_back({p.name, p.master});
  read_tensors(path, all);
}

void read_moments(const std::string& directory, const std::vector<std::string>& shards,
                  const TrainingTensors& tensors) {
  constexpr const char* advice = "use the recipe that the run was started with";
  struct Wanted {
    const Parameter* parameter;
    std::int64_t read[2] = {0, 0};  // elements of each moment
  };
  std::unordered_map<std::string, Wanted> wanted;
  for (const Parameter& p : tensors.parameters.all()) wanted.emplace(p.name, Wanted{&p, {0, 0}});
  for (const std::string& shard : shards) {
    const SafetensorsReader reader(directory + "/" + shard);
    for (const TensorEntry& entry : reader.entries()) {
      const std::optional<MomentName> name = parse_moment_name(entry.name);
      const auto found = name ? wanted.find(name->parameter) : wanted.end();
      if (found == wanted.end())
        throw user_error("{}: holds tensor '{}' {}, which the model has not; {}", reader.path(), entry.name,
                         entry.shape.text(), advice);
      const Parameter& p = *found->second.parameter;
      const std::int64_t first = name->range ? name->range->first : 0;
      const std::int64_t last = name->range ? name->range->second : p.shape.count();
      const Shape shape = name->range ? Shape{last - first} : p.shape;
      if (first < 0 || last <= first || last > p.shape.count() || !(entry.shape == shape))
        throw user_error("{}: tensor '{}' is {}, but the model's '{}' is {}; {}", reader.path(), entry.name,
                         entry.shape.text(), p.name, p.shape.text(), advice);
      const Tensor& flat = name->moment == 0 ? tensors.m : tensors.v;
      reader.read(entry.name, flat.slice(0, p.offset + first, p.offset + last).reshape(shape));
      found->second.read[name->moment] += last - first;
    }
  }
  for (const auto& [name, w] : wanted)
    for (const std::int64_t read : w.read)
      if (read != w.parameter->shape.count())
        throw user_error("{}: holds {} of the {} elements of a moment of '{}'; {}", directory, read,
                         w.parameter->shape.count(), name, advice);
}

}  // namespace longstride
