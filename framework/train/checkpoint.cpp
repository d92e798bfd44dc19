#include "framework/train/checkpoint.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>

#include "framework/core/errors.h"
#include "framework/core/files.h"
#include "framework/core/safetensors.h"
#include "framework/train/checkpoint_state.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

constexpr const char* state_name = "state.json";
constexpr const char* model_name = "model.safetensors";
constexpr const char* average_name = "ema.safetensors";
constexpr const char* optimizer_name = "optimizer-00000-of-00001.safetensors";
constexpr const char* first_moment = "m.";
constexpr const char* second_moment = "v.";

std::string directory_of_all(const std::string& run) { return run + "/checkpoints"; }
std::string directory_of(const std::string& run, std::int64_t step) {
  return fmt::format("{}/step-{:08}", directory_of_all(run), step);
}

Tensor slice_of(const Tensor& flat, const Parameter& p) {
  return flat.slice(0, p.offset, p.offset + p.shape.count()).reshape(p.shape);
}

// A tensor of a file and the memory it is written from or read into.
struct Named {
  std::string name;
  Tensor tensor;
};

std::vector<Named> masters_of(const ParameterSet& parameters) {
  std::vector<Named> all;
  for (const Parameter& p : parameters.all()) all.push_back({p.name, p.master});
  return all;
}

void add_slices(std::vector<Named>& all, const std::string& prefix, const ParameterSet& parameters,
                const Tensor& flat) {
  LONGSTRIDE_CHECK(flat.rank() == 1 && flat.size(0) == parameters.flat_size(), "a flat buffer is {}, not ({})",
                   flat.shape().text(), parameters.flat_size());
  for (const Parameter& p : parameters.all()) all.push_back({prefix + p.name, slice_of(flat, p)});
}

std::vector<Named> moments_of(const TrainingTensors& tensors) {
  std::vector<Named> all;
  add_slices(all, first_moment, tensors.parameters, tensors.m);
  add_slices(all, second_moment, tensors.parameters, tensors.v);
  return all;
}

std::vector<Named> slices_of(const ParameterSet& parameters, const Tensor& flat) {
  std::vector<Named> all;
  add_slices(all, "", parameters, flat);
  return all;
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
  for (std::size_t i = 0; keep > 0 && i + kept < steps.size(); ++i) remove_checkpoint(directory_of(run, steps[i]));
}

enum class Verify { sizes, checksums };

// UserError says what is missing or damaged.
CheckpointManifest verified(const std::string& directory, std::int64_t step, Verify depth) {
  const std::string state_path = directory + "/" + state_name;
  const CheckpointManifest manifest = parse_manifest(read_file(state_path), state_path);
  if (manifest.version > checkpoint_version) return manifest;
  if (manifest.state.step != step)
    throw user_error("{}: is of step {}, not of the step in the directory's name", state_path, manifest.state.step);
  for (const char* name : {model_name, optimizer_name})
    if (!manifest.files.contains(name)) throw user_error("{}: does not list {}", state_path, name);
  for (const auto& [name, digest] : manifest.files) {
    const std::string path = directory + "/" + name;
    const std::uint64_t bytes = InputFile(path).size();
    if (bytes != digest.bytes) throw user_error("{}: holds {} bytes, but {} were written", path, bytes, digest.bytes);
    if (depth == Verify::checksums && sha256_of_file(path) != digest.sha256)
      throw user_error("{}: its content does not match its checksum", path);
  }
  return manifest;
}

struct Found {
  std::string directory;
  CheckpointManifest manifest;
};

Found newest_whole(const std::string& run, Verify depth) {
  const std::vector<std::int64_t> steps = checkpoint_steps(run);
  if (steps.empty()) throw user_error("{}: holds no checkpoint; give the directory of a run that has saved one", run);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const std::string directory = directory_of(run, *step);
    try {
      const CheckpointManifest manifest = verified(directory, *step, depth);
      if (manifest.version <= checkpoint_version) return {directory, manifest};
    } catch (const UserError& error) {
      spdlog::warn("the checkpoint of step {} is passed over: {}", *step, error.what());
      continue;
    }
    throw user_error("{}: is a checkpoint of a later version of Longstride; read it with that version, or move it away",
                     directory);
  }
  throw user_error("{}: none of its {} checkpoints is whole; start the run again", run, steps.size());
}

}  // namespace

std::vector<std::int64_t> checkpoint_steps(const std::string& run) {
  std::vector<std::int64_t> steps;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(directory_of_all(run), absent)) {
    const std::string name = entry.path().filename().string();
    const std::string digits = name.starts_with("step-") ? name.substr(5) : "";
    const bool number = digits.size() >= 8 && digits.size() <= 18 &&
                        std::all_of(digits.begin(), digits.end(), [](char c) { return '0' <= c && c <= '9'; });
    // Only the name that this program gives: step-000000001000 would be another directory of the same step.
    if (number && directory_of(run, std::stoll(digits)).ends_with("/" + name)) steps.push_back(std::stoll(digits));
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

void save_checkpoint(const std::string& run, const CheckpointState& state, const TrainingTensors& tensors,
                     std::int64_t keep) {
  std::error_code error;
  fs::create_directories(directory_of_all(run), error);
  if (error) throw user_error("{}: cannot create the directory: {}", directory_of_all(run), error.message());
  remove_temporaries(directory_of_all(run));

  AtomicDirectory directory(directory_of(run, state.step));
  const auto write = [&](CheckpointManifest& manifest, const char* name, const std::vector<Named>& all) {
    manifest.files[name] = write_tensors(directory.path() + "/" + name, all, state.step);
  };
  CheckpointManifest manifest{checkpoint_version, state, {}};
  write(manifest, model_name, slices_of(tensors.parameters, tensors.masters));
  write(manifest, optimizer_name, moments_of(tensors));
  if (tensors.ema.given()) write(manifest, average_name, slices_of(tensors.parameters, tensors.ema));
  write_file_atomically(directory.path() + "/" + state_name, manifest_text(manifest));
  directory.commit();
  remove_oldest(run, state.step, keep);
}

CheckpointState load_newest_checkpoint(const std::string& run, const TrainingTensors& tensors) {
  const Found found = newest_whole(run, Verify::checksums);
  if (tensors.ema.given() && !found.manifest.files.contains(average_name))
    throw user_error("{}: holds no running average of the weights; set train.ema: 0, or start a new run",
                     found.directory);
  read_tensors(found.directory + "/" + model_name, slices_of(tensors.parameters, tensors.masters));
  read_tensors(found.directory + "/" + optimizer_name, moments_of(tensors));
  if (tensors.ema.given())
    read_tensors(found.directory + "/" + average_name, slices_of(tensors.parameters, tensors.ema));
  return found.manifest.state;
}

CheckpointState resume_from_checkpoint(Communicator& comm, const std::string& run, const TrainingTensors& tensors) {
  std::string text;
  if (comm.rank() == 0) text = manifest_text({checkpoint_version, load_newest_checkpoint(run, tensors), {}});
  auto length = static_cast<std::int64_t>(text.size());
  comm.broadcast(&length, sizeof(length), 0);
  text.resize(static_cast<std::size_t>(length));
  comm.broadcast(text.data(), length, 0);
  for (const Tensor& flat : {tensors.masters, tensors.m, tensors.v, tensors.ema})
    if (flat.given()) comm.broadcast(flat.data(), static_cast<std::int64_t>(flat.bytes()), 0);
  return parse_manifest(text, "the checkpoint that rank 0 has read").state;
}

CheckpointState load_weights(const std::string& run, ParameterSet& parameters, bool average) {
  const Found found = newest_whole(run, Verify::checksums);
  const bool averaged = average && found.manifest.files.contains(average_name);
  read_tensors(found.directory + "/" + (averaged ? average_name : model_name), masters_of(parameters));
  return found.manifest.state;
}

CheckpointState read_newest_state(const std::string& run) { return newest_whole(run, Verify::sizes).manifest.state; }

}  // namespace longstride
