// state.json of a checkpoint: reading, writing and checking it. The rest is checkpoint.h's.
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

// The version that this program writes, and the newest that it reads.
constexpr std::int64_t checkpoint_version = 2;  // 1: the moments in one file

// The text holds a checksum of itself: the SHA-256 of the same JSON without its key "checksum", keys sorted, no spaces.
// That rule holds for every version, so that a newer version is told from damage.
std::string manifest_text(const CheckpointManifest& manifest);

// UserError, naming `path`, on anything that is not what manifest_text writes. A manifest of a later version comes back
// with `version` alone.
CheckpointManifest parse_manifest(const std::string& text, const std::string& path);

}  // namespace longstride
