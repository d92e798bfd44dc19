// What a file holds for `prepare bytes`: its bytes, or what it unpacks to if it is compressed or an archive. Its first
// bytes decide, whatever its name.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "datasets/formats/byte_input.h"

namespace longstride {

struct Packing {
  std::string compression;  // "gzip", "xz", "bzip2" or "zstd"; empty: none, or the zip archive's own
  bool archive = false;     // tar or zip

  bool none() const { return compression.empty() && !archive; }
};

// Whether the name ends like a packed file's: ".zip", ".gz" ..
bool named_like_packed(const std::string& name);

// UserError if the blob is packed in a way that is not unpacked, such as 7z or twice, or only looks packed.
Packing packing_of(const Blob& blob);

struct ContentSize {
  std::int64_t bytes = 0;  // that open_content yields
  std::int64_t links = 0;  // in an archive, which are left out
};

// Found by reading the whole blob, or an archive's table of files. UserError if the blob is damaged, or unpacks to so
// much that it is made to fill disks.
ContentSize content_size(const Blob& blob, const Packing& packing);

// The content, of which an archive's files follow each other in its order, without hidden ones. `blob` must outlive the
// stream.
std::unique_ptr<UnsizedStream> open_content(const Blob& blob, const Packing& packing);

}  // namespace longstride
