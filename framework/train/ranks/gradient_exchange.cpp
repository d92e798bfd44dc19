#include "framework/train/ranks/gradient_exchange.h"

#include <algorithm>

#include "framework/core/errors.h"
#include "framework/ops/basic.h"

namespace longstride {

std::vector<Piece> pieces_of(const ParameterSet& parameters, int rank, int ranks) {
  std::vector<Piece> pieces;
  for (const Bucket& b : parameters.buckets()) {
    LONGSTRIDE_CHECK(b.count % ranks == 0, "a bucket of {} elements for {} ranks", b.count, ranks);
    const std::int64_t each = b.count / ranks;
    pieces.push_back({b.begin + rank * each, each, b.decays});
  }
  return pieces;
}

std::vector<Piece> updated_pieces(const ParameterSet& parameters, const TrainConfig& config, int rank, int ranks) {
  if (config.parallel.shard) return pieces_of(parameters, rank, ranks);
  const std::int64_t decayed = parameters.decayed_size();
  return {{0, decayed, true}, {decayed, parameters.flat_size() - decayed, false}};
}

bool overlaps(const ParallelConfig& config, Communicator& comm, Device device) {
  const bool near = all_on_nvlink(comm, device);
  return config.overlap == Overlap::automatic ? !near : config.overlap == Overlap::always;
}

GradientExchange::GradientExchange(const ParameterSet& parameters, const TrainingState& state, Collectives& ranks,
                                   const Stream* stream, Way way)
    : parameters_(parameters),
      state_(state),
      ranks_(ranks),
      step_stream_(stream),
      way_(way),
      pieces_(pieces_of(parameters, ranks.rank(), ranks.size())),
      matrix_buckets_(static_cast<std::size_t>(std::count_if(parameters.buckets().begin(), parameters.buckets().end(),
                                                             [](const Bucket& b) { return b.decays; }))) {
  if (stream == nullptr) return;
  gpu_ = std::make_unique<Gpu>();
  gpu_->ready = std::vector<Event>(parameters.buckets().size() + 1);
}

void GradientExchange::begin(Context& ctx) {
  unsent_ = matrix_buckets_;
  ctx_ = ctx;
  ctx_.watcher = nullptr;
  if (gpu_) ctx_.launch.stream = gpu_->stream.handle();
  if (way_.overlapped) ctx.watcher = this;
}

void GradientExchange::complete_from(const Parameter& first) {
  while (unsent_ > 0 && parameters_.buckets()[unsent_ - 1].begin >= first.offset) send(--unsent_);
}

void GradientExchange::follow(std::size_t event) {
  if (!gpu_) return;
  gpu_->ready[event].record(*step_stream_);
  gpu_->stream.wait(gpu_->ready[event]);
}

void GradientExchange::join() {
  if (!gpu_) return;
  gpu_->done.record(gpu_->stream);
  step_stream_->wait(gpu_->done);
}

Tensor GradientExchange::piece_of(const Tensor& flat, const Bucket& bucket) const {
  const std::int64_t each = bucket.count / ranks_.size(), begin = bucket.begin + ranks_.rank() * each;
  return flat.slice(0, begin, begin + each);
}

void GradientExchange::send(std::size_t bucket) {
  const Bucket& b = parameters_.buckets()[bucket];
  const auto all_of = [&](const Tensor& flat) { return flat.slice(0, b.begin, b.begin + b.count); };
  follow(bucket);
  const bool narrow = state_.wire.given();
  const Tensor& wire = narrow ? state_.wire : state_.gradients;
  if (narrow) ops::copy(ctx_, all_of(state_.gradients), all_of(wire));
  ranks_.reduce_scatter_sum(all_of(wire), stream());
  if (!way_.sharded) ranks_.all_gather(all_of(wire), stream());
  if (!narrow) return;
  if (way_.sharded)
    ops::copy(ctx_, piece_of(wire, b), piece_of(state_.gradients, b));
  else
    ops::copy(ctx_, all_of(wire), all_of(state_.gradients));
}

void GradientExchange::finish(Optimizer& optimizer) {
  while (unsent_ > 0) send(--unsent_);
  for (std::size_t b = matrix_buckets_; b < parameters_.buckets().size(); ++b) send(b);
  follow(parameters_.buckets().size());
  ranks_.all_reduce_sum(state_.nats, stream());
  // Scratch that the backward pass no longer uses: the exchange's stream has just waited for it.
  optimizer.measure(ctx_, state_.gradients, pieces_);
  ranks_.all_reduce_sum(optimizer.sum_of_squares(), stream());
  join();
}

void GradientExchange::gather_masters(Context& ctx) {
  follow(parameters_.buckets().size());
  for (const Bucket& b : parameters_.buckets())
    ranks_.all_gather(state_.masters.slice(0, b.begin, b.begin + b.count), stream());
  join();
  if (state_.low.given()) ops::copy(ctx, state_.masters, state_.low);
}

}  // namespace longstride
