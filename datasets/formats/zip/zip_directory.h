// The directory at the end of a zip archive. libarchive reads it up to the first entry that is not right, and leaves
// out a file whose own header differs from its entry.
#pragma once
#include <cstdint>

#include "datasets/formats/byte_input.h"

namespace longstride {

// The files with content that the directory lists. DamagedFile if it lists fewer entries than it says, or if the header
// of a file has another name.
std::int64_t files_in_zip_directory(const Blob& blob);

}  // namespace longstride
