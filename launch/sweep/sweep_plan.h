// The runs of a sweep: every combination of the values of --sweep, with every seed.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "launch/recipe/recipe.h"

namespace longstride {

struct SweepAxis {
  std::string key;                  // "train.lr"
  std::vector<std::string> values;  // as they were typed
};

struct SweepRun {
  std::string name;                    // its folder: "lr=1e-3,seed=2"
  std::size_t combination = 0;         // its place in SweepPlan::combinations
  std::vector<std::string> overrides;  // as for --set, after the user's own
  Recipe recipe;
};

struct SweepPlan {
  std::vector<SweepAxis> axes;                         // without the seed
  std::vector<std::vector<std::string>> combinations;  // a value for every axis
  std::vector<SweepRun> runs;                          // seeds vary fastest
  std::int64_t seeds = 1;
};

inline constexpr std::int64_t most_runs_of_sweep = 1000;

// `sweeps`: "train.lr=1e-3,4e-3"; commas within brackets, braces and quotes do not divide. UserError for what is no
// sweep (one value, a value or a key twice, a key that --set sets), for too many runs, and for any run whose recipe is
// refused.
SweepPlan plan_sweep(const std::string& recipe, const std::vector<std::string>& overrides,
                     const std::vector<std::string>& sweeps, std::int64_t seeds);

}  // namespace longstride
