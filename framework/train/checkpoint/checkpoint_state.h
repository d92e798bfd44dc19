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

// The version that this program writes, and the newest that it reads.
constexpr std::int64_t checkpoint_version = 2;  // 1: the moments in one file

// The text holds a checksum of itself: the SHA-256 of the same JSON without its key "checksum", keys sorted, no spaces.
// That rule holds for every version, so a newer version can be told from damage.
std::string manifest_text(const CheckpointManifest& manifest);

// UserError, naming `path`, on anything that manifest_text does not write. For a manifest of a later version only
// `version` is set.
CheckpointManifest parse_manifest(const std::string& text, const std::string& path);

}  // namespace longstride
