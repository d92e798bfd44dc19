#include "launch/run/evaluate_run.h"

#include <algorithm>

#include "framework/core/errors.h"
#include "framework/train/evaluate/evaluation_memory.h"
#include "launch/console/counter_line.h"
#include "launch/console/device_option.h"
#include "launch/run/run_data.h"

namespace longstride {

EvaluationResult evaluate_run(const LoadedRun& run, const EvaluateRequest& request, Session& session) {
  check_device_computes(*run.model, request.device);
  const auto dataset = open_run_data(run, request.data, request.split);
  const auto sequences = dataset->split(request.split, run.recipe.data.cross_files);
  EvaluationConfig config;
  config.context = run.recipe.data.context;
  config.min_context = request.min_context;
  config.max_windows = request.max_windows;
  config.spread = request.spread;
  // Enough for every core, or to fill a GPU.
  const bool cpu = request.device == Device::cpu;
  const std::int64_t positions = cpu ? 8192 : 65536, most = cpu ? 16 : 256;
  config.batch = request.batch > 0 ? request.batch : std::clamp<std::int64_t>(positions / config.context, 1, most);
  if (config.min_context >= config.context)
    throw user_error("--min-context is {}, but must be below the context of {}", config.min_context, config.context);
  if (!run.model->states().empty()) {
    if (request.min_context > 0 || request.spread)
      throw user_error("{} cannot be used with this model, which reads a split in order and remembers what it has read",
                       request.min_context > 0 ? "--min-context" : "--spread");
    config.batch = config.streams = request.batch > 0 ? request.batch : 1;
  }
  const auto windows = static_cast<std::int64_t>(evaluation_windows(*sequences, config).size());
  if (windows == 0)
    throw user_error("{}: the split '{}' is empty; choose another with --split", dataset->path(), request.split);
  config.batch = std::min(config.batch, windows);  // memory is allocated for a whole batch

  EvaluationMemory memory(*run.model, run.masters, config, run.recipe.train, request.device);
  Context ctx = memory.context();
  CounterLine line("eval", request.quiet || session.comm->rank() != 0);
  return evaluate(*run.model, ctx, *sequences, config, *session.comm,
                  [&](std::int64_t done, std::int64_t all) { line.update(done, all); });
}

}  // namespace longstride
