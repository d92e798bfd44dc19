// Reads, writes and checks a checkpoint's state.json. checkpoint.h has the rest.
#pragma once
#include <map>
#include <string>

#include "framework/core/files/safetensors.h"
#include "framework/train/checkpoint/checkpoint.h"

namespace longstride {

struct CheckpointManifest {
  std::int64_t version = 0;
  CheckpointState state;
  std::map<std::string, FileDigest> files;  // by name within the directory
};

// The newest version that this program reads: 1: the moments in one file; 2: in shards; 3: with states of streams; 4:
// states in 16 bits. It writes the lowest version that has what the checkpoint holds.
constexpr std::int64_t checkpoint_version = 4, version_of_f32_states = 3, version_without_states = 2;

// The text holds a checksum of itself: the SHA-256 of the same JSON without its key "checksum", keys sorted, no spaces.
// That rule holds for every version, so a newer version can be told from damage.
std::string manifest_text(const CheckpointManifest& manifest);

// UserError, naming `path`, on anything that manifest_text does not write. For a manifest of a later version only
// `version` is set.
CheckpointManifest parse_manifest(const std::string& text, const std::string& path);

}  // namespace longstride
