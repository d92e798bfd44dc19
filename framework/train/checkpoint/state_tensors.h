// What rows remember of their streams, in a checkpoint's files. checkpoint.h has the rest.
#pragma once
#include <string>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/core/files/safetensors.h"
#include "framework/train/checkpoint/checkpoint.h"

namespace longstride {

// Writes the rows of this rank, which are in host memory.
FileDigest write_states(const std::string& path, std::int64_t step, const StateTensors& streams);

// Whether a file of them has states in a 16-bit type.
bool holds_16_bits(const std::string& path);

// Fills `rows` (all rows, shape of the state) with one state, from all shards. UserError if they do not hold exactly
// these rows of it, or if they are of another type and the type of `rows` lacks one of their values.
void read_states(const std::string& directory, const std::vector<std::string>& shards, const State& state,
                 const Tensor& rows);

}  // namespace longstride
