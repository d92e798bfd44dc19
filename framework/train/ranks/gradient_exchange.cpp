#include "framework/train/ranks/gradient_exchange.h"

#include <algorithm>

#include "framework/core/errors.h"
#include "framework/ops/basic.h"

namespace longstride {

bool overlaps(const ParallelConfig& config, Communicator& comm, Device device) {
  const bool near = all_on_nvlink(comm, device);
  return config.overlap == Overlap::automatic ? !near : config.overlap == Overlap::always;
}

GradientExchange::GradientExchange(const ParameterSet& parameters, const TrainingState& state, Collectives& ranks,
                                   const Queue& step, Way way)
    : parameters_(parameters),
      state_(state),
      ranks_(ranks),
      step_(step),
      way_(way),
      pieces_(parameters.pieces(ranks.rank(), ranks.size())),
      matrix_buckets_(static_cast<std::size_t>(std::count_if(parameters.buckets().begin(), parameters.buckets().end(),
                                                             [](const FlatRange& b) { return b.decays; }))),
      stream_(step.device()),
      ready_(parameters.buckets().size() + 1) {}

void GradientExchange::begin(Context& ctx) {
  unsent_ = matrix_buckets_;
  ctx_ = ctx;
  ctx_.watcher = nullptr;
  ctx_.launch.stream = stream_.stream();
  if (way_.overlapped) ctx.watcher = this;
}

void GradientExchange::complete_from(const Parameter& first) {
  while (unsent_ > 0 && parameters_.buckets()[unsent_ - 1].begin >= first.offset) send(--unsent_);
}

void GradientExchange::follow(std::size_t event) {
  ready_[event].record(step_);
  stream_.wait(ready_[event]);
}

void GradientExchange::join() {
  done_.record(stream_);
  step_.wait(done_);
}

void GradientExchange::send(std::size_t index) {
  const FlatRange &bucket = parameters_.buckets()[index], &piece = pieces_[index];
  follow(index);
  const bool converts = state_.wire.given();
  const Tensor& wire = converts ? state_.wire : state_.gradients;
  if (converts) ops::copy(ctx_, bucket.of(state_.gradients), bucket.of(wire));
  ranks_.reduce_scatter_sum(bucket.of(wire), stream_.stream());
  if (!way_.sharded) ranks_.all_gather(bucket.of(wire), stream_.stream());
  const FlatRange& received = way_.sharded ? piece : bucket;
  if (converts) ops::copy(ctx_, received.of(wire), received.of(state_.gradients));
}

void GradientExchange::finish(Optimizer& optimizer) {
  while (unsent_ > 0) send(--unsent_);
  for (std::size_t b = matrix_buckets_; b < parameters_.buckets().size(); ++b) send(b);
  follow(parameters_.buckets().size());
  ranks_.all_reduce_sum(state_.sums, stream_.stream());
  // This takes scratch that the backward pass no longer uses: the exchange's stream has just waited for that pass.
  optimizer.measure(ctx_, state_.gradients, pieces_);
  ranks_.all_reduce_sum(optimizer.sum_of_squares(), stream_.stream());
  if (optimizer.tensor_squares().given()) ranks_.all_reduce_sum(optimizer.tensor_squares(), stream_.stream());
  join();
}

void GradientExchange::gather_masters(Context& ctx) {
  follow(parameters_.buckets().size());
  for (const FlatRange& bucket : parameters_.buckets()) ranks_.all_gather(bucket.of(state_.masters), stream_.stream());
  join();
  if (state_.low_precision.given()) ops::copy(ctx, state_.masters, state_.low_precision);
}

}  // namespace longstride
