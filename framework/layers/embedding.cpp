#include "framework/layers/embedding.h"

#include "framework/core/errors.h"
#include "framework/ops/run.h"

namespace longstride {

EmbeddingLayer::EmbeddingLayer(ParameterSet& parameters, const std::string& name, std::int64_t vocabulary,
                               std::int64_t width, const std::vector<PositionIndex>& positions, double token_deviation,
                               double position_deviation, double scale, ReadsToken reads, const std::string& ending)
    : start_(reads == ReadsToken::own ? nullptr : &parameters.add(name + ".start", {width}, {token_deviation, 0})),
      token_(parameters.add(name + ending + ".weight", {vocabulary, width}, {token_deviation, 0})),
      index_(positions),
      scale_(scale) {
  for (std::size_t j = 0; j < positions.size(); ++j)
    position_.push_back(&parameters.add(name + ".position." + std::to_string(j) + ".weight", {positions[j].size, width},
                                        {position_deviation, 0}));
}

void EmbeddingLayer::may_be_new() {
  token_.may_be_new = true;
  for (Parameter* table : position_) table->may_be_new = true;
}

kernels::EmbeddingArgs EmbeddingLayer::tables(Tensor Parameter::*which) const {
  kernels::EmbeddingArgs args;
  args.scale = scale_;
  args.own = start_ == nullptr;
  if (start_ != nullptr) args.start = start_->*which;
  args.token_table = token_.*which;
  LONGSTRIDE_CHECK(index_.size() <= kernels::EmbeddingArgs::max_tables, "{} position tables", index_.size());
  for (std::size_t j = 0; j < index_.size(); ++j)
    args.positions[args.tables++] = {index_[j].divisor, position_[j]->*which};
  return args;
}

// The tokens of positions [first, first + run). Without targets each reads the one before; if they begin at 0, the op
// shifts them itself.
void EmbeddingLayer::read(const Context& ctx, kernels::EmbeddingArgs& args, const Batch& batch, std::int64_t first,
                          std::int64_t run) const {
  const bool own = start_ == nullptr;
  const std::int64_t begin = first > 0 && !own ? first - 1 : first;
  LONGSTRIDE_CHECK(own || !batch.targets.given() || (first == 0 && batch.starts.given()),
                   "positions from {} of a batch {}", first, batch.starts.given() ? "with targets" : "without starts");
  args.tokens = batch.tokens.slice(1, begin, begin + run);
  if (batch.targets.given() && !own) args.starts = batch.starts;
  args.first = first;
  if (!ctx.documents.given()) return;
  args.begin = ctx.documents.begin.slice(2, first, first + run);
  args.restart = ctx.documents.restart;
}

void EmbeddingLayer::forward(Context& ctx, const Batch& batch, const Tensor& y, std::int64_t first) const {
  kernels::EmbeddingArgs args = tables();
  read(ctx, args, batch, first, y.size(1));
  args.y = y;
  ops::run(ctx, args);
}

void EmbeddingLayer::decode(Context& ctx, const Tensor& previous, const Tensor& y, std::int64_t position) const {
  kernels::EmbeddingArgs args = tables();
  args.tokens = previous;
  args.y = y;
  args.first = position;
  args.first_at = ctx.position;
  ops::run(ctx, args);
}

void EmbeddingLayer::backward(Context& ctx, const Tensor& dy, const Batch& batch, std::int64_t first) const {
  kernels::EmbeddingBackwardArgs args{tables(&Parameter::gradient), {}};
  read(ctx, args, batch, first, dy.size(1));
  args.y = dy;
  ops::run(ctx, args);
}

}  // namespace longstride
