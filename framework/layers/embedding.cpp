#include "framework/layers/embedding.h"

#include "framework/core/errors.h"
#include "framework/ops/basic.h"
#include "framework/ops/linear.h"

namespace longstride {

EmbeddingLayer::EmbeddingLayer(ParameterSet& parameters, const std::string& name, const TableForm& tokens,
                               const std::vector<PositionIndex>& positions, double position_deviation, double scale,
                               ReadsToken reads, const std::string& ending)
    : start_(reads == ReadsToken::own ? nullptr
                                      : &parameters.add(name + ".start", {tokens.width}, {tokens.deviation, 0})),
      tokens_(parameters, name + ending, tokens),
      index_(positions),
      scale_(scale) {
  for (std::size_t j = 0; j < positions.size(); ++j)
    position_.push_back(&parameters.add(name + ".position." + std::to_string(j) + ".weight",
                                        {positions[j].size, tokens.width}, {position_deviation, 0}));
}

void EmbeddingLayer::may_be_new() {
  for (Parameter* table : tokens_.tables()) table->may_be_new = true;
  for (Parameter* table : position_) table->may_be_new = true;
}

kernels::EmbeddingArgs EmbeddingLayer::tables(Tensor Parameter::*which) const {
  kernels::EmbeddingArgs args;
  args.scale = scale_;
  args.own = start_ == nullptr;
  if (start_ != nullptr) args.start = start_->*which;
  args.token_table = tokens_.ids(0, which);
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

kernels::EmbeddingArgs EmbeddingLayer::of_band(kernels::EmbeddingArgs args, std::int64_t band,
                                               Tensor Parameter::*which) const {
  args.token_table = tokens_.ids(band, which);
  args.band = tokens_.bands().first(band);
  if (band > 0) args.start = {};
  args.tables = 0;
  return args;
}

// No id is in a band that begins behind the vocabulary.
kernels::EmbeddingArgs EmbeddingLayer::of_positions(kernels::EmbeddingArgs args) const {
  args.band = tokens_.vocabulary();
  args.start = {};
  return args;
}

// Every slot is in one band, and 0 in the others.
void EmbeddingLayer::look_up(Context& ctx, kernels::EmbeddingArgs args, const Tensor& y) const {
  const Bands& bands = tokens_.bands();
  args.y = y;
  if (!bands.projects()) return ops::run(ctx, args);
  if (args.tables > 0) ops::run(ctx, of_positions(args));
  Context exact = ctx.without_fp8();
  for (std::int64_t b = 0; b < bands.count(); ++b) {
    Scratch scratch(ctx);
    kernels::EmbeddingArgs narrow = of_band(args, b, &Parameter::master);
    narrow.y = scratch.tensor({y.size(0), y.size(1), narrow.width()}, ctx.compute);
    ops::run(ctx, narrow);
    const Tensor projection = tokens_.projection(b)->value;
    if (b > 0 || args.tables > 0)
      ops::linear_add(ctx, narrow.y, projection, y);
    else
      ops::linear(exact, narrow.y, projection, {}, y);
  }
}

void EmbeddingLayer::look_up_back(Context& ctx, kernels::EmbeddingArgs args, const Tensor& dy) const {
  const Bands& bands = tokens_.bands();
  args.y = dy;
  if (!bands.projects()) return ops::run(ctx, kernels::EmbeddingBackwardArgs{args, {}});
  if (args.tables > 0) ops::run(ctx, kernels::EmbeddingBackwardArgs{of_positions(args), {}});
  Scratch scratch(ctx);
  Tensor d = dy;
  if (dy.dtype() != ctx.compute) ops::copy(ctx, dy, d = scratch.tensor(dy.shape(), ctx.compute));
  Context exact = ctx.without_fp8();
  for (std::int64_t b = 0; b < bands.count(); ++b) {
    Scratch inner(ctx);
    const Parameter& projection = *tokens_.projection(b);
    const Tensor x = inner.tensor({dy.size(0), dy.size(1), projection.shape[1]}, ctx.compute), dx = inner.like(x);
    kernels::EmbeddingArgs read = of_band(args, b, &Parameter::master);
    if (start_ != nullptr && b == 0) read.start = start_->master;
    read.y = x;
    ops::run(ctx, read);
    ops::linear_backward_weight(ctx, d, x, projection.gradient, {});
    ops::linear_backward_input(exact, d, projection.value, dx);
    kernels::EmbeddingArgs narrow = of_band(args, b, &Parameter::gradient);
    narrow.y = dx;
    ops::run(ctx, kernels::EmbeddingBackwardArgs{narrow, {}});
  }
}

void EmbeddingLayer::forward(Context& ctx, const Batch& batch, const Tensor& y, std::int64_t first) const {
  kernels::EmbeddingArgs args = tables();
  read(ctx, args, batch, first, y.size(1));
  look_up(ctx, args, y);
}

void EmbeddingLayer::decode(Context& ctx, const Tensor& previous, const Tensor& y, std::int64_t position) const {
  kernels::EmbeddingArgs args = tables();
  args.tokens = previous;
  args.first = position;
  args.first_at = ctx.position;
  look_up(ctx, args, y);
}

void EmbeddingLayer::backward(Context& ctx, const Tensor& dy, const Batch& batch, std::int64_t first) const {
  kernels::EmbeddingArgs args = tables(&Parameter::gradient);
  read(ctx, args, batch, first, dy.size(1));
  look_up_back(ctx, args, dy);
}

}  // namespace longstride
