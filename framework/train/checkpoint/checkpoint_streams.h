// What rows remember of their streams, in a checkpoint's files. checkpoint.h has the rest.
#pragma once
#include <string>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/core/files/safetensors.h"
#include "framework/train/checkpoint/checkpoint.h"

namespace longstride {

// Writes the rows of this rank, which are in host memory.
FileDigest write_streams(const std::string& path, std::int64_t step, const StreamTensors& streams);

// Fills `rows` (all rows, shape of the state) with one state, from all shards. UserError if they do not hold exactly
// these rows of it.
void read_stream(const std::string& directory, const std::vector<std::string>& shards, const State& state,
                 const Tensor& rows);

}  // namespace longstride
