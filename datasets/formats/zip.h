// Reads zip archives, for .npz: members stored or deflated, zip64 included; no encryption, no spanned archives.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "datasets/formats/byte_input.h"

namespace longstride {

struct ZipMember {
  std::string name;
  std::uint16_t method = 0;  // 0 stored, 8 deflated
  std::uint32_t crc = 0;
  std::uint64_t compressed = 0, size = 0;  // bytes
  std::uint64_t header = 0;                // offset of its local header
};

// The archive's directory. UserError when it is damaged, cut short or no zip archive.
std::vector<ZipMember> zip_members(const Blob& blob);

// The content of a member, which is checked against its checksum when its last byte is read. UserError for other
// compression methods, encryption and damage. `blob` must outlive the stream.
std::unique_ptr<ByteStream> open_zip_member(const Blob& blob, const ZipMember& member, Meter* meter = nullptr);

}  // namespace longstride
