// Undoes HDF5's filters on a chunk, checking every size.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace longstride::hdf5 {

// Each returns false if the bytes cannot come from the filter.
// Removes the checksum from the end.
bool undo_fletcher32(std::vector<std::uint8_t>& bytes);
// To at most `most` bytes.
bool undo_deflate(std::vector<std::uint8_t>& bytes, std::size_t most);
// Entries of `width` bytes, stored as all first bytes, then all second bytes, ..
bool undo_shuffle(std::vector<std::uint8_t>& bytes, std::size_t width);

// As HDF5 computes it: over big-endian words of 16 bits.
std::uint32_t fletcher32(const std::uint8_t* bytes, std::size_t count);

}  // namespace longstride::hdf5
