// Draws sequences from a model, byte by byte, with the pattern-aware cache of keys and values.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "framework/models/model.h"

namespace longstride {

struct SampleConfig {
  std::int64_t count = 1;            // sequences
  std::int64_t length = 0;           // bytes of each, prompt included; at most the model's context
  double temperature = 1.0;          // logits are divided by it; 0: always the likeliest byte
  std::vector<std::uint8_t> prompt;  // every sequence begins with it
  std::uint64_t seed = 1;
};

// Bytes of memory that sample() takes: the cache of keys and values, and what one position needs.
struct SampleMemory {
  std::int64_t cache = 0;
  std::int64_t total = 0;
};
SampleMemory sample_memory(const Model& model, const SampleConfig& config, Dtype dtype = Dtype::f32);

// The sequences. The byte at (sequence, position) is drawn with one counter-based number of (seed, sequence,
// position): the same seed gives the same samples. `progress` is called with (positions done, length). The
// parameters of `model` are bound and hold their values.
std::vector<std::vector<std::uint8_t>> sample(const Model& model, const SampleConfig& config,
                                              const std::function<void(std::int64_t, std::int64_t)>& progress = {},
                                              Dtype dtype = Dtype::f32);

// One draw from softmax(logits / temperature) by inversion of `uniform` in (0, 1).
std::uint8_t draw(const double* logits, std::int64_t vocabulary, double temperature, double uniform);

}  // namespace longstride
