// Checkpoints: RUN/checkpoints/step-00001000/, a directory that appears whole or not at all, of
//   model.safetensors                     master weights by parameter name
//   ema.safetensors                       their running average, by the same names; only when the recipe has one. From
//                                         ranks that hold a part each: ema-00000-of-00004.safetensors ..
//   optimizer-00000-of-00001.safetensors  moments by parameter name, "m.<name>" and "v.<name>": they survive a
//                                         change of the flat layout or of the number of shards. Several ranks write a
//                                         shard each; of a parameter that two share, each holds a range of elements,
//                                         "m.<name>[begin:end]", in one dimension
//   state.json                            step, seed, recipe ..., size and SHA-256 of every other file and of itself
// A checkpoint is whole when every byte is what state.json says. Host memory; the type of the flat buffers is the type
// in the files (F32; F64 in tests).
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/core/parameters.h"

namespace longstride {

// What a run reads, in words that the caller chooses: names and values, such as the checksum of each split.
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
  std::optional<double> loss;        // of the last training step, nats; absent when it was not finite
  DataRecord data = {};              // empty: written before checkpoints knew
};

// What a checkpoint holds: flat buffers of parameters.flat_size() elements in the host's memory, which
// Parameter::offset addresses. Padding between slices is neither written nor read.
struct TrainingTensors {
  const ParameterSet& parameters;
  Tensor masters;
  Tensor m, v;  // Adam's first and second moments; of a matrix that Muon updates its momentum, and zeros
  Tensor ema;   // absent: not used
  // Of a sharded optimizer, m, v and ema hold these ranges only, one after the other. None: the whole.
  std::vector<FlatRange> moment_ranges = {};
};

// Steps that have a checkpoint directory, ascending, whole or not; empty when there is none.
std::vector<std::int64_t> checkpoint_steps(const std::string& run);

// Step of the newest whole checkpoint, every checksum compared; nothing when there is none.
std::optional<std::int64_t> newest_whole_step(const std::string& run);

// Reads everything from the newest whole checkpoint into `tensors`. A checkpoint that is not whole is passed over with
// a warning that says what is wrong with it. UserError when none is whole, when the newest whole one was written by a
// later version of the format, when a tensor is missing, unknown or of another type or shape than the model's, or when
// a weight is not finite.
CheckpointState load_newest_checkpoint(const std::string& run, const TrainingTensors& tensors);

// The same on every rank alike: rank 0 reads, the others receive. Flat buffers travel, padding included.
CheckpointState resume_from_checkpoint(Communicator& comm, const std::string& run, const TrainingTensors& tensors);

// Evaluation and sampling need only weights, read into the (host) masters of `parameters`. Which: the running average
// when the checkpoint has one and `average` is true, otherwise the masters. UserErrors as above.
CheckpointState load_weights(const std::string& run, ParameterSet& parameters, bool average);

// Only the state of the newest checkpoint: what a command needs to build the model before it loads the weights. Files
// are checked for their sizes; their checksums only when they are loaded.
CheckpointState read_newest_state(const std::string& run);

}  // namespace longstride
