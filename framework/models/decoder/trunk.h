// What decoders of all mechanisms share: embedding, blocks of an attention and a feed-forward branch along a residual
// stream, and the output. Only the attention branch differs.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "framework/layers/embedding.h"
#include "framework/layers/feed_forward_branch.h"
#include "framework/layers/residual_stream.h"
#include "framework/models/decoder/config.h"
#include "framework/ops/cross_entropy.h"

namespace longstride {

class DecoderTrunk {
 public:
  // Declares a layer's attention under `name`, between the layer's two norms.
  using MakeAttention = std::function<std::shared_ptr<const Branch>(std::int64_t layer, const std::string& name)>;
  // Declares the parameters and lays them out.
  DecoderTrunk(const DecoderConfig& config, ParameterSet& parameters, const MakeAttention& make_attention);

  // As Model's. With a group these are the losses of this rank's positions.
  void losses(Context& ctx, const Batch& batch, const Tensor& losses) const;
  void loss_and_gradients(Context& ctx, const Batch& batch, double scale, const Tensor& losses) const;
  // Generation of one position: logits (batch, vocabulary), given the token before it.
  void decode(Context& ctx, const ResidualStream::Caches& caches, std::int64_t position, const Tensor& previous,
              const Tensor& logits) const;
  // Runs the layers on a batch without dropout and shows the input of every attention branch.
  void observe_attention(Context& ctx, const Batch& batch,
                         const std::function<void(Context& ctx, std::int64_t layer, const Tensor& normed)>& see) const;

  struct Block {
    std::shared_ptr<const LayerNorm> attention_norm, feed_forward_norm;
    std::shared_ptr<const Branch> attention;
    std::shared_ptr<const FeedForwardBranch> feed_forward;
  };
  const std::vector<Block>& blocks() const { return blocks_; }
  const EmbeddingLayer& embedding() const { return *embedding_; }
  const ResidualStream& stream() const { return *stream_; }
  const LayerNorm* final_norm() const { return final_norm_.get(); }  // null with post-norm
  const Parameter& output() const { return *output_; }               // the token table if the two are tied

 private:
  void add_block(std::int64_t layer, ParameterSet& parameters, const MakeAttention& make_attention);
  // The positions of each sequence that this rank holds in a step or an evaluation.
  struct RankSpan {
    std::int64_t first = 0;
    Tensor targets, weights;  // (batch, seq / ranks)
  };
  RankSpan span_of(const Context& ctx, const Batch& batch, const Tensor& losses) const;
  // The loss of `hidden`, without gradients.
  ops::CrossEntropy head(const Tensor& hidden, const RankSpan& here, const Tensor& losses) const;

  DecoderConfig config_;
  std::unique_ptr<EmbeddingLayer> embedding_;
  Dropout embedding_dropout_, output_dropout_;
  std::vector<Block> blocks_;
  std::shared_ptr<const LayerNorm> final_norm_;
  std::unique_ptr<ResidualStream> stream_;
  Parameter* output_ = nullptr;
  Parameter* output_bias_ = nullptr;  // null without one
};

}  // namespace longstride
