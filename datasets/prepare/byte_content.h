// The content of a file for `prepare bytes`: its bytes, or what it unpacks to if it is compressed or an archive. Its
// first bytes decide, whatever its name.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "datasets/formats/byte_input.h"
#include "datasets/prepare/copies.h"
#include "framework/core/files/first_bytes.h"

namespace longstride {

// The end of every refusal of a file that is no text.
inline constexpr const char* take_any = "or take its bytes as they are with --any";

struct Packing {
  std::string compression;  // "gzip", "xz", "bzip2" or "zstd"; empty: none, or the zip archive's own
  bool archive = false;     // tar or zip
  bool any = false;         // files in the archive may be no text

  bool none() const { return compression.empty() && !archive; }
};

// True if the name ends like a packed file's: ".zip", ".gz" ..
bool named_like_packed(const std::string& name);

// UserError if the blob is packed in a way that is not unpacked, such as 7z or twice, or only looks packed.
Packing packing_of(const Blob& blob);

// One file: the content itself, or a file of an archive, in the order in which open_content yields them.
struct ContentPart {
  std::string name;
  Fingerprint print;
  std::string below = {};  // the name within its archive, and with JoinedInputs within the folder that is its input
};

struct ContentSize {
  std::int64_t bytes = 0;  // length of open_content's stream
  std::int64_t links = 0;  // in an archive, which are left out
  std::vector<ContentPart> parts;
};

// Found by reading the whole blob, or an archive's table of files. UserError if the blob is damaged, or unpacks to so
// much that it is made to fill disks. `only_input`: nothing else is prepared with it.
ContentSize content_size(const Blob& blob, const Packing& packing, bool only_input);

// The first bytes of a file, or of what it unpacks to, as many as a Fingerprint needs; nothing of an archive, whose
// files are looked at when they are read.
std::string beginning_of_content(const Blob& blob, const Packing& packing);

// The content, of which an archive's files follow each other in its order, without hidden ones. `blob` must outlive the
// stream.
std::unique_ptr<UnsizedStream> open_content(const Blob& blob, const Packing& packing);

}  // namespace longstride
