// Records of every start of a run: RUN/recipe.yaml and RUN/environment.json for the first, recipe-2.yaml and
// environment-2.json for the second, and so on. None is ever overwritten. A start with an unchanged recipe adds no
// recipe.
#pragma once
#include <string>

#include "framework/train/checkpoint/run_id.h"

namespace longstride {

// Called only by the run's only writer. `recipe`: resolved, as YAML; `environment`: from describe_environment().
void record_start(const std::string& run, const std::string& recipe, const std::string& environment);

// UserError if what training reads, replaces or adds to in its folder is a link, or neither a file nor a folder: it
// would be written to wherever the link leads. Nothing is written.
void check_records(const std::string& run);

// The content of the newest environment.json; records that cannot be read say nothing.
Beginning recorded_beginning(const std::string& run);

// Path of the newest record; `name`: "recipe.yaml" or "environment.json". The first one's if there is none.
std::string newest_record(const std::string& run, const std::string& name);

}  // namespace longstride
