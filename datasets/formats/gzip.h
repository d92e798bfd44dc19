// Files compressed by gzip, through zlib: unlike libarchive's reader, this one compares the checksums and the lengths.
#pragma once
#include <memory>

#include "datasets/formats/byte_input.h"

namespace longstride {

// The content of a .gz file, which may have several members. `blob` must outlive the stream. UserError if the file is
// damaged, cut short, or followed by anything but zeros.
std::unique_ptr<UnsizedStream> open_gzip(const Blob& blob);

}  // namespace longstride
