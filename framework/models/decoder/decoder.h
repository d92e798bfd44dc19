// A decoder: attention and feed-forward branches along a residual stream, which predict every byte from those before
// it. With its default settings it is the Sparse Transformer (Child et al. 2019, section 5):
//   H_0 = embed(x),  H_k = H_{k-1} + resblock(H_{k-1}),  y = softmax(norm(H_N) W_out)
//   a(H) = dropout(attention(norm(H))),  b(H) = dropout(ff(norm(H + a(H)))),  resblock = a + b
// Other settings give the blocks of other systems: normalised behind the branches, with other activations, without
// biases; and an output whose weight is the token table.
#pragma once
#include <memory>
#include <vector>

#include "framework/mixers/attention/mixer.h"
#include "framework/models/attention_views.h"
#include "framework/models/decoder/trunk.h"
#include "framework/models/model.h"

namespace longstride {

namespace generation {
struct Weights;
}

class Decoder : public Model,
                public Decodes,
                public GeneratesInOneKernel,
                public DividesSequences,
                public AttendsByPattern,
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
  AttentionShape attention_shape() const override;
  std::string attention_kind(std::int64_t layer, std::int64_t head) const override;
  PairWeight pair_weight(std::int64_t layer, std::int64_t head, double span) const override;
  void visit_attention(Context& ctx, const Batch& batch, const std::vector<std::int64_t>& queries,
                       const AttentionVisitor& visit) const override;
  void check_group(int ranks) const override;
  std::unique_ptr<DecodingState> begin_decoding(Context& ctx, std::int64_t batch,
                                                std::int64_t positions) const override;
  void decode(Context& ctx, DecodingState& state, std::int64_t position, const Tensor& previous,
              const Tensor& logits) const override;
  bool generates(const DecodingState& state) const override;
  void generate(Context& ctx, DecodingState& state, const kernels::Drawing& drawing, std::int64_t first,
                std::int64_t count) const override;

 private:
  std::shared_ptr<const AttentionMixer> make_attention(std::int64_t layer, const std::string& name);
  generation::Weights generation_weights(const ResidualStream::Caches& caches) const;

  DecoderConfig config_;
  ParameterSet parameters_;
  std::shared_ptr<const AttentionPlans> plans_;
  std::vector<std::shared_ptr<const AttentionMixer>> attention_;  // the blocks' own
  DecoderTrunk trunk_;
};

}  // namespace longstride
