#include "framework/layers/embedding.h"

#include "framework/core/errors.h"
#include "framework/ops/run.h"

namespace longstride {
namespace {

// The tokens that the op takes for positions [first, first + run). If they start at 0, the op shifts them itself.
Tensor read_by(const Tensor& tokens, std::int64_t first, std::int64_t run) {
  const std::int64_t begin = first > 0 ? first - 1 : 0;
  return tokens.slice(1, begin, begin + run);
}

}  // namespace

EmbeddingLayer::EmbeddingLayer(ParameterSet& parameters, const std::string& name, std::int64_t vocabulary,
                               std::int64_t width, const std::vector<PositionIndex>& positions, double token_deviation,
                               double position_deviation, double scale)
    : start_(parameters.add(name + ".start", {width}, {token_deviation, 0})),
      token_(parameters.add(name + ".token.weight", {vocabulary, width}, {token_deviation, 0})),
      index_(positions),
      scale_(scale) {
  for (std::size_t j = 0; j < positions.size(); ++j)
    position_.push_back(&parameters.add(name + ".position." + std::to_string(j) + ".weight", {positions[j].size, width},
                                        {position_deviation, 0}));
}

kernels::EmbeddingArgs EmbeddingLayer::tables(Tensor Parameter::*which) const {
  kernels::EmbeddingArgs args;
  args.scale = scale_;
  args.start = start_.*which;
  args.token_table = token_.*which;
  LONGSTRIDE_CHECK(index_.size() <= kernels::EmbeddingArgs::max_tables, "{} position tables", index_.size());
  for (std::size_t j = 0; j < index_.size(); ++j)
    args.positions[args.tables++] = {index_[j].divisor, position_[j]->*which};
  return args;
}

void EmbeddingLayer::embed(Context& ctx, const Tensor& tokens, const Tensor& y, std::int64_t first) const {
  kernels::EmbeddingArgs args = tables();
  args.tokens = tokens;
  args.y = y;
  args.first = first;
  args.first_at = ctx.position;
  ops::run(ctx, args);
}

void EmbeddingLayer::forward(Context& ctx, const Tensor& tokens, const Tensor& y, std::int64_t first) const {
  embed(ctx, read_by(tokens, first, y.size(1)), y, first);
}

void EmbeddingLayer::decode(Context& ctx, const Tensor& previous, const Tensor& y, std::int64_t position) const {
  embed(ctx, previous, y, position);
}

void EmbeddingLayer::backward(Context& ctx, const Tensor& dy, const Tensor& tokens, std::int64_t first) const {
  kernels::EmbeddingBackwardArgs args{tables(&Parameter::gradient), {}};
  args.tokens = read_by(tokens, first, dy.size(1));
  args.y = dy;
  args.first = first;
  ops::run(ctx, args);
}

}  // namespace longstride
