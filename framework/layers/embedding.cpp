#include "framework/layers/embedding.h"

namespace longstride {
namespace {

// The tokens that ops::embed takes for positions [first, first + run): it shifts them itself if they start at 0.
Tensor read_by(const Tensor& tokens, std::int64_t first, std::int64_t run) {
  const std::int64_t begin = first > 0 ? first - 1 : 0;
  return tokens.slice(1, begin, begin + run);
}

}  // namespace

EmbeddingLayer::EmbeddingLayer(ParameterSet& parameters, const std::string& name, std::int64_t vocabulary,
                               std::int64_t width, const std::vector<PositionIndex>& positions, double token_deviation,
                               double position_deviation)
    : start_(parameters.add(name + ".start", {width}, {token_deviation, 0})),
      token_(parameters.add(name + ".token.weight", {vocabulary, width}, {token_deviation, 0})),
      index_(positions) {
  for (std::size_t j = 0; j < positions.size(); ++j)
    position_.push_back(&parameters.add(name + ".position." + std::to_string(j) + ".weight", {positions[j].size, width},
                                        {position_deviation, 0}));
}

ops::Embedding EmbeddingLayer::embedding(Tensor Parameter::*which, std::int64_t first) const {
  ops::Embedding e{start_.*which, token_.*which, {}, first};
  for (std::size_t j = 0; j < index_.size(); ++j) e.positions.push_back({index_[j].divisor, position_[j]->*which});
  return e;
}

void EmbeddingLayer::forward(Context& ctx, const Tensor& tokens, const Tensor& y, std::int64_t first) const {
  ops::embed(ctx, embedding(&Parameter::master, first), read_by(tokens, first, y.size(1)), y);
}

void EmbeddingLayer::backward(Context& ctx, const Tensor& dy, const Tensor& tokens, std::int64_t first) const {
  ops::embed_backward(ctx, dy, read_by(tokens, first, dy.size(1)), embedding(&Parameter::gradient, first));
}

void EmbeddingLayer::decode(Context& ctx, const Tensor& previous, const Tensor& y, std::int64_t position) const {
  ops::embed(ctx, embedding(&Parameter::master, position), previous, y);
}

kernels::EmbeddingArgs EmbeddingLayer::tables() const {
  kernels::EmbeddingArgs args;
  args.start = start_.master.view();
  args.token_table = token_.master.view();
  for (std::size_t j = 0; j < index_.size(); ++j)
    args.positions[args.tables++] = {index_[j].divisor, position_[j]->master.view()};
  return args;
}

}  // namespace longstride
