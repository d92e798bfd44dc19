// A small recipe to start from, and one with every key, away from its default unless pictures have no other.
#pragma once
#include <string>

#include "framework/mixers/attention/config.h"
#include "framework/models/decoder/config.h"
#include "launch/recipe/recipe.h"

namespace longstride::testing {

inline constexpr const char* small_recipe = R"(name: small
data: {kind: bytes, path: x.h5, context: 64}
model:
  kind: decoder
  layers: 2
  width: 16
  heads: 2
  attention:
    integration: merged
    parts: [fixed_block, fixed_summary]
    stride: 8
    summary: 2
train:
  steps: 20
  global_batch: 4
  lr: 1.0e-3
  warmup: 2
)";

inline constexpr const char* full_recipe = R"(name: "full: all keys"
reproduces: {table: 1, row: "a \"row\" # of 1", bits_per_byte: 0.99, parameters: 94.9e6, time_per_iteration: 0.5}
unpublished: {train.lr: "so: 'chosen'", model.attention.window: why not}
data: {kind: images, path: "data/x y.h5", context: 192, vocabulary: 256, cross_files: true, order: windows,
       documents: joined, document_positions: automatic}
model:
  kind: decoder
  layers: 3
  width: 48
  heads: 4
  key_ratio: 0.5
  feed_forward_ratio: 1.25
  dropout: 0.125
  positions: data
  rotary_base: 500
  query_key_norm: true
  init: deviation
  init_deviation: 0.02
  init_deviations: {embedding: 0.5, distance_table: 0}
  norm: post
  activation: geglu
  attention_bias: false
  feed_forward_bias: false
  tied_output: true
  output_bias: true
  embedding_scale: true
  attention: {integration: multihead, parts: [local, fixed_summary, first], stride: 12, window: 5, summary: [1, 2, 3, 4], distinct_heads: true, summary_inclusive: true, first: 2, dilation: [], block: 0, blocks: 0, shifts: {}, random: 0, draw: balanced, seed: 0, direction: past, sink: learned, key_heads: 2, labels: 0}
  adaptive: {cutoffs: [100, 200], divide: 2}
  recompute: attention_and_feed_forward
train: {steps: 1e3, global_batch: 8, micro_batch: 2, lr: 3.5e-4, warmup: 7, schedule: warmup_stable_decay, lr_floor: 2e-5, decay_steps: 250, decay_from: 0, lr_is: peak, beta1: 0.5, beta2: 0.75, epsilon: 1e-6, weight_decay: 0.03, clip: 0, ema: 0.999, precision: bf16, residual: bf16, seed: 9000000000, graph: false, log_every: 3, checkpoint_every: 22, keep: 0, keep_best: true, mirror: copies, evaluate_every: 11, evaluate_windows: 13, sample_every: 17, sample_count: 5, sample_length: 192, hang_seconds: 9, stages: [{until: 100, context: 48}, {until: 300, context: 96, lr: 1e-3}]}
optimizer: {kind: adam, shard: true, tensor_clip: 0, decay_rate: 0.8, clip_threshold: 1, scale_parameter: true}
parallel: {sequence_ranks: 1, gradients: fp32, bucket: 1000000, overlap: never}
)";

// The same of attention with a distance term. Spans exclude a memory that starts empty, and much else.
inline constexpr const char* small_distance_recipe = R"(name: small
data: {kind: bytes, path: x.h5, context: 64, order: streams}
model:
  kind: decoder
  layers: 2
  width: 16
  heads: 2
  positions: none
  distance:
    table: sinusoid
    span:
      longest: 50
  memory:
    length: 64
train: {steps: 20, global_batch: 4, lr: 1.0e-3, warmup: 2}
)";

inline constexpr const char* full_distance_recipe = R"(name: full
reproduces: {paper: "A, B 2020", row: "c", bits_per_byte: 1.5}
data: {kind: bytes, path: x.h5, context: 64, order: streams}
model:
  kind: decoder
  layers: 2
  width: 16
  heads: 2
  embedding_dropout: 0.1
  inner_dropout: 0.2
  output_dropout: 0.3
  positions: none
  distance:
    table: learned
    shared_table: true
    distances: 60
    biases: model
    window: [50, 60]
    dilation: [1, 2]
    dilated_heads: 1
    self: false
    dropout: 0.1
    table_dropout: 0
    span: {longest: 50, ramp: 20, initial: 0.5, loss: 1e-6}
  memory: {length: 64, start: zeros, compressed: 32, rate: 2, compress: dilated, reconstruction: 0.5}
train: {steps: 20, global_batch: 4, lr: 1.0e-3, warmup: 2}
)";

// Layers with mixers one after another and side by side.
inline constexpr const char* mixed_recipe = R"(name: mixed
data: {kind: bytes, path: x.h5, context: 64, order: streams}
model:
  kind: decoder
  layers: 6
  width: 16
  heads: 2
  positions: none
  mixers:
  - {kind: attention, integration: merged, parts: [local], stride: 8, layers: 2}
  - {kind: distance, table: sinusoid, memory: {length: 64, compressed: 32, rate: 2}}
  - [{kind: attention, heads: 1, integration: interleaved, parts: [local, column], stride: 8},
     {kind: distance, heads: 1, table: none, window: 5}]
train: {steps: 20, global_batch: 4, lr: 1.0e-3, warmup: 2}
)";

inline const DecoderConfig& decoder(const Recipe& recipe) { return dynamic_cast<const DecoderConfig&>(*recipe.model); }

// The allowed `parts`, as messages list them.
inline std::string allowed_parts() {
  std::string all;
  for (const auto& [name, part] : part_names()) all += (all.empty() ? "" : " or ") + name;
  return all;
}

// The kinds that an entry of `model.mixers` may have, likewise.
inline std::string allowed_mixers() {
  std::string all;
  for (const MixerKind& kind : mixer_kinds()) all += (all.empty() ? "" : " or ") + std::string(kind()->kind());
  return all;
}

// `text` with the first `from` replaced.
inline std::string edited(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  return at == std::string::npos ? "no '" + from + "' in the text" : text.replace(at, from.size(), to);
}

}  // namespace longstride::testing
