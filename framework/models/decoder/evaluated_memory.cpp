// Memories and clamps of distances with which a trained decoder can be evaluated. Messages name the options of `eval`.
#include <algorithm>

#include "framework/core/errors.h"
#include "framework/mixers/distance/settings.h"
#include "framework/models/decoder/config.h"

namespace longstride {
namespace {

// The farthest distance of a pair that has weight, in any layer.
std::int64_t farthest_distance(const DecoderConfig& m, const DistanceConfig& d, const MemoryConfig& memory) {
  const std::int64_t rows = memory.rows() + m.context;
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

void set_compressed(MemoryConfig& memory, std::int64_t context, std::int64_t rows) {
  if (memory.compressed == 0)
    throw user_error(
        "--compressed cannot be used with this model, which has no compressed memory (model.memory.compressed); leave "
        "it out");
  const std::int64_t least = context / memory.rate, most = most_key_rows - memory.length - context;
  if (rows < least)
    throw user_error("--compressed is {}, but must be at least {}, the rows that a segment becomes", rows, least);
  if (rows > most) throw user_error("--compressed is {}, but must be at most {} rows", rows, most);
  memory.compressed = rows;
}

void set_length(MemoryConfig& memory, std::int64_t context, std::int64_t length) {
  const std::int64_t most = std::min(longest_memory, most_key_rows - memory.compressed - context);
  if (length > most) throw user_error("--memory is {}, but must be at most {} positions", length, most);
  if (memory.compressed > 0 && (length == 0 || length % context != 0))
    throw user_error(
        "--memory is {}, but before a compressed memory must be a positive multiple of the context of {}, because "
        "whole segments leave it; choose {}",
        length, context, std::max<std::int64_t>(1, (length + context - 1) / context) * context);
  memory.length = length;
}

// Position p of [memory | segment] reads the keys (p - rows, p], as Transformer-XL's code does with its same_length; or
// as many that end before it.
void set_same_length(DistanceConfig& d, const MemoryConfig& memory) {
  if (std::any_of(d.dilation.begin(), d.dilation.end(), [](std::int64_t x) { return x > 1; }))
    throw user_error(
        "--same-length cannot be used with this model, whose dilated heads (model.distance.dilation) do not read every "
        "key of the memory");
  if (memory.length == 0)
    throw user_error("--same-length cannot be used without a memory; give it a number of positions with --memory");
  d.longest_window = memory.rows() + (d.self ? 0 : 1);
}

// Without a clamp the last row of a learned table stands for farther distances only if it has learned to.
void check_distances(const DecoderConfig& m, const DistanceConfig& d, const MemoryConfig& trained,
                     const MemoryConfig& changed) {
  if (d.table != DistanceTable::learned || d.clamp > 0) return;
  const std::int64_t last = d.last_distance(), farthest = farthest_distance(m, d, changed);
  if (farthest <= last || farthest_distance(m, d, trained) > last) return;
  const bool is_compressed = changed.compressed > trained.compressed;
  throw user_error(
      "{} is {}, which makes distances of up to {}, but the learned table has rows for distances up to {} only, the "
      "last of which was trained for no farther one; choose a shorter memory, or let it stand for all of them with "
      "--clamp {}",
      is_compressed ? "--compressed" : "--memory", is_compressed ? changed.compressed : changed.length, farthest, last,
      last);
}

}  // namespace

// The longest of all mixers.
EvaluatedMemory DecoderConfig::evaluated_memory() const {
  DecoderConfig own = *this;
  EvaluatedMemory out;
  for (const auto& [d, m] : own.with_distances()) {
    out.length = std::max(out.length.value_or(0), m->length);
    if (m->compressed > 0) out.compressed = std::max(out.compressed.value_or(0), m->compressed);
    if (d->clamp > 0)
      out.clamp = std::max(out.clamp.value_or(0), d->clamp);
    else if (d->table != DistanceTable::none && d->distances > 0)
      out.clamp = std::max(out.clamp.value_or(0), d->last_distance());
    out.same_length = out.same_length || d->longest_window > 0;
  }
  return out;
}

// A setting that one mixer cannot have is no mistake while another can.
std::shared_ptr<ModelConfig> DecoderConfig::with_memory(const EvaluatedMemory& changed) const {
  auto config = std::make_shared<DecoderConfig>(*this);
  const std::vector<WithDistance> all = config->with_distances();
  if (all.empty()) return ModelConfig::with_memory(changed);
  const auto any = [&](auto has) { return std::any_of(all.begin(), all.end(), has); };
  const bool remembering = any([](const WithDistance& w) { return w.memory->length > 0; });
  const bool compressing = any([](const WithDistance& w) { return w.memory->compressed > 0; });
  const bool tabled = any([](const WithDistance& w) { return w.distance->table != DistanceTable::none; });
  for (const auto& [d, m] : all) {
    const MemoryConfig trained = *m;
    if (changed.clamp && (!tabled || d->table != DistanceTable::none)) set_clamp(*d, *changed.clamp);
    if (remembering && m->length == 0) continue;
    if (changed.compressed && (!compressing || m->compressed > 0)) set_compressed(*m, context, *changed.compressed);
    if (changed.length) set_length(*m, context, *changed.length);
    if (changed.same_length) set_same_length(*d, *m);
    check_distances(*this, *d, trained, *m);
  }
  return config;
}

// Zeros before a stream receive weight, however many they are. Whole segments leave a memory.
std::shared_ptr<ModelConfig> DecoderConfig::for_streams_of(std::int64_t read) const {
  auto config = std::make_shared<DecoderConfig>(*this);
  const std::int64_t segments = std::max<std::int64_t>(1, (read + context - 1) / context);
  for (const auto& [_, m] : config->with_distances())
    if (m->start == MemoryStart::empty) m->length = std::min(m->length, segments * context);
  return config;
}

}  // namespace longstride
