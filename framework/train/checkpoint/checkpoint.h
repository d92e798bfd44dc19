// Checkpoints: RUN/checkpoints/step-00001000/, a directory that appears whole or not at all, of
//   model.safetensors                     master weights by parameter name
//   ema.safetensors                       their running average, by the same names; only when the recipe has one. If
//                                         several ranks hold a part each: ema-00000-of-00004.safetensors ..
//   optimizer-00000-of-00001.safetensors  moments by parameter name, "m.<name>" and "v.<name>": they survive a
//                                         change of the flat layout or of the number of shards. Several ranks write a
//                                         shard each; if two share a parameter, each shard has a range of its elements,
//                                         "m.<name>[begin:end]", in one dimension. Adagrad has only "v."
//   optimizer-factors.safetensors         Adafactor's moments, "r.<name>" and "c.<name>" (optim/adafactor.h); rank 0's
//   states-00000-of-00001.safetensors     what rows remember of their streams (framework/core/state.h), by state name
//                                         and rows of the global batch, "<name>[begin:end]", in the type in which
//                                         training has them; only when the model has states. Every rank writes its own
//                                         rows; another number of ranks reads them all
//   state.json                            run id, step, seed, recipe ..., size and SHA-256 of every other file and of
//                                         itself
// A checkpoint is whole when every byte matches state.json, and all files are of its step; no link in RUN is followed.
// All tensors are in host memory; the other files have the type of the flat buffers (F32; F64 in tests).
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/train/checkpoint/saved_tensors.h"

namespace longstride {

// The data that a run reads, as names and values that the caller chooses, such as the checksum of each split.
using DataRecord = std::map<std::string, std::string>;

struct CheckpointState {
  std::int64_t step = 0;  // optimizer steps taken
  std::uint64_t seed = 0;
  std::int64_t tokens_seen = 0;
  std::int64_t global_batch = 0;  // sequences
  int world_size = 1;
  std::string recipe;                // the resolved recipe, YAML
  std::optional<double> loss_scale;  // fp16 only
  std::int64_t good_steps = 0;       // fp16: since the loss scale last changed
  std::optional<double> loss;        // the last training step's, nats; absent when it was not finite
  DataRecord data = {};              // empty: written by a version that did not record it
  // The first figure of the validation split at this very step, by default its loss in nats, and negative if higher is
  // better; absent when it was not evaluated then, or was not finite.
  std::optional<double> valid_loss = {};
  std::int64_t valid_bytes = 0;      // scored for it
  std::int64_t steps_of_stream = 0;  // after which rows start their streams again, so that `step` is a place in them;
                                     // 0: the model has no states
  std::string began_from = {};       // the run, step and weights that the run began with; empty: random weights
  std::string run_id = {};           // run_id.h; empty: written by a version that drew none
  std::int64_t skipped = 0;          // steps whose gradient was not finite, which the optimizer has not counted
};

// Which checkpoint of a run to read: the newest, the one with the lowest validation loss, or the one of a step.
struct CheckpointChoice {
  enum class Kind : std::uint8_t { last, best, step };
  Kind kind = Kind::last;
  std::int64_t step = 0;
};

// Steps that have a checkpoint directory, ascending, whole or not; empty when there is none. UserError if the
// checkpoints of `run` cannot be listed, so that some would be missed, or if one of these directories is a link.
std::vector<std::int64_t> checkpoint_steps(const std::string& run);

// The steps that have a validation loss, the lowest first and of equals the newest. Leaves out steps after `newest`,
// and those of another run than the newest that has a loss, or that scored another number of bytes: such losses cannot
// be compared. Reads only each state.json, and skips those that cannot be read, with a warning if `warn`.
std::vector<std::int64_t> steps_by_valid_loss(const std::string& run, std::int64_t newest, bool warn);
// The first of them whose files have their sizes.
std::optional<std::int64_t> best_step(const std::string& run, std::int64_t newest);
// True if the checkpoint of this step is whole, comparing every checksum.
bool is_whole(const std::string& run, std::int64_t step);

// Step of the newest whole checkpoint, comparing every checksum; nothing when there is none. Damaged ones are skipped,
// with a warning if `warn`.
std::optional<std::int64_t> newest_whole_step(const std::string& run, bool warn = true);

// Reads everything from the newest whole checkpoint into `tensors`. A checkpoint that is not whole is skipped with a
// warning that says what is wrong with it. UserError when none is whole, when the newest whole one was written by a
// later version of the format, when a tensor is missing, unknown or differs from the model's in type or shape, or when
// a weight is not finite.
CheckpointState load_newest_checkpoint(const std::string& run, const TrainingTensors& tensors);

// The same on every rank: rank 0 reads and sends whole flat buffers, including padding, to the others.
CheckpointState resume_from_checkpoint(Communicator& comm, const std::string& run, const TrainingTensors& tensors);

// Reads only the weights, for evaluation and sampling, into the (host) masters of `parameters`: the running average if
// the checkpoint has one and `average` is true, otherwise the masters. UserErrors as above, and when there is no
// checkpoint of this choice; a damaged one that is the best or the last gives way to the next.
CheckpointState load_weights(const std::string& run, ParameterSet& parameters, bool average,
                             const CheckpointChoice& choice = {});

// Reads only the state of a checkpoint, which a command needs to build the model before it loads the weights. Checks
// the files' sizes; checksums are checked on loading, which warns of what it skips. A caller that loads nothing after
// it sets `warn`, so that every damaged checkpoint is warned of once; if all are damaged, these functions always do.
CheckpointState read_state(const std::string& run, const CheckpointChoice& choice, bool warn = true);
CheckpointState read_newest_state(const std::string& run, bool warn = true);
// That of the newest checkpoint whose weights match their checksum, for a caller that reads some of them by itself.
CheckpointState read_state_of_weights(const std::string& run);

}  // namespace longstride
