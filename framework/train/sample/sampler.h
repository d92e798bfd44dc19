// Draws sequences from a model, byte by byte or token by token, with the pattern-aware cache of keys and values.
//
// On a GPU the host does not wait between positions. If the model has a kernel for it (GeneratesInOneKernel), one
// launch draws many positions; otherwise a position is one graph that reads its number from device memory.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "framework/models/model.h"

namespace longstride {

// The most bytes that a model reads in one window: its context. A model with states reads streams of any length.
std::int64_t longest_window(const Model& model);
// The most bytes of a sample. Where a window is full, the next one begins with its second half as the prompt, so every
// byte depends on at least half a context before it.
inline constexpr std::int64_t longest_sample = 0x7fffffff;

struct SampleConfig {
  std::int64_t count = 1;      // sequences
  std::int64_t length = 0;     // bytes or tokens of each, prompt included; at most longest_sample
  std::int64_t batch = 0;      // sequences at once; 0: all, and on a GPU at most 16
  kernels::Sampling sampling;  // how a byte is drawn
  // The bytes that sequences begin with, or tokens, two bytes each beyond a vocabulary of 256 (as in samples): nothing,
  // one prompt for all, or one prompt for each, all of the same length. Prompts of `length` draw nothing and only yield
  // the prompts' probabilities.
  std::vector<std::vector<std::uint8_t>> prompts;
  bool one_kernel = true;  // on a GPU, if the model supports it
  // Called, if there is one sequence, with its next bytes once they are known, the prompt's included.
  std::function<void(std::string_view)> shown;
};

struct Samples {
  std::vector<std::vector<std::uint8_t>> bytes;
  std::vector<std::vector<float>> log_probabilities;  // nats, of every byte, at temperature 1
  bool abandoned = false;  // because `stop` said so: the last ones are shorter, and others are absent
};

// Bytes that sample() needs: the cache of keys and values, and everything that it takes from the arena.
struct SampleMemory {
  std::int64_t cache = 0;
  std::int64_t total = 0;
};
SampleMemory sample_memory(const Model& model, const Context& ctx, const SampleConfig& config);

// Draws the sequences. The byte at (sequence, position) is drawn with one counter-based random number of (seed,
// sequence, position), so a seed gives the same samples however many are drawn at once (on a GPU up to rounding).
// `progress` is called with (positions done, total positions) over all sequences, and `stop` is asked after it whether
// to abandon the samples. The parameters of `model` must be bound on ctx's device.
Samples sample(const Model& model, Context& ctx, const SampleConfig& config,
               const std::function<void(std::int64_t, std::int64_t)>& progress = {},
               const std::function<bool()>& stop = {});

}  // namespace longstride
