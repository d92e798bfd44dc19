// Draws sequences from a model, byte by byte, with the pattern-aware cache of keys and values.
//
// On a GPU the host does not wait between positions: one kernel does as many of them as it is told where the model has
// such a kernel (Model::generate), and otherwise a position is one graph that reads its number from device memory.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "framework/models/model.h"

namespace longstride {

struct SampleConfig {
  std::int64_t count = 1;      // sequences
  std::int64_t length = 0;     // bytes of each, prompt included; at most the model's context
  std::int64_t batch = 0;      // sequences at once; 0: all, and on a GPU at most 16
  kernels::Sampling sampling;  // how a byte is drawn
  // What sequences begin with: nothing, one prompt for all, or one for each, all of one length. With as many bytes as
  // `length` nothing is drawn, and the probabilities of the prompts are found.
  std::vector<std::vector<std::uint8_t>> prompts;
  bool one_kernel = true;  // on a GPU: where the model can
};

struct Samples {
  std::vector<std::vector<std::uint8_t>> bytes;
  std::vector<std::vector<float>> log_probabilities;  // nats, of every byte, whatever the temperature
};

// Bytes of memory that sample() takes: the cache of keys and values, and all of what it takes from the arena.
struct SampleMemory {
  std::int64_t cache = 0;
  std::int64_t total = 0;
};
SampleMemory sample_memory(const Model& model, const Context& ctx, const SampleConfig& config);

// The sequences. The byte at (sequence, position) is drawn with one counter-based number of (seed, sequence,
// position): the same seed gives the same samples, however many are drawn at once (on a GPU up to rounding). `progress`
// is called with (positions done, positions in all) over all sequences. The parameters of `model` are bound, on the
// device of ctx.
Samples sample(const Model& model, Context& ctx, const SampleConfig& config,
               const std::function<void(std::int64_t, std::int64_t)>& progress = {});

}  // namespace longstride
