#include "framework/train/checkpoint/checkpoint.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <future>

#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/files/safetensors.h"
#include "framework/train/checkpoint/checkpoint_files.h"
#include "framework/train/checkpoint/checkpoint_state.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

enum class Verify { sizes, checksums };

std::vector<std::string> files_of(const CheckpointManifest& manifest, const std::string& prefix) {
  std::vector<std::string> names;
  for (const auto& [name, digest] : manifest.files)
    if (name.starts_with(prefix)) names.push_back(name);
  return names;
}

void check_file(const std::string& path, const FileDigest& digest, Verify depth) {
  const std::uint64_t bytes = InputFile(path).size();
  if (bytes != digest.bytes) throw user_error("{}: holds {} bytes, but {} were written", path, bytes, digest.bytes);
  if (depth == Verify::checksums && sha256_of_file(path) != digest.sha256)
    throw user_error("{}: its content does not match its checksum", path);
}

// Checks several files at a time, with a fixed limit on threads.
void check_files(const std::string& directory, const std::map<std::string, FileDigest>& files, Verify depth) {
  constexpr std::size_t most_threads = 16;
  std::atomic<std::size_t> next = 0;
  const std::vector<std::pair<std::string, FileDigest>> all(files.begin(), files.end());
  const auto check = [&] {
    for (std::size_t i = next++; i < all.size(); i = next++)
      check_file(directory + "/" + all[i].first, all[i].second, depth);
  };
  std::vector<std::future<void>> threads;
  while (threads.size() < std::min(all.size(), most_threads)) threads.push_back(std::async(std::launch::async, check));
  for (std::future<void>& thread : threads) thread.wait();
  for (std::future<void>& thread : threads) thread.get();
}

// The UserError says what is missing or damaged.
CheckpointManifest verified(const std::string& directory, std::int64_t step, Verify depth) {
  const std::string state_path = directory + "/" + checkpoint_names::state;
  const CheckpointManifest manifest = parse_manifest(read_file(state_path), state_path);
  if (manifest.version > checkpoint_version) return manifest;
  if (manifest.state.step != step)
    throw user_error("{}: is of step {}, not of the step in the directory's name", state_path, manifest.state.step);
  if (!manifest.files.contains(checkpoint_names::model))
    throw user_error("{}: does not list {}", state_path, checkpoint_names::model);
  if (files_of(manifest, checkpoint_names::optimizer).empty())
    throw user_error("{}: does not list the optimizer's moments", state_path);
  check_files(directory, manifest.files, depth);
  return manifest;
}

struct WholeCheckpoint {
  std::string directory;
  CheckpointManifest manifest;
};

std::optional<WholeCheckpoint> find_newest_whole(const std::string& run, Verify depth) {
  const std::vector<std::int64_t> steps = checkpoint_steps(run);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const std::string directory = checkpoint_directory(run, *step);
    try {
      const CheckpointManifest manifest = verified(directory, *step, depth);
      if (manifest.version <= checkpoint_version) return WholeCheckpoint{directory, manifest};
    } catch (const UserError& error) {
      spdlog::warn("the checkpoint of step {} is skipped: {}", *step, error.what());
      continue;
    }
    throw user_error("{}: is a checkpoint of a later version of Longstride; read it with that version, or move it away",
                     directory);
  }
  return std::nullopt;
}

WholeCheckpoint newest_whole(const std::string& run, Verify depth) {
  if (std::optional<WholeCheckpoint> found = find_newest_whole(run, depth)) return *found;
  const std::size_t count = checkpoint_steps(run).size();
  if (count == 0) throw user_error("{}: holds no checkpoint; give the directory of a run that has saved one", run);
  throw user_error("{}: none of its {} checkpoints is complete; start the run again", run, count);
}

}  // namespace

std::optional<std::int64_t> newest_whole_step(const std::string& run) {
  const std::optional<WholeCheckpoint> found = find_newest_whole(run, Verify::checksums);
  return found ? std::optional(found->manifest.state.step) : std::nullopt;
}

std::vector<std::int64_t> checkpoint_steps(const std::string& run) {
  std::vector<std::int64_t> steps;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(checkpoints_directory(run), absent)) {
    const std::string name = entry.path().filename().string();
    const std::string digits = name.starts_with("step-") ? name.substr(5) : "";
    const bool number = digits.size() >= 8 && digits.size() <= 18 &&
                        std::all_of(digits.begin(), digits.end(), [](char c) { return '0' <= c && c <= '9'; });
    // Accepts only names that this program writes: step-000000001000 would be a second directory for the same step.
    if (number && checkpoint_directory(run, std::stoll(digits)).ends_with("/" + name))
      steps.push_back(std::stoll(digits));
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

CheckpointState load_newest_checkpoint(const std::string& run, const TrainingTensors& tensors) {
  const WholeCheckpoint found = newest_whole(run, Verify::checksums);
  const std::vector<std::string> averages = files_of(found.manifest, checkpoint_names::average);
  if (tensors.ema.given() && averages.empty())
    throw user_error("{}: holds no running average of the weights; set train.ema: 0, or start a new run",
                     found.directory);
  read_parameters(found.directory + "/" + checkpoint_names::model, tensors.parameters, tensors.masters);
  read_moments(found.directory, files_of(found.manifest, checkpoint_names::optimizer), tensors);
  if (tensors.ema.given()) read_average(found.directory, averages, tensors.parameters, tensors.ema);
  return found.manifest.state;
}

CheckpointState resume_from_checkpoint(Communicator& comm, const std::string& run, const TrainingTensors& tensors) {
  std::string text;
  if (comm.rank() == 0) text = manifest_text({checkpoint_version, load_newest_checkpoint(run, tensors), {}});
  text = comm.broadcast_text(text, 0);
  for (const Tensor& flat : {tensors.masters, tensors.m, tensors.v, tensors.ema})
    if (flat.given()) comm.broadcast(flat.data(), static_cast<std::int64_t>(flat.bytes()), 0);
  return parse_manifest(text, "the checkpoint that rank 0 has read").state;
}

CheckpointState load_weights(const std::string& run, ParameterSet& parameters, bool average) {
  const WholeCheckpoint found = newest_whole(run, Verify::checksums);
  const std::vector<std::string> averages = files_of(found.manifest, checkpoint_names::average);
  if (average && !averages.empty())
    read_average(found.directory, averages, parameters);
  else
    read_parameters(found.directory + "/" + checkpoint_names::model, parameters);
  return found.manifest.state;
}

CheckpointState read_newest_state(const std::string& run) { return newest_whole(run, Verify::sizes).manifest.state; }

}  // namespace longstride
