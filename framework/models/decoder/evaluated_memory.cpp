// Memories and clamps of distances with which a trained decoder can be evaluated. Messages name the options of `eval`.
#include <algorithm>

#include "framework/core/errors.h"
#include "framework/models/decoder/config.h"
#include "framework/models/decoder/distance_schema.h"

namespace longstride {
namespace {

// The farthest distance of a pair that has weight, in any layer.
std::int64_t farthest_distance(const DecoderConfig& m) {
  const DistanceConfig& d = m.distance;
  const std::int64_t rows = m.memory.rows() + m.context;
  std::int64_t farthest = 0;
  for (std::int64_t layer = 0; layer < m.layers; ++layer)
    for (std::int64_t head = 0; head < m.heads; ++head) {
      const std::int64_t window = Windows{d.window, d.longest_window}.of(layer);
      std::int64_t reach = window > 0 ? (window - 1) * d.dilation_of(layer, head) : rows - 1;
      if (d.span.given()) reach = std::min(reach, d.span.longest + d.span.ramp - 1);
      farthest = std::max(farthest, std::min(reach, rows - 1));
    }
  return farthest;
}

void set_clamp(DistanceConfig& d, std::int64_t clamp) {
  if (d.table == DistanceTable::none)
    throw user_error(
        "--clamp cannot be used with this model, whose scores have no table of distances (model.distance.table is "
        "none); leave it out");
  if (clamp > longest_memory)
    throw user_error("--clamp is {}, but must be at most {} positions", clamp, longest_memory);
  if (d.table == DistanceTable::sinusoid) {
    d.distances = clamp + 1;
    return;
  }
  if (clamp > d.last_distance())
    throw user_error("--clamp is {}, but the learned table has rows for distances up to {} only; choose at most {}",
                     clamp, d.last_distance(), d.last_distance());
  d.clamp = clamp;
}

void set_compressed(DecoderConfig& m, std::int64_t rows) {
  if (m.memory.compressed == 0)
    throw user_error(
        "--compressed cannot be used with this model, which has no compressed memory (model.memory.compressed); leave "
        "it out");
  const std::int64_t least = m.context / m.memory.rate, most = most_key_rows - m.memory.length - m.context;
  if (rows < least)
    throw user_error("--compressed is {}, but must be at least {}, the rows that a segment becomes", rows, least);
  if (rows > most) throw user_error("--compressed is {}, but must be at most {} rows", rows, most);
  m.memory.compressed = rows;
}

void set_length(DecoderConfig& m, std::int64_t length) {
  const std::int64_t most = std::min(longest_memory, most_key_rows - m.memory.compressed - m.context);
  if (length > most) throw user_error("--memory is {}, but must be at most {} positions", length, most);
  if (m.memory.compressed > 0 && (length == 0 || length % m.context != 0))
    throw user_error(
        "--memory is {}, but before a compressed memory must be a positive multiple of the context of {}, because "
        "whole segments leave it; choose {}",
        length, m.context, std::max<std::int64_t>(1, (length + m.context - 1) / m.context) * m.context);
  m.memory.length = length;
}

// Position p of [memory | segment] reads the keys (p - rows, p], as Transformer-XL's code does with its same_length; or
// as many that end before it.
void set_same_length(DecoderConfig& m) {
  DistanceConfig& d = m.distance;
  if (std::any_of(d.dilation.begin(), d.dilation.end(), [](std::int64_t x) { return x > 1; }))
    throw user_error(
        "--same-length cannot be used with this model, whose dilated heads (model.distance.dilation) do not read every "
        "key of the memory");
  if (m.memory.length == 0)
    throw user_error("--same-length cannot be used without a memory; give it a number of positions with --memory");
  d.longest_window = m.memory.rows() + (d.self ? 0 : 1);
}

// Without a clamp the last row of a learned table stands for farther distances only if it has learned to.
void check_distances(const DecoderConfig& trained, const DecoderConfig& changed) {
  const DistanceConfig& d = changed.distance;
  if (d.table != DistanceTable::learned || d.clamp > 0) return;
  const std::int64_t last = d.last_distance(), farthest = farthest_distance(changed);
  if (farthest <= last || farthest_distance(trained) > last) return;
  const bool is_compressed = changed.memory.compressed > trained.memory.compressed;
  throw user_error(
      "{} is {}, which makes distances of up to {}, but the learned table has rows for distances up to {} only, the "
      "last of which was trained for no farther one; choose a shorter memory, or let it stand for all of them with "
      "--clamp {}",
      is_compressed ? "--compressed" : "--memory", is_compressed ? changed.memory.compressed : changed.memory.length,
      farthest, last, last);
}

}  // namespace

EvaluatedMemory DecoderConfig::evaluated_memory() const {
  if (!distance.given) return {};
  EvaluatedMemory out{memory.length, {}};
  if (memory.compressed > 0) out.compressed = memory.compressed;
  if (distance.clamp > 0)
    out.clamp = distance.clamp;
  else if (distance.table != DistanceTable::none && distance.distances > 0)
    out.clamp = distance.last_distance();
  out.same_length = distance.longest_window > 0;
  return out;
}

std::shared_ptr<ModelConfig> DecoderConfig::with_memory(const EvaluatedMemory& changed) const {
  if (!distance.given) return ModelConfig::with_memory(changed);
  auto config = std::make_shared<DecoderConfig>(*this);
  if (changed.clamp) set_clamp(config->distance, *changed.clamp);
  if (changed.compressed) set_compressed(*config, *changed.compressed);
  if (changed.length) set_length(*config, *changed.length);
  if (changed.same_length) set_same_length(*config);
  check_distances(*this, *config);
  return config;
}

// Zeros before a stream receive weight, however many they are. Whole segments leave a memory.
std::shared_ptr<ModelConfig> DecoderConfig::for_streams_of(std::int64_t read) const {
  auto config = std::make_shared<DecoderConfig>(*this);
  const std::int64_t segments = std::max<std::int64_t>(1, (read + context - 1) / context);
  if (memory.start == MemoryStart::empty) config->memory.length = std::min(memory.length, segments * context);
  return config;
}

}  // namespace longstride
