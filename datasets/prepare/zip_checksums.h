// The checksums that the directory of a zip archive states, which tell files apart without unpacking them.
#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>

#include "datasets/formats/byte_input.h"

namespace longstride {

// CRC-32 by the name of the file; empty of anything but a plain or 64-bit zip archive that is whole.
std::unordered_map<std::string, std::uint32_t> zip_checksums(const Blob& blob);

}  // namespace longstride
