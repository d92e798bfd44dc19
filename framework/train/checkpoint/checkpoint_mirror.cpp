#include "framework/train/checkpoint/checkpoint_mirror.h"

#include <algorithm>
#include <vector>

#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/files/sha256.h"
#include "framework/train/checkpoint/checkpoint_files.h"
#include "framework/train/checkpoint/checkpoint_state.h"

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

void copy_checkpoint(const std::string& from, std::int64_t step, const std::string& to) {
  const std::string source = checkpoint_directory(from, step), state_path = source + "/" + checkpoint_names::state;
  const std::string state = read_file(state_path);
  const CheckpointManifest manifest = parse_manifest(state, state_path);
  const auto directory = begin_checkpoint(to, step);
  for (const auto& [name, digest] : manifest.files)
    copy_file(source + "/" + name, directory->path() + "/" + name, digest);
  write_file_atomically(directory->path() + "/" + checkpoint_names::state, state);
  directory->commit();
}

}  // namespace

void mirror_checkpoint(const std::string& run, std::int64_t step, const std::string& mirror, std::int64_t keep) {
  copy_checkpoint(run, step, mirror);
  remove_oldest_checkpoints(mirror, step, keep);
}

std::optional<std::int64_t> restore_from_mirror(const std::string& run, const std::string& mirror) {
  const std::optional<std::int64_t> second = newest_whole_step(mirror);
  if (!second || newest_whole_step(run).value_or(-1) >= *second) return std::nullopt;
  copy_checkpoint(mirror, *second, run);
  return second;
}

}  // namespace longstride
