#include "framework/train/checkpoint/checkpoint.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <future>

#include "framework/core/device/memory.h"
#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/files/first_bytes.h"
#include "framework/core/files/inside.h"
#include "framework/core/files/safetensors.h"
#include "framework/core/files/sha256.h"
#include "framework/core/text/printable.h"
#include "framework/train/checkpoint/checkpoint_files.h"
#include "framework/train/checkpoint/checkpoint_state.h"
#include "framework/train/checkpoint/run_id.h"
#include "framework/train/checkpoint/state_tensors.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

enum class Verify { sizes, weights, checksums };  // weights: all sizes, and the checksum of the weights

std::vector<std::string> files_of(const CheckpointManifest& manifest, const std::string& prefix) {
  std::vector<std::string> names;
  for (const auto& [name, digest] : manifest.files)
    if (name.starts_with(prefix)) names.push_back(name);
  return names;
}

// Weights of one checkpoint and state of another are each whole.
void check_step(const std::string& path, std::int64_t step) {
  const SafetensorsReader reader(path);
  const auto written = reader.metadata().find("step");
  if (written == reader.metadata().end() || written->second == std::to_string(step)) return;
  throw user_error("{}: holds tensors of step {}, but the checkpoint is of step {}; copy the checkpoint again", path,
                   printable_beginning(written->second), step);
}

void check_file(const std::string& path, const FileDigest& digest, std::int64_t step, Verify depth) {
  const InputFile file(path);
  refuse_pointer(file);
  const std::uint64_t bytes = file.size();
  if (bytes != digest.bytes) throw user_error("{}: holds {} bytes, but {} were written", path, bytes, digest.bytes);
  if (depth != Verify::checksums) return;
  if (is_hollow(path)) throw user_error("{}: of its {} bytes next to none are stored; copy it again", path, bytes);
  if (sha256_of_file(path) != digest.sha256) throw user_error("{}: its content does not match its checksum", path);
  if (path.ends_with(".safetensors")) check_step(path, step);
}

// Checks several files at a time, with a fixed limit on threads.
void check_files(const std::string& directory, const CheckpointManifest& manifest, Verify depth) {
  constexpr std::size_t most_threads = 16;
  std::atomic<std::size_t> next = 0;
  const std::vector<std::pair<std::string, FileDigest>> all(manifest.files.begin(), manifest.files.end());
  const auto check = [&] {
    for (std::size_t i = next++; i < all.size(); i = next++)
      check_file(inside(directory, all[i].first), all[i].second, manifest.state.step, depth);
  };
  std::vector<std::future<void>> threads;
  while (threads.size() < std::min(all.size(), most_threads)) threads.push_back(std::async(std::launch::async, check));
  for (std::future<void>& thread : threads) thread.wait();
  for (std::future<void>& thread : threads) thread.get();
}

CheckpointManifest read_manifest(const std::string& directory) {
  const std::string path = inside(directory, checkpoint_names::state);
  return parse_manifest(read_at_most(path), path);
}

// The UserError says what is missing or damaged.
CheckpointManifest verified(const std::string& directory, std::int64_t step, Verify depth) {
  const std::string state_path = directory + "/" + checkpoint_names::state;
  const CheckpointManifest manifest = read_manifest(directory);
  if (manifest.version > checkpoint_version) return manifest;
  if (manifest.state.step != step)
    throw user_error("{}: is of step {}, not of the step in the directory's name", state_path, manifest.state.step);
  if (!manifest.files.contains(checkpoint_names::model))
    throw user_error("{}: does not list {}", state_path, checkpoint_names::model);
  if (files_of(manifest, checkpoint_names::optimizer).empty())
    throw user_error("{}: does not list the optimizer's moments", state_path);
  check_files(directory, manifest, depth);
  if (depth == Verify::weights)
    check_file(directory + "/" + checkpoint_names::model, manifest.files.at(checkpoint_names::model), step,
               Verify::checksums);
  return manifest;
}

struct WholeCheckpoint {
  std::string directory;
  CheckpointManifest manifest;
};

CheckpointManifest checked(const std::string& directory, const CheckpointManifest& manifest) {
  if (manifest.version <= checkpoint_version) return manifest;
  throw user_error("{}: is a checkpoint of a later version of Longstride; read it with that version, or move it away",
                   directory);
}

using Skipped = std::vector<std::pair<std::int64_t, std::string>>;  // the steps, and what is wrong with them

void warn_of(const Skipped& skipped) {
  for (const auto& [step, what] : skipped) spdlog::warn("the checkpoint of step {} is skipped: {}", step, what);
}

// The first of these steps whose checkpoint is whole. Those before it are skipped.
std::optional<WholeCheckpoint> first_whole(const std::string& run, const std::vector<std::int64_t>& steps, Verify depth,
                                           Skipped& skipped) {
  for (const std::int64_t step : steps) {
    const std::string directory = checkpoint_directory(run, step);
    CheckpointManifest manifest;
    try {
      manifest = verified(directory, step, depth);
    } catch (const UserError& error) {
      skipped.emplace_back(step, error.what());
      continue;
    }
    return WholeCheckpoint{directory, checked(directory, manifest)};
  }
  return std::nullopt;
}

std::vector<std::int64_t> by_valid_loss(const std::string& run, std::int64_t newest, Skipped& skipped) {
  std::vector<CheckpointState> scored;  // ascending in step
  for (const std::int64_t step : checkpoint_steps(run)) {
    if (step > newest) break;
    try {
      const CheckpointState state = read_manifest(checkpoint_directory(run, step)).state;
      if (state.step == step && state.valid_loss) scored.push_back(state);
    } catch (const UserError& error) {
      skipped.emplace_back(step, error.what());
    }
  }
  std::vector<std::int64_t> steps;
  if (scored.empty()) return steps;
  const CheckpointState last = scored.back();
  std::erase_if(scored, [&](const CheckpointState& state) {
    return state.valid_bytes != last.valid_bytes || of_different_runs(state.run_id, last.run_id);
  });
  std::reverse(scored.begin(), scored.end());
  std::stable_sort(scored.begin(), scored.end(),
                   [](const CheckpointState& a, const CheckpointState& b) { return *a.valid_loss < *b.valid_loss; });
  for (const CheckpointState& state : scored) steps.push_back(state.step);
  return steps;
}

// "2, 4 and 10"; the middle of a long list is left out.
std::string listed(const std::vector<std::int64_t>& steps) {
  constexpr std::size_t most = 12, ends = 4;
  std::string out = fmt::format("{}", steps.front());
  for (std::size_t i = 1; i < steps.size(); ++i) {
    const bool skips = steps.size() > most && i == ends;
    if (skips) i = steps.size() - ends;
    out += fmt::format("{}{}{}", i + 1 == steps.size() ? " and " : ", ", skips ? "... " : "", steps[i]);
  }
  return out;
}

WholeCheckpoint whole_of_step(const std::string& run, std::int64_t step, std::vector<std::int64_t> steps,
                              Verify depth) {
  const std::string directory = checkpoint_directory(run, step);
  try {
    return {directory, checked(directory, verified(directory, step, depth))};
  } catch (const UserError& error) {
    std::erase(steps, step);
    throw user_error("{}: the checkpoint of step {} cannot be read ({}); {}", run, step, error.what(),
                     steps.empty() ? "it is the only one" : "choose from " + listed(steps));
  }
}

// True if the data of the run had an empty validation split.
bool validates_nothing(const std::string& run, std::int64_t step) try {
  const DataRecord data = read_manifest(checkpoint_directory(run, step)).state.data;
  const auto valid = data.find("valid");
  return valid != data.end() && valid->second == Sha256().hex();
} catch (const UserError&) {  // a damaged checkpoint does not say
  return false;
}

// Unless `warn`, warns of damaged checkpoints only if no other is left.
WholeCheckpoint chosen_whole(const std::string& run, const CheckpointChoice& choice, Verify depth, bool warn) {
  const std::vector<std::int64_t> steps = checkpoint_steps(run);
  if (std::error_code error; steps.empty() && fs::status(run, error).type() == fs::file_type::not_found)
    throw user_error("{}: there is no such run; give the directory of one that has saved a checkpoint", run);
  if (std::error_code error; steps.empty() && fs::is_regular_file(run, error))
    throw user_error("{}: is a file; give the directory of a run that has saved a checkpoint, such as runs/mine", run);
  if (steps.empty()) throw user_error("{}: holds no checkpoint; give the directory of a run that has saved one", run);
  Skipped skipped;
  std::vector<std::int64_t> wanted = {choice.step};
  if (choice.kind == CheckpointChoice::Kind::last) wanted.assign(steps.rbegin(), steps.rend());
  if (choice.kind == CheckpointChoice::Kind::best) wanted = by_valid_loss(run, steps.back(), skipped);
  if (choice.kind == CheckpointChoice::Kind::step && !std::binary_search(steps.begin(), steps.end(), choice.step))
    throw user_error("{}: holds no checkpoint of step {}; choose from {}", run, choice.step, listed(steps));
  const auto found =
      choice.kind == CheckpointChoice::Kind::step ? std::nullopt : first_whole(run, wanted, depth, skipped);
  if (!found && choice.kind != CheckpointChoice::Kind::step && checkpoint_steps(run) != steps)
    return chosen_whole(run, choice, depth, warn);  // a run that trains has replaced them meanwhile
  if (warn || !found) warn_of(skipped);
  if (wanted.empty())
    throw user_error(
        "{}: none of its checkpoints has a validation loss to choose the best by, because {}; choose from {}", run,
        validates_nothing(run, steps.back()) ? "the validation split of its data is empty"
                                             : "training evaluated at other steps (train.evaluate_every)",
        listed(steps));
  if (choice.kind == CheckpointChoice::Kind::step) return whole_of_step(run, choice.step, steps, depth);
  if (found) return *found;
  if (choice.kind == CheckpointChoice::Kind::last)
    throw user_error("{}: none of its checkpoints, of {}, is complete; train it again in another directory", run,
                     listed(steps));
  throw user_error("{}: no checkpoint that has a validation loss is complete; choose from {}", run, listed(steps));
}

}  // namespace

std::vector<std::int64_t> steps_by_valid_loss(const std::string& run, std::int64_t newest, bool warn) {
  Skipped skipped;
  const std::vector<std::int64_t> steps = by_valid_loss(run, newest, skipped);
  if (warn) warn_of(skipped);
  return steps;
}

std::optional<std::int64_t> best_step(const std::string& run, std::int64_t newest) {
  for (const std::int64_t step : steps_by_valid_loss(run, newest, false)) try {
      verified(checkpoint_directory(run, step), step, Verify::sizes);
      return step;
    } catch (const UserError&) {  // nothing that could be kept
    }
  return std::nullopt;
}

bool is_whole(const std::string& run, std::int64_t step) {
  try {
    return verified(checkpoint_directory(run, step), step, Verify::checksums).version <= checkpoint_version;
  } catch (const UserError&) {
    return false;
  }
}

std::optional<std::int64_t> newest_whole_step(const std::string& run, bool warn) {
  std::vector<std::int64_t> steps = checkpoint_steps(run);
  std::reverse(steps.begin(), steps.end());
  Skipped skipped;
  const std::optional<WholeCheckpoint> found = first_whole(run, steps, Verify::checksums, skipped);
  if (warn) warn_of(skipped);
  return found ? std::optional(found->manifest.state.step) : std::nullopt;
}

std::vector<std::int64_t> checkpoint_steps(const std::string& run) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  const std::vector<std::string> entries = entries_of(inside(run, "checkpoints"), error);
  if (error)
    throw user_error("{}: its checkpoints cannot be read: {}; {}choose another run", run, error.message(),
                     error == std::errc::permission_denied ? "change its permissions or " : "");
  for (const std::string& entry : entries) {
    const std::string name = fs::path(entry).filename().string();
    const std::string digits = name.starts_with("step-") ? name.substr(5) : "";
    const bool number = digits.size() >= 8 && digits.size() <= 18 &&
                        std::all_of(digits.begin(), digits.end(), [](char c) { return '0' <= c && c <= '9'; });
    // Accepts only names that this program writes: step-000000001000 would be a second directory for the same step.
    if (!number || !checkpoint_directory(run, std::stoll(digits)).ends_with("/" + name)) continue;
    inside(run, "checkpoints/" + name);
    steps.push_back(std::stoll(digits));
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

CheckpointState load_newest_checkpoint(const std::string& run, const TrainingTensors& tensors) {
  const WholeCheckpoint found = chosen_whole(run, {}, Verify::checksums, true);
  const std::vector<std::string> averages = files_of(found.manifest, checkpoint_names::average);
  if (tensors.ema.given() && averages.empty())
    throw user_error("{}: holds no running average of the weights; set train.ema: 0, or start a new run",
                     found.directory);
  read_parameters(found.directory + "/" + checkpoint_names::model, tensors.parameters, tensors.masters);
  read_moments(found.directory, files_of(found.manifest, checkpoint_names::optimizer), tensors);
  if (tensors.ema.given()) read_average(found.directory, averages, tensors.parameters, tensors.ema);
  return found.manifest.state;
}

namespace {

// Rank 0 reads every state of all rows, one at a time; each rank keeps those of its rows.
void resume_states(Communicator& comm, const std::string& run, std::int64_t step, const TrainingTensors& tensors) {
  const StateLayout& layout = tensors.state_layout;
  for (const State& state : layout.states->all()) {
    const Tensor mine = tensors.rows().now(state);
    Shape shape = mine.shape();
    shape.size[0] = layout.all;
    const Block memory(Device::cpu, Tensor(nullptr, mine.dtype(), shape).bytes());
    const Tensor all(memory.data(), mine.dtype(), shape);
    if (comm.rank() == 0) {
      const WholeCheckpoint found = whole_of_step(run, step, {step}, Verify::sizes);
      read_states(found.directory, files_of(found.manifest, checkpoint_names::states), state, all);
    }
    comm.broadcast(all.data(), static_cast<std::int64_t>(all.bytes()), 0);
    const Tensor own = all.slice(0, layout.first, layout.first + layout.rows.count());
    std::memcpy(mine.data(), own.data(), own.bytes());
  }
}

}  // namespace

CheckpointState resume_from_checkpoint(Communicator& comm, const std::string& run, const TrainingTensors& tensors) {
  std::string text;
  if (comm.rank() == 0) text = manifest_text({checkpoint_version, load_newest_checkpoint(run, tensors), {}});
  text = comm.broadcast_text(text, 0);
  for (const SavedTensor& saved : saved_tensors)
    if (const Tensor& flat = tensors.*saved.tensor; flat.given() && saved.file != SavedIn::states)
      comm.broadcast(flat.data(), static_cast<std::int64_t>(flat.bytes()), 0);
  const CheckpointState state = parse_manifest(text, "the checkpoint that rank 0 has read").state;
  if (tensors.states.given()) resume_states(comm, run, state.step, tensors);
  return state;
}

CheckpointState load_weights(const std::string& run, ParameterSet& parameters, bool average,
                             const CheckpointChoice& choice) {
  const WholeCheckpoint found = chosen_whole(run, choice, Verify::checksums, true);
  const std::vector<std::string> averages = files_of(found.manifest, checkpoint_names::average);
  try {
    if (average && !averages.empty())
      read_average(found.directory, averages, parameters);
    else
      read_parameters(found.directory + "/" + checkpoint_names::model, parameters);
  } catch (const UserError&) {  // a run that trains may have removed it meanwhile, in favour of a newer one
    std::error_code absent;
    if (choice.kind == CheckpointChoice::Kind::step || fs::exists(found.directory, absent)) throw;
    return load_weights(run, parameters, average, choice);
  }
  return found.manifest.state;
}

CheckpointState read_state(const std::string& run, const CheckpointChoice& choice, bool warn) {
  return chosen_whole(run, choice, Verify::sizes, warn).manifest.state;
}

CheckpointState read_newest_state(const std::string& run, bool warn) { return read_state(run, {}, warn); }

CheckpointState read_state_of_weights(const std::string& run) {
  return chosen_whole(run, {}, Verify::weights, true).manifest.state;
}

}  // namespace longstride
