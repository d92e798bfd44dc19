// Asks a model what the objective asks over a split: figures of its mean loss, and of what else the objective adds up.
//
// Windows. min_context 0: [0, n), [n, 2n), ... of each sequence, the last one possibly shorter. min_context m > 0:
// windows start n - m apart and score their last n - m bytes, so that every scored byte has at least m bytes of
// context; a sequence's first window is scored whole (it has no predecessor) and its last one is moved back so that it
// ends with the sequence. Either way every byte is scored exactly once.
//
// A model with states reads windows in order, so that each one has what the row remembers of those before it. The
// windows, with min_context 0 and none left out, are divided into `streams` runs of consecutive ones, which are read
// side by side; a row starts anew at the first window of its run and at that of a sequence. A run that begins within a
// sequence first reads, without scoring them, as many whole windows before it as hold `lead` bytes, or all that there
// are. The figure depends on how many streams there are, not on the batch or on ranks.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/core/batch_source.h"
#include "framework/core/objective.h"
#include "framework/models/model.h"

namespace longstride {

struct EvaluationConfig {
  std::int64_t context = 0;      // n
  std::int64_t min_context = 0;  // m, below n
  std::int64_t batch = 1;        // windows scored at once by one rank
  std::int64_t max_windows = 0;  // score at most this many; 0: all
  bool spread = false;           // choose them evenly from all windows; otherwise take the first ones
  std::int64_t streams = 1;      // for a model with states: runs of windows that are read side by side
  std::int64_t lead = 0;         // likewise: bytes that a run reads before those that it scores
  bool keep_losses = false;      // return every loss
};

struct EvaluationWindow {
  std::int64_t sequence = 0, start = 0, length = 0;
  std::int64_t scored_from = 0;  // offset in the window of the first byte that counts
};

struct EvaluationResult {
  Scored scored;                // its error is estimated from the scored windows, of two or more
  std::vector<Figure> figures;  // the objective's; none of an empty split
  std::int64_t bytes = 0;       // in the windows, each counted once
  std::int64_t windows = 0;
  std::int64_t streams = 0;   // runs of windows, at most one per window; 0: windows by themselves
  bool abandoned = false;     // on all ranks, because `stop` said so on any: there are no figures
  std::vector<float> losses;  // (windows, Model::fields().losses(context)); NaN where a window asks for none
};

std::vector<EvaluationWindow> evaluation_windows(const SequenceSet& sequences, const EvaluationConfig& config);

// The most positions that one of a model's streams reads, those before what it scores included.
std::int64_t longest_stream(const std::vector<EvaluationWindow>& windows, const EvaluationConfig& config);

// Host memory that evaluate() needs for transfers between the host and a GPU; 0 on the CPU.
std::int64_t evaluation_host_bytes(const Model& model, Device device, const EvaluationConfig& config);
// Exact arena bytes that evaluate() needs.
std::size_t evaluation_bytes(const Model& model, const Context& ctx, const EvaluationConfig& config);

// Scores the windows as the objective asks, spread over the ranks; every rank returns the same bits. The ranks of a
// group (ctx.group), which are consecutive in `comm`, score one window at a time together. A different number of ranks
// or batch gives the same figure up to rounding: the last bits of a matrix product depend on its number of rows.
// `progress` is called with (windows done by this rank, windows of this rank). `stop`, given on all ranks or on none,
// is asked after every batch of windows whether to abandon the evaluation.
EvaluationResult evaluate(const Model& model, const Objective& objective, Context& ctx, const SequenceSet& sequences,
                          const EvaluationConfig& config, Communicator& comm,
                          const std::function<void(std::int64_t, std::int64_t)>& progress = {},
                          const std::function<bool()>& stop = {});

}  // namespace longstride
