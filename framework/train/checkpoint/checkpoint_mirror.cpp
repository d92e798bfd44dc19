#include "framework/train/checkpoint/checkpoint_mirror.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <vector>

#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/files/inside.h"
#include "framework/core/files/sha256.h"
#include "framework/train/checkpoint/checkpoint_files.h"
#include "framework/train/checkpoint/checkpoint_state.h"
#include "framework/train/checkpoint/run_id.h"

namespace longstride {
namespace {

void copy_file(const std::string& from, const std::string& to, const FileDigest& digest) {
  constexpr std::uint64_t piece = std::uint64_t{4} << 20;
  const InputFile in(from);
  if (in.size() != digest.bytes)
    throw user_error("{}: holds {} bytes, but {} were written", from, in.size(), digest.bytes);
  AtomicFile out(to);
  Sha256 sha;
  std::vector<char> buffer(std::min(piece, in.size()));
  for (std::uint64_t at = 0; at < in.size(); at += buffer.size()) {
    buffer.resize(std::min(piece, in.size() - at));
    in.read(at, buffer.data(), buffer.size());
    sha.update(buffer.data(), buffer.size());
    out.write(buffer.data(), buffer.size());
  }
  if (sha.hex() != digest.sha256) throw user_error("{}: its content does not match its checksum", from);
  out.commit();
}

// `check` may refuse, at the start and again before the copy gets its name.
void copy_checkpoint(const std::string& from, std::int64_t step, const std::string& to,
                     const std::function<void()>& check = {}) {
  if (check) check();
  const std::string source = checkpoint_directory(from, step), state_path = inside(source, checkpoint_names::state);
  const std::string state = read_at_most(state_path);
  const CheckpointManifest manifest = parse_manifest(state, state_path);
  const auto directory = begin_checkpoint(to, step);
  for (const auto& [name, digest] : manifest.files)
    copy_file(source + "/" + name, directory->path() + "/" + name, digest);
  write_file_atomically(directory->path() + "/" + checkpoint_names::state, state);
  if (check) check();
  directory->commit();
}

bool holds(const std::string& run, std::int64_t step) {
  const std::vector<std::int64_t> steps = checkpoint_steps(run);
  return std::binary_search(steps.begin(), steps.end(), step);
}

// A run that has lost its best checkpoint continues without it if the mirror's is damaged.
void restore_best(const std::string& run, const std::string& mirror, std::int64_t newest) {
  for (const std::int64_t step : steps_by_valid_loss(mirror, newest, true)) {
    if (is_whole(run, step)) return;
    if (!is_whole(mirror, step)) continue;
    copy_checkpoint(mirror, step, run);
    spdlog::warn("{}: step {}, the best, is taken from {}", run, step, mirror);
    return;
  }
}

}  // namespace

void mirror_checkpoint(const std::string& run, std::int64_t step, const std::string& mirror, std::int64_t keep,
                       bool keep_best, const std::function<void()>& check) {
  const std::string path = inside(checkpoint_directory(run, step), checkpoint_names::state);
  if (holds_other_run(mirror, parse_manifest(read_at_most(path), path).state.run_id))
    throw user_error("{}: holds checkpoints of another run; choose another folder with train.mirror", mirror);
  copy_checkpoint(run, step, mirror, check);
  if (const auto best = keep_best ? best_step(run, step) : std::nullopt; best && !holds(mirror, *best)) try {
      copy_checkpoint(run, *best, mirror, check);
    } catch (const UserError& error) {
      spdlog::warn("the best checkpoint, of step {}, has no second copy: {}", *best, error.what());
    }
  if (check) check();
  remove_oldest_checkpoints(mirror, step, keep, keep_best);
}

std::optional<std::int64_t> restore_from_mirror(const std::string& run, const std::string& mirror, bool keep_best,
                                                const std::function<void(const std::string&)>& accept) {
  static_cast<void>(id_of_run(run, mirror));
  const std::optional<std::int64_t> second = newest_whole_step(mirror);
  const std::int64_t first = newest_whole_step(run, false).value_or(-1);  // those left are read, and warned of, later
  const bool newer = second && first < *second;
  if (accept) accept(newer ? mirror : run);
  if (newer) copy_checkpoint(mirror, *second, run);
  if (keep_best && second) restore_best(run, mirror, std::max(first, *second));
  return newer ? second : std::nullopt;
}

}  // namespace longstride
