// The input of a stack: token and position embeddings (Eq. 9), those of types and a norm behind the sum if there are
// any (Devlin et al. 2019), and their dropout. Rows that a model adds are in front of those of positions.
#pragma once
#include <memory>
#include <utility>

#include "framework/layers/added_rows.h"
#include "framework/layers/dropout.h"
#include "framework/layers/embedding.h"
#include "framework/layers/layer_norm.h"

namespace longstride {

class Input {
 public:
  Input(std::unique_ptr<EmbeddingLayer> embedding, double dropout, std::unique_ptr<LayerNorm> norm = nullptr,
        std::unique_ptr<AddedRows> added = nullptr, std::unique_ptr<EmbeddingLayer> types = nullptr)
      : embedding_(std::move(embedding)),
        types_(std::move(types)),
        norm_(std::move(norm)),
        added_(std::move(added)),
        dropout_{static_cast<float>(dropout), dropout_ids::embedding} {}

  // As EmbeddingLayer's, with dropout in a step. h has the residual stream's type.
  void forward(Context& ctx, const Batch& batch, const Tensor& h, Tape* tape, std::int64_t first = 0) const;
  // Overwrites dh.
  void backward(Context& ctx, const Tensor& dh, const Batch& batch, Tape& tape, std::int64_t first = 0) const;
  const EmbeddingLayer& embedding() const { return *embedding_; }
  const AddedRows* added() const { return added_.get(); }  // null: there are none
  bool reads_types() const { return types_ != nullptr; }

 private:
  void embed(Context& ctx, const Batch& batch, const Tensor& h, std::int64_t first) const;
  void embed_back(Context& ctx, const Tensor& dh, const Batch& batch, std::int64_t first) const;
  // Without rows that are added.
  void embed_positions(Context& ctx, const Batch& batch, const Tensor& y, std::int64_t first) const;
  void embed_positions_back(Context& ctx, const Tensor& dy, const Batch& batch, std::int64_t first) const;

  std::unique_ptr<EmbeddingLayer> embedding_;
  std::unique_ptr<EmbeddingLayer> types_;  // null: none
  std::unique_ptr<LayerNorm> norm_;        // null: none
  std::unique_ptr<AddedRows> added_;
  Dropout dropout_;
};

}  // namespace longstride
