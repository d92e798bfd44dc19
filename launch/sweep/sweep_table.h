// The results of a sweep: means over seeds for every combination of values, from the runs' own files.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/sweep/sweep_plan.h"

namespace longstride {

enum class SweepOutcome : std::uint8_t { waiting, finished, diverged };
const char* name_of(SweepOutcome outcome);

struct SweepResult {
  SweepOutcome outcome = SweepOutcome::waiting;
  std::optional<double> figure;  // the newest of valid, or of training where there is no valid; of finished runs
};

// The figure of a run in `directory`.
std::optional<double> figure_of_run(const std::string& directory, const Recipe& recipe);

// Lines of a table, the best mean marked.
std::string sweep_as_text(const SweepPlan& plan, const std::vector<SweepResult>& results);
nlohmann::ordered_json sweep_as_json(const SweepPlan& plan, const std::vector<SweepResult>& results);

}  // namespace longstride
