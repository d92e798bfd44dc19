// A page that compares runs: their results in a table, their curves in the same plots, the settings that differ.
#pragma once
#include <string>
#include <vector>

#include "launch/report/run_facts.h"

namespace longstride {

inline constexpr std::size_t most_compared = 8;  // the style sheet has as many colours

// At least two runs, at most most_compared.
std::string comparison(const std::vector<RunFacts>& runs);

}  // namespace longstride
