// train RECIPE --sweep KEY=A,B: a run for every combination of values, each by the same command as a single run: one
// after another, or one on every GPU. Runs that are finished are skipped and others continued, so the same command
// again completes a sweep that was stopped.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launch/commands/commands.h"
#include "launch/console/device_option.h"

namespace longstride {

struct SweepRequest {
  std::string recipe;
  std::vector<std::string> overrides, sweeps;  // values of --set and --sweep
  std::int64_t seeds = 1;
  std::string directory;               // with a folder for every run; empty: runs/NAME-sweep
  std::vector<std::string> beginning;  // words of `train` for a run that begins: --from and its options
  DeviceOption device;
  bool json = false;
};

// UserError for what is no sweep, if a run was trained with other settings, or if a training fails for another reason
// than divergence, which is a result.
void run_sweep(const SweepRequest& request, Session& session);

}  // namespace longstride
