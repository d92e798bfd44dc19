// How a run was started, each time: RUN/recipe.yaml and RUN/environment.json for the first start, recipe-2.yaml and
// environment-2.json for the second, and so on. None is ever overwritten. A start with the recipe of the one before
// adds no recipe.
#pragma once
#include <string>

namespace longstride {

// For the run's only writer. `recipe`: resolved, as YAML; `environment`: describe_environment's.
void record_start(const std::string& run, const std::string& recipe, const std::string& environment);

// Path of the newest record; `name`: "recipe.yaml" or "environment.json". The first one's when there is none.
std::string newest_record(const std::string& run, const std::string& name);

}  // namespace longstride
