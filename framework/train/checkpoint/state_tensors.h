// Entries of a checkpoint's files that hold a range, and the reading of those that hold states. checkpoint.h has the
// rest.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "framework/core/state.h"

namespace longstride {

// "<name>" or "<name>[begin:end]": elements of a parameter, or rows of a state.
struct RangeName {
  std::string name;
  std::int64_t begin = 0, end = -1;  // -1: everything
};
// Nothing: `name` is neither.
std::optional<RangeName> parse_range_name(const std::string& name);

// True if a file of states has some in a 16-bit type.
bool holds_16_bits(const std::string& path);

// Fills `rows` (all rows, shape of the state) with one state, from all shards. UserError if they do not hold exactly
// these rows of it, or if they are of another type and the type of `rows` lacks one of their values.
void read_states(const std::string& directory, const std::vector<std::string>& shards, const State& state,
                 const Tensor& rows);

}  // namespace longstride
