// Generation with a decoder that remembers: position by position through the layers.
#include "framework/core/errors.h"
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

GeneratingDistanceDecoder::GeneratingDistanceDecoder(const DecoderConfig& config) : DistanceDecoder(config) {
  LONGSTRIDE_CHECK(config.memory.compressed == 0, "generation with {} compressed rows", config.memory.compressed);
}

std::unique_ptr<DecodingState> GeneratingDistanceDecoder::begin_decoding(Context& ctx, std::int64_t batch,
                                                                         std::int64_t positions) const {
  auto state = std::make_unique<DistanceState>(ctx);
  const std::size_t before = ctx.arena->scratch_used();
  state->caches = trunk().stream().make_caches(ctx, state->scratch, batch, positions);
  state->cache_bytes = static_cast<std::int64_t>(ctx.arena->scratch_used() - before);
  return state;
}

void GeneratingDistanceDecoder::decode(Context& ctx, DecodingState& state, std::int64_t position,
                                       const Tensor& previous, const Tensor& logits) const {
  trunk().decode(ctx, static_cast<DistanceState&>(state).caches, position, previous, logits);
}

}  // namespace longstride
