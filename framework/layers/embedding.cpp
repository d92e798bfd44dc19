#include "framework/layers/embedding.h"

namespace longstride {

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

void EmbeddingLayer::forward(Context& ctx, const Tensor& tokens, const Tensor& y, std::int64_t first) const {
  ops::Embedding e{start_.master, token_.master, {}, first};
  for (std::size_t j = 0; j < index_.size(); ++j) e.positions.push_back({index_[j].divisor, position_[j]->master});
  ops::embed(ctx, e, tokens, y);
}

kernels::EmbeddingArgs EmbeddingLayer::tables() const {
  kernels::EmbeddingArgs args;
  args.start = start_.master.view();
  args.token_table = token_.master.view();
  for (std::size_t j = 0; j < index_.size(); ++j)
    args.positions[args.tables++] = {index_[j].divisor, position_[j]->master.view()};
  return args;
}

void EmbeddingLayer::backward(Context& ctx, const Tensor& dy, const Tensor& tokens, std::int64_t first) const {
  ops::Embedding e{start_.gradient, token_.gradient, {}, first};
  for (std::size_t j = 0; j < index_.size(); ++j) e.positions.push_back({index_[j].divisor, position_[j]->gradient});
  ops::embed_backward(ctx, dy, tokens, e);
}

}  // namespace longstride
