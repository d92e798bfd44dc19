// What HDF5 1.10 does not check of the metadata that it reads, and then crashes or never ends on.
#pragma once
#include <cstddef>
#include <cstdint>

#include "datasets/byte_input.h"

namespace longstride::hdf5 {

// Whether HDF5 may read these `count` bytes, which are at `offset` and part of an object's header. It may not where a
// message lies about its parts or is kept elsewhere. What the block is only the start of is read from the file.
bool believable(const Blob& file, std::uint64_t offset, const std::uint8_t* block, std::size_t count);

}  // namespace longstride::hdf5
