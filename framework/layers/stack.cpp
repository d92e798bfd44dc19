#include "framework/layers/stack.h"

#include "framework/core/errors.h"

namespace longstride {
namespace {

// A block has two branches.
RecomputedBranches recomputed_branches(Recompute recompute) {
  switch (recompute) {
    case Recompute::selective:
      return {.branches = 2, .keep_results = true};
    case Recompute::block:
      return {.branches = 2};
    case Recompute::attention_and_feed_forward:
      return {.branches = 1};
    default:
      return {};
  }
}

}  // namespace

Stack::Stack(const BlockForm& form, const StackPlace& place, ParameterSet& parameters, const MakeMixer& make_mixer) {
  for (std::int64_t layer = 0; layer < form.layers; ++layer) add_block(form, place, layer, parameters, make_mixer);
  if (form.norm == NormOrder::pre)
    final_norm_ = std::make_shared<LayerNorm>(parameters, place.prefix + "final_norm", form.width);
  std::vector<ResidualStep> steps;
  for (const Block& block : blocks_) {
    const auto id = place.first_dropout + static_cast<std::uint32_t>(steps.size());
    const auto dropout = static_cast<float>(form.dropout);
    steps.push_back({block.attention_norm, block.mixer, {dropout, id}});
    steps.push_back({block.feed_forward_norm, block.feed_forward, {dropout, id + 1}});
  }
  stream_ = std::make_unique<ResidualStream>(std::move(steps), final_norm_, recomputed_branches(form.recompute));
}

void Stack::add_block(const BlockForm& form, const StackPlace& place, std::int64_t layer, ParameterSet& parameters,
                      const MakeMixer& make_mixer) {
  const std::string name = place.prefix + "layers." + std::to_string(layer);
  FeedForwardBranchConfig feed_forward;
  feed_forward.width = form.width;
  feed_forward.inner_width = form.inner_width();
  feed_forward.activation = form.activation;
  feed_forward.biased = form.feed_forward_bias;
  feed_forward.dropout = {static_cast<float>(form.inner_dropout), dropout_ids::within_branches + place.first_dropout +
                                                                      static_cast<std::uint32_t>(2 * layer + 1)};
  feed_forward.inner_deviation = form.deviation(static_cast<double>(form.width));
  feed_forward.output_deviation = form.shrink() * form.deviation(static_cast<double>(form.inner_width()));

  Block block;
  block.attention_norm = std::make_shared<LayerNorm>(parameters, name + ".attention_norm", form.width);
  block.mixer = make_mixer(layer, name + ".attention");
  block.feed_forward_norm = std::make_shared<LayerNorm>(parameters, name + ".feed_forward_norm", form.width);
  block.feed_forward = std::make_shared<FeedForwardBranch>(parameters, name + ".feed_forward", feed_forward);
  blocks_.push_back(std::move(block));
}

void Stack::observe_mixers(Context& ctx, const Tensor& h, const Tensor& normed,
                           const std::function<void(std::int64_t layer, const Tensor& normed)>& see) const {
  stream_->observe(ctx, h, normed, [&](int k, const Tensor& in) {
    if (k % 2 == 0) see(k / 2, in);  // odd: a feed-forward branch
  });
}

Stack::Caches Stack::make_caches(Context& ctx, Scratch& memory, std::int64_t batch, std::int64_t positions) const {
  Caches caches;
  caches.all_ = stream_->make_caches(ctx, memory, batch, positions);
  return caches;
}

}  // namespace longstride
