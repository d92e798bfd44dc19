// Standard input as a blob. It can be read only once and its length shows only at its end, so it is kept in a temporary
// file next to the output.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "datasets/formats/byte_input.h"

namespace longstride {

// Reads all of it. `progress` is called with the bytes read so far, also while nothing comes; it may throw. The blob is
// named "standard input"; its file is removed with it. UserError if standard input is a terminal, or the disk is full.
std::unique_ptr<Blob> read_standard_input(const std::string& output, const std::function<void(std::int64_t)>& progress);

}  // namespace longstride
