// Ranks that fail tell each other.
#pragma once

namespace longstride {

// True if this rank prints its failure. A mistake in a recipe occurs on every rank, so one of them is enough: rank 0,
// or the smallest of those that fail. The others wait for its word; without one, each prints after `seconds`, or a
// little later. True in a single process.
bool reports_failure(double seconds);

// The `seconds` that the command gives, and after how many a rank that alone knows the cause has surely printed it.
constexpr double until_said = 2, surely_said = 6;

}  // namespace longstride
