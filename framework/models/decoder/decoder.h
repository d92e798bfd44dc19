// A decoder: attention and feed-forward branches along a residual stream, which predict every byte from those before
// it. With its default settings it is the Sparse Transformer (Child et al. 2019, section 5):
//   H_0 = embed(x),  H_k = H_{k-1} + resblock(H_{k-1}),  y = softmax(norm(H_N) W_out)
//   a(H) = dropout(attention(norm(H))),  b(H) = dropout(ff(norm(H + a(H)))),  resblock = a + b
// Other settings give the blocks of other systems: normalised behind the branches, with other activations, without
// biases; and an output whose weight is the token table.
#pragma once
#include <memory>
#include <vector>

#include "framework/layers/attention_branch.h"
#include "framework/layers/embedding.h"
#include "framework/layers/feed_forward_branch.h"
#include "framework/layers/residual_stream.h"
#include "framework/models/decoder/config.h"
#include "framework/models/model.h"
#include "framework/ops/cross_entropy.h"

namespace longstride {

namespace generation {
struct Weights;
}

class Decoder : public Model,
                public Decodes,
                public GeneratesInOneKernel,
                public DividesSequences,
                public ShowsAttention {
 public:
  explicit Decoder(const DecoderConfig& config);

  ParameterSet& parameters() override { return parameters_; }
  std::int64_t context() const override { return config_.context; }
  std::int64_t vocabulary() const override { return config_.vocabulary; }
  const DecoderConfig& config() const { return config_; }

  void losses(Context& ctx, const Batch& batch, const Tensor& losses) const override;
  void loss_and_gradients(Context& ctx, const Batch& batch, double scale, const Tensor& losses) const override;
  SequenceCost cost(std::int64_t positions) const override;
  AttentionLayers attention() const override;
  void visit_attention(Context& ctx, const Tensor& tokens, const AttentionVisitor& visit) const override;
  void check_group(int ranks) const override;
  std::unique_ptr<DecodingState> begin_decoding(Context& ctx, std::int64_t batch,
                                                std::int64_t positions) const override;
  void decode(Context& ctx, DecodingState& state, std::int64_t position, const Tensor& previous,
              const Tensor& logits) const override;
  bool generates(const DecodingState& state) const override;
  void generate(Context& ctx, DecodingState& state, const kernels::Drawing& drawing, std::int64_t first,
                std::int64_t count) const override;

 private:
  struct Block {
    std::shared_ptr<const LayerNorm> attention_norm, feed_forward_norm;
    std::shared_ptr<const AttentionBranch> attention;
    std::shared_ptr<const FeedForwardBranch> feed_forward;
  };
  void add_block(std::int64_t layer);
  generation::Weights generation_weights(const ResidualStream::Caches& caches) const;
  // The variance (or standard deviation) 0.125 / fan_in of every weight, as a standard deviation; or the recipe's own.
  double deviation(double fan_in) const;
  // The positions of each sequence that this rank holds in a step or an evaluation.
  struct RankSpan {
    std::int64_t first = 0;
    Tensor targets, weights;  // (batch, seq / ranks)
  };
  RankSpan span_of(const Context& ctx, const Batch& batch, const Tensor& losses) const;
  // The loss of `hidden`, without gradients.
  ops::CrossEntropy head(const Tensor& hidden, const RankSpan& here, const Tensor& losses) const;

  DecoderConfig config_;
  ParameterSet parameters_;
  std::shared_ptr<const AttentionPlans> plans_;
  std::unique_ptr<EmbeddingLayer> embedding_;
  std::vector<Block> blocks_;
  std::shared_ptr<const LayerNorm> final_norm_;  // null with post-norm
  std::unique_ptr<ResidualStream> stream_;
  Parameter* output_ = nullptr;       // the token table if the two are tied
  Parameter* output_bias_ = nullptr;  // null without one
};

}  // namespace longstride
