// Opening a dataset that is not simply a file by its name.
#pragma once
#include <cstdint>
#include <memory>

#include "datasets/dataset.h"
#include "datasets/formats/byte_input.h"

namespace longstride {

// Messages begin with the blob's name. Splits of up to `largest_resident` bytes are read into memory.
std::shared_ptr<const Dataset> open_dataset(std::shared_ptr<const Blob> blob, std::int64_t largest_resident);

}  // namespace longstride
