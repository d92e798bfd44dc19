// Generation with attention over a memory, one position at a time.
#include <algorithm>
#include <cmath>

#include "framework/mixers/distance/mixer.h"
#include "framework/ops/basic.h"
#include "framework/ops/run.h"
#include "kernels/copy_rows/copy_rows.h"

namespace longstride {

kernels::DecodedStream DistanceMixer::decoded_stream(std::int64_t positions) const {
  const DistanceConfig& c = config_.distance;
  kernels::DecodedStream s;
  s.positions = positions;
  s.segment = config_.segment;
  s.memory = config_.memory.length;
  s.compressed = config_.memory.compressed;
  if (s.compressed > 0) s.rate = config_.memory.rate;
  s.before = config_.memory.start == MemoryStart::zeros ? config_.memory.rows() : 0;
  s.window = windows_->of(config_.layer);
  s.longest = c.span.given() ? c.span.longest + c.span.ramp : 0;
  s.self = c.self;
  for (std::int64_t h = 0; h < config_.shape.heads; ++h)
    s.dilation.push_back(static_cast<std::int32_t>(c.dilation_of(config_.layer, h)));
  return s;
}

std::unique_ptr<BranchCache> DistanceMixer::make_cache(Context& ctx, Scratch& memory, std::int64_t batch,
                                                       std::int64_t positions) const {
  auto cache = std::make_unique<DistanceMixerCache>();
  const kernels::DecodedStream stream = decoded_stream(positions);
  cache->plan = kernels::make_distance_decode_plan(stream);
  cache->rows = {cache->plan.get(), memory.tensor({batch, cache->plan->rows, config_.shape.key_size}, ctx.compute),
                 memory.tensor({batch, cache->plan->rows, config_.value_size}, ctx.compute)};
  const std::int64_t distances = std::min(config_.memory.rows() + stream.segment, positions + stream.before);
  cache->table = term_.table(ctx, distances, memory, nullptr);
  cache->compressed = make_compressed_cache(ctx, memory, batch, stream);
  append_zeros(ctx, *cache);
  return cache;
}

// Memories of zeros are the same in every sequence, but are projected once for each, to take little memory.
void DistanceMixer::append_zeros(Context& ctx, const DistanceMixerCache& cache) const {
  const std::int64_t rows = config_.memory.length, kept = config_.memory.compressed;
  if (cache.plan->stream.before == 0) return;
  Scratch scratch(ctx);
  const Tensor zeros = scratch.tensor({1, std::max(rows, kept), config_.shape.width}, ctx.compute);
  const Tensor projected = scratch.tensor({1, zeros.size(1), query_key_value_.out() - query_width()}, ctx.compute);
  ops::fill_zero(ctx, zeros);
  project_keys_values(ctx, zeros, projected);
  const Tensor kv = projected.slice(1, 0, rows), k = transformed_keys(ctx, kv, -rows, scratch);
  for (std::int64_t s = 0; s < cache.rows.keys.size(0); ++s) {
    const kernels::DistanceCache one = {cache.plan.get(), cache.rows.keys.slice(0, s, s + 1),
                                        cache.rows.values.slice(0, s, s + 1)};
    ops::run(ctx, kernels::DistanceAppendArgs{.cache = one, .k = k, .v = values(kv), .first = -rows});
    if (kept > 0)
      ops::run(ctx, kernels::CopyRowsArgs{projected.slice(1, 0, kept), cache.compressed.projected.slice(0, s, s + 1)});
  }
}

Tensor DistanceMixer::transformed_keys(Context& ctx, const Tensor& kv, std::int64_t first, Scratch& scratch) const {
  if (!config_.transform.any()) return keys(kv);
  const Tensor y = scratch.tensor(keys(kv).shape(), ctx.compute);
  transform_keys(ctx, kv, first, y);
  return y;
}

void DistanceMixer::transform_keys(Context& ctx, const Tensor& kv, std::int64_t first, const Tensor& y) const {
  ops::run(ctx, kernels::QueryKeyArgs{.transform = config_.transform, .x = keys(kv), .y = y, .first = first});
}

void DistanceMixer::decode(Context& ctx, const Tensor& normed, const Tensor& out, BranchCache* cache,
                           std::int64_t position) const {
  const auto& kept = static_cast<const DistanceMixerCache&>(*cache);
  const std::int64_t batch = normed.size(0), heads = config_.shape.heads, size = config_.shape.key_size;
  Scratch scratch(ctx);
  const Tensor qkv = scratch.tensor({batch, 1, query_key_value_.out()}, ctx.compute);
  query_key_value_.apply(ctx, normed, qkv);
  Tensor qk = qkv.slice(-1, 0, 2 * query_width());
  if (config_.transform.any()) {
    const Tensor x = qk.split_last(2 * heads, size);
    qk = scratch.tensor(qk.shape(), ctx.compute);
    ops::run(ctx, kernels::QueryKeyArgs{.transform = config_.transform,
                                        .x = x,
                                        .y = qk.split_last(2 * heads, size),
                                        .first = position,
                                        .first_at = ctx.position});
  }
  const Tensor q = queries(qk.slice(-1, 0, query_width())), k = queries(qk.slice(-1, query_width(), 2 * query_width())),
               v = values(qkv.slice(-1, query_width(), query_key_value_.out()));
  keep_for_compression(ctx, kept.compressed, normed, qk.slice(-1, 0, query_width()), position);
  const Tensor o = scratch.tensor({batch, 1, heads * config_.value_size}, ctx.compute);
  ops::run(ctx, kernels::DistanceAppendArgs{
                    .cache = kept.rows, .k = k, .v = v, .first = position, .first_at = ctx.position});
  ops::run(ctx, kernels::DistanceDecodeArgs{.cache = kept.rows,
                                            .q = q,
                                            .o = o.split_last(heads, config_.value_size),
                                            .table = kept.table,
                                            .content_bias = term_.content_bias(),
                                            .position_bias = term_.position_bias(),
                                            .span = span_ != nullptr ? span_->master : Tensor{},
                                            .longest_span = static_cast<double>(config_.distance.span.longest),
                                            .ramp = static_cast<double>(config_.distance.span.ramp),
                                            .scale = 1 / std::sqrt(static_cast<double>(size)),
                                            .position = position,
                                            .position_at = ctx.position});
  output_.apply(ctx, o, out);
}

}  // namespace longstride
