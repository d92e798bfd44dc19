// Generation with a compressed memory: what happens where one segment ends and the next one begins. Rows that leave the
// memory are compressed and projected once; their keys are rotated, if they are, for every segment, because distances
// to them grow by fewer than a segment's positions.
#include <algorithm>

#include "framework/mixers/distance/mixer.h"
#include "framework/ops/basic.h"
#include "framework/ops/run.h"
#include "kernels/append_rows/append_rows.h"
#include "kernels/copy_rows/copy_rows.h"

namespace longstride {
namespace {

using kernels::CopyRowsArgs;

// Calls f(slot, count, done) for the runs of a ring of `capacity` rows that hold rows [first, first + rows).
template <class F>
void each_run(std::int64_t first, std::int64_t rows, std::int64_t capacity, F&& f) {
  for (std::int64_t done = 0; done < rows;) {
    const std::int64_t slot = ((first + done) % capacity + capacity) % capacity;
    const std::int64_t count = std::min(capacity - slot, rows - done);
    f(slot, count, done);
    done += count;
  }
}

}  // namespace

// Rows are kept only if the stream is long enough for one to be evicted.
CompressedCache DistanceMixer::make_compressed_cache(Context& ctx, Scratch& memory, std::int64_t batch,
                                                     const kernels::DecodedStream& stream) const {
  CompressedCache made;
  if (stream.compressed == 0) return made;
  const std::int64_t kv = query_key_value_.out() - query_width(), rows = stream.memory + stream.segment;
  if (stream.positions > rows) {
    made.inputs = memory.tensor({batch, rows, config_.shape.width}, ctx.compute);
    if (compressor_.reads_usage()) made.queries = memory.tensor({batch, stream.segment, query_width()}, ctx.compute);
  }
  if (stream.positions > rows || stream.before > 0)
    made.projected = memory.tensor({batch, stream.compressed, kv}, ctx.compute);
  return made;
}

void DistanceMixer::keep_for_compression(Context& ctx, const CompressedCache& cache, const Tensor& normed,
                                         const Tensor& q, std::int64_t position) const {
  for (const auto& [x, ring] : {std::pair{normed, cache.inputs}, std::pair{q, cache.queries}})
    if (ring.given())
      ops::run(ctx, kernels::AppendRowsArgs{.x = x, .ring = ring, .first = position, .first_at = ctx.position});
}

void DistanceMixer::begin_position(Context& ctx, BranchCache* cache, std::int64_t position) const {
  const auto& kept = static_cast<const DistanceMixerCache&>(*cache);
  if (!kept.compressed.projected.given() || position % config_.segment != 0) return;
  if (position >= config_.memory.length + config_.segment) compress_evicted(ctx, kept, position);
  append_compressed(ctx, kept, position);
}

// The segment that ends at `position` has evicted the oldest segment of the memory.
void DistanceMixer::compress_evicted(Context& ctx, const DistanceMixerCache& cache, std::int64_t position) const {
  const CompressedCache& kept = cache.compressed;
  const std::int64_t segment = config_.segment, first = position - segment - config_.memory.length,
                     slot = first % kept.inputs.size(1);
  Scratch scratch(ctx);
  const Tensor usage = compressor_.reads_usage() ? received_while_decoding(ctx, cache, position, scratch) : Tensor{};
  const Tensor rows = compressor_.compress(ctx, kept.inputs.slice(1, slot, slot + segment), usage, scratch);
  const Tensor kv = scratch.tensor({rows.size(0), rows.size(1), kept.projected.size(2)}, ctx.compute);
  project_keys_values(ctx, rows, kv);
  ops::run(ctx, kernels::AppendRowsArgs{.x = kv, .ring = kept.projected, .first = first / config_.memory.rate});
}

void DistanceMixer::append_compressed(Context& ctx, const DistanceMixerCache& cache, std::int64_t position) const {
  const kernels::SeenPositions seen(cache.plan->stream);
  const std::int64_t rows = seen.compressed_rows(position), first = position - config_.memory.length - rows;
  // For all runs at once: a segment that wraps around the ring has shorter ones than an earlier one, and the last
  // segment of a stream must take the most memory (Decodes::begin_position).
  Scratch scratch(ctx);
  const Tensor& kept = cache.compressed.projected;
  const Tensor transformed = config_.transform.any() && rows > 0
                                 ? scratch.tensor(keys(kept.slice(1, 0, rows)).shape(), ctx.compute)
                                 : Tensor{};
  each_run(seen.compressed_before(position) - rows, rows, config_.memory.compressed,
           [&](std::int64_t slot, std::int64_t count, std::int64_t done) {
             const Tensor kv = kept.slice(1, slot, slot + count);
             Tensor k = keys(kv);
             if (transformed.given()) {
               k = transformed.slice(1, done, done + count);
               transform_keys(ctx, kv, first + done, k);
             }
             ops::run(ctx,
                      kernels::DistanceAppendArgs{.cache = cache.rows, .k = k, .v = values(kv), .first = first + done});
           });
}

// The attention that the rows evicted by the segment before `position` received from it, as `received` gives it in
// training: (batch, segment, heads).
Tensor DistanceMixer::received_while_decoding(Context& ctx, const DistanceMixerCache& cache, std::int64_t position,
                                              Scratch& scratch) const {
  constexpr std::int64_t elements = 8;  // size of values, which do not matter: lse depends on queries and keys alone
  const std::int64_t segment = config_.segment, heads = config_.shape.heads, size = config_.shape.key_size;
  const std::int64_t first = kernels::SeenPositions(cache.plan->stream).first(position - segment),
                     all = position - first, batch = cache.rows.keys.size(0);
  Saved made;
  made.transformed = {cache.compressed.queries, scratch.tensor({batch, all, heads * size}, ctx.compute)};
  made.table = cache.table;
  for (std::int64_t h = 0; h < heads; ++h) {
    const kernels::DistanceRing& ring = cache.plan->rings[static_cast<std::size_t>(h)];
    const Tensor of_head = made.transformed.kv.slice(-1, h * size, (h + 1) * size);
    each_run(
        first + cache.plan->stream.before, all, ring.capacity,
        [&](std::int64_t slot, std::int64_t count, std::int64_t done) {
          const std::int64_t row = ring.first_row + slot;
          ops::run(ctx, CopyRowsArgs{cache.rows.keys.slice(1, row, row + count), of_head.slice(1, done, done + count)});
        });
  }
  made.attended.lse = scratch.tensor({batch, heads, segment}, ctx.exact);
  {
    Scratch inner(ctx);
    const Tensor v = inner.tensor({batch, all, heads, elements}, ctx.compute),
                 o = inner.tensor({batch, segment, heads, elements}, ctx.compute);
    ops::fill_zero(ctx, v);
    ops::run(ctx,
             kernels::DistanceAttentionArgs{.scores = scores(ctx, made, {}), .v = v, .o = o, .lse = made.attended.lse});
  }
  const std::int64_t begin = all - segment - config_.memory.length;
  return received(ctx, made, {}, scratch).slice(1, begin, begin + segment);
}

}  // namespace longstride
