// The input of a stack: token and position embeddings (Eq. 9), a norm behind them if there is one (Devlin et al. 2019),
// and their dropout.
#pragma once
#include <memory>
#include <utility>

#include "framework/layers/dropout.h"
#include "framework/layers/embedding.h"
#include "framework/layers/layer_norm.h"

namespace longstride {

class Input {
 public:
  Input(std::unique_ptr<EmbeddingLayer> embedding, double dropout, std::unique_ptr<LayerNorm> norm = nullptr)
      : embedding_(std::move(embedding)),
        norm_(std::move(norm)),
        dropout_{static_cast<float>(dropout), dropout_ids::embedding} {}

  // As EmbeddingLayer's, with dropout in a step. h has the residual stream's type.
  void forward(Context& ctx, const Batch& batch, const Tensor& h, Tape* tape, std::int64_t first = 0) const;
  // Overwrites dh.
  void backward(Context& ctx, const Tensor& dh, const Batch& batch, Tape& tape, std::int64_t first = 0) const;
  const EmbeddingLayer& embedding() const { return *embedding_; }

 private:
  std::unique_ptr<EmbeddingLayer> embedding_;
  std::unique_ptr<LayerNorm> norm_;  // null: none
  Dropout dropout_;
};

}  // namespace longstride
