// The content of a prepared dataset, in words or as JSON, for `info` and for the end of `prepare`.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "datasets/dataset.h"

namespace longstride {

// Several lines: kind, geometry, sizes of the splits, the split rule and the sources (at most `most_sources` of them).
std::string describe(const Dataset& dataset, std::size_t most_sources);
// The same, with all sources.
nlohmann::ordered_json describe_as_json(const Dataset& dataset);

}  // namespace longstride
