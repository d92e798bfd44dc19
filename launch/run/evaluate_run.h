// The figures of a run on held-out data: what `eval` and `reproduce` share.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "framework/train/evaluate/evaluator.h"
#include "framework/train/evaluate/replaced_futures.h"
#include "launch/commands/commands.h"
#include "launch/run/run_directory.h"

namespace longstride {

struct EvaluateRequest {
  std::string split = "test";
  std::string data;                         // a prepared dataset other than the recipe's; empty: the recipe's
  std::int64_t context = 0;                 // bytes of a window, at most the recipe's; 0: the recipe's
  std::int64_t min_context = 0;             // minimum number of bytes of context for every scored byte
  EvaluatedMemory memory;                   // settings in place of the model's own
  std::optional<Documents> documents = {};  // in place of data.documents
  std::int64_t batch = 0;                   // windows scored at once; 0: about 8,192 positions, 65,536 on a GPU
  std::int64_t max_windows = 0;             // number of windows to score; 0: all
  bool spread = false;                      // spread them evenly over the split; otherwise the first ones
  bool keep_losses = false;                 // return every loss
  bool quiet = false;                       // no counter on the terminal
  Device device = Device::cpu;
};

// The memory with which the model is evaluated: its own but for what the request changes.
EvaluatedMemory memory_in_effect(const LoadedRun& run, const EvaluateRequest& request);

// The data that the request scores, as the recipe describes it but for what the request changes.
DataConfig data_in_effect(const LoadedRun& run, const EvaluateRequest& request);

// Both are called on every rank. On a GPU `run.model` is left bound to memory that has been freed: load the
// run again to use it.
EvaluationResult evaluate_run(const LoadedRun& run, const EvaluateRequest& request, Session& session);
ReplacedFutures::Leak measure_leak(const LoadedRun& run, const EvaluateRequest& request, Session& session);

}  // namespace longstride
