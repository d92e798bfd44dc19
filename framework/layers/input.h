// The input of a stack: token and position embeddings (Eq. 9) and their dropout.
#pragma once
#include <memory>

#include "framework/layers/dropout.h"
#include "framework/layers/embedding.h"

namespace longstride {

class Input {
 public:
  Input(std::unique_ptr<EmbeddingLayer> embedding, double dropout)
      : embedding_(std::move(embedding)), dropout_{static_cast<float>(dropout), dropout_ids::embedding} {}

  // As EmbeddingLayer's, with dropout in a step.
  void forward(Context& ctx, const Batch& batch, const Tensor& h, std::int64_t first = 0) const {
    embedding_->forward(ctx, batch, h, first);
    dropout_.apply(ctx, h);
  }
  // Overwrites dh.
  void backward(Context& ctx, const Tensor& dh, const Batch& batch, std::int64_t first = 0) const {
    dropout_.apply(ctx, dh);
    embedding_->backward(ctx, dh, batch, first);
  }
  const EmbeddingLayer& embedding() const { return *embedding_; }

 private:
  std::unique_ptr<EmbeddingLayer> embedding_;
  Dropout dropout_;
};

}  // namespace longstride
