// Generation: a head's state, and the last rows before the convolution.
#include "framework/mixers/scan/mixer.h"
#include "framework/ops/basic.h"

namespace longstride {
namespace {

// Weights do not change while sequences are generated, and so neither do the features.
struct ScanCache : BranchCache {
  Tensor rows, c, sums, projection;
};

}  // namespace

std::unique_ptr<BranchCache> ScanMixer::make_cache(Context& ctx, Scratch& memory, std::int64_t batch,
                                                   std::int64_t /*positions*/) const {
  const ScanSettings& s = config_.scan;
  auto cache = std::make_unique<ScanCache>();
  if (s.convolution > 0) cache->rows = memory.tensor({batch, s.convolution - 1, channels()}, ctx.compute);
  if (s.stabilised()) cache->c = memory.tensor({batch, config_.heads}, ctx.exact);
  cache->sums = memory.tensor({batch, config_.heads, key_rows_of_state(), columns()}, ctx.exact);
  cache->projection = projection(ctx, memory, nullptr);
  return cache;
}

// Windows begin without what was before them, unless rows remember it.
void ScanMixer::begin_position(Context& ctx, BranchCache* cache, std::int64_t position) const {
  if (position % config_.segment != 0 || (config_.scan.memory && position > 0)) return;
  const auto& kept = static_cast<const ScanCache&>(*cache);
  for (const Tensor& t : {kept.rows, kept.c, kept.sums})
    if (t.given()) ops::fill_zero(ctx, t);
}

void ScanMixer::decode(Context& ctx, const Tensor& normed, const Tensor& out, BranchCache* cache,
                       std::int64_t position) const {
  const auto& kept = static_cast<const ScanCache&>(*cache);
  Context own = ctx;
  if (ctx.segment_position != nullptr) own.position = ctx.segment_position;
  Scratch scratch(own);
  const Projected in = project(own, normed, scratch, nullptr);
  const bool several = normed.size(1) > 1;  // the convolution then does not write over the rows that it reads
  const Tensor rows = several && kept.rows.given() ? scratch.like(kept.rows) : kept.rows;
  const ScanStates states{kept.rows, rows, kept.c, kept.c, kept.sums, kept.sums};
  const Scanned made = tensors(own, normed.size(0), normed.size(1), scratch, nullptr, false);
  const Operands read = operands(own, in, kept.projection, states, Pace::decoding, position % config_.segment, scratch);
  scan(own, read, made, Pace::decoding);
  add_skip(own, read, made.o);
  if (several && rows.given()) ops::copy(own, rows, kept.rows);
  output_.apply(own, finish(own, made.o, in.gate, scratch), out);
}

}  // namespace longstride
