// The records of a run in its directory: metrics.jsonl, the newest checkpoint, and the evaluations kept with them.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "datasets/objectives/kinds.h"
#include "framework/models/model_config.h"

namespace longstride {

struct StepPoint {
  std::int64_t step = 0;
  double figure = 0;  // shown one; mean over the steps since the previous line, of this step where lines lack the mean
  double lr = 0, grad_norm = 0, tokens_per_second = 0;
  std::vector<std::pair<std::string, double>> auxiliary = {};  // losses by name
};

struct EvaluationPoint {
  std::int64_t step = 0;
  double figure = 0;  // shown one
};

struct RunHistory {
  std::vector<StepPoint> steps;                    // logged steps, ascending
  std::vector<EvaluationPoint> evaluations;        // evaluations of the validation split
  std::string device, precision;                   // a run's GPU and precision; empty: the CPU
  std::int64_t planned_bytes = 0, used_bytes = 0;  // bytes of the device's memory; 0: unknown
  std::int64_t host_peak_bytes = 0;                // rank 0's peak; 0: unknown

  // `before(step)`: tokens of the first `step` steps.
  using TokensBefore = std::function<double(std::int64_t step)>;
  double seconds(const TokensBefore& before) const;  // time of training, without evaluations and restarts
  // Medians of the logged steps.
  std::optional<double> seconds_per_step(const TokensBefore& before) const;
  std::optional<double> tokens_per_second() const;
};

// Lines that are cut short or not ours are skipped; a run without metrics has an empty history. Of more than 65,536
// steps every second, fourth ... is kept. UserError for a line with a step or a size that is no whole number.
// The figures are those that the objective shows.
RunHistory read_history(const std::string& run, const Objective& objective = default_objective());

// The log of transformers' Trainer in trainer_state.json of a folder; empty without it. Its losses are means in nats,
// as those of a run.
RunHistory read_trainer_history(const std::string& folder, const Objective& objective = default_objective());

// A figure that takes long to compute, so RUN/evaluations.jsonl keeps it: what `eval` and `reproduce` have scored.
struct KeptEvaluation {
  std::int64_t step = 0;
  std::string split, data, weights;                          // data: path of the dataset
  std::string sha256;                                        // checksum of the split's bytes; empty: unknown
  std::int64_t min_context = 0, max_windows = 0, bytes = 0;  // max_windows: 0: all
  double figure = 0;                                         // the shown one
  std::int64_t windows = 0;                                  // scored; 0: unknown
  bool spread = false;       // the windows are spread over the split rather than its first
  EvaluatedMemory memory;    // in effect
  std::int64_t streams = 0;  // streams that were read side by side; 0: none, or unknown
  std::string documents;     // "separate" or "rows"; empty: joined
  std::int64_t context = 0;  // bytes of a window; 0: the run's

  bool same_question(const KeptEvaluation& other) const {
    return step == other.step && split == other.split && data == other.data && weights == other.weights &&
           min_context == other.min_context && max_windows == other.max_windows && spread == other.spread &&
           memory == other.memory && streams == other.streams && documents == other.documents &&
           context == other.context && (sha256 == other.sha256 || sha256.empty() || other.sha256.empty());
  }
};
// UserError if there are more than 65,536.
std::vector<KeptEvaluation> kept_evaluations(const std::string& run, const Objective& objective = default_objective());
// "1,024, compressed 512, clamp 400", what there is of it.
std::string text_of(const EvaluatedMemory& memory);
// "1,024, clamp 400, 32 streams, documents separate, context 512": likewise.
std::string memory_text(const KeptEvaluation& evaluation);
// Appends a line, unless there is one with the same answer to the same question.
void keep_evaluation(const std::string& run, const KeptEvaluation& evaluation,
                     const Objective& objective = default_objective());

}  // namespace longstride
