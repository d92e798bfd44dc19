// Generation with a decoder that remembers: position by position through the layers.
#include "framework/models/decoder/distance_decoder.h"

namespace longstride {
namespace {

class DistanceState : public DecodingState {
 public:
  explicit DistanceState(Context& ctx) : scratch(ctx) {}
  std::int64_t bytes() const override { return cache_bytes; }

  Scratch scratch;  // holds the caches
  ResidualStream::Caches caches;
  std::int64_t cache_bytes = 0;
};

}  // namespace

std::unique_ptr<DecodingState> DistanceDecoder::begin_decoding(Context& ctx, std::int64_t batch,
                                                               std::int64_t positions) const {
  auto state = std::make_unique<DistanceState>(ctx);
  const std::size_t before = ctx.arena->scratch_used();
  state->caches = trunk_.stream().make_caches(ctx, state->scratch, batch, positions);
  state->cache_bytes = static_cast<std::int64_t>(ctx.arena->scratch_used() - before);
  return state;
}

// A block is an attention branch and a feed-forward branch.
void DistanceDecoder::begin_position(Context& ctx, DecodingState& state, std::int64_t position) const {
  Context quiet = ctx;
  quiet.step = nullptr;
  const ResidualStream::Caches& caches = static_cast<DistanceState&>(state).caches;
  for (std::size_t layer = 0; layer < attention_.size(); ++layer)
    attention_[layer]->begin_segment(quiet, caches[2 * layer].get(), position);
}

void DistanceDecoder::decode(Context& ctx, DecodingState& state, std::int64_t position, const Tensor& previous,
                             const Tensor& logits) const {
  if (ctx.position == nullptr) begin_position(ctx, state, position);
  trunk_.decode(ctx, static_cast<DistanceState&>(state).caches, position, previous, logits);
}

}  // namespace longstride
