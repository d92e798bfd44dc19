// A decoder: mixers and feed-forward branches along a residual stream, which predict every byte from those before it.
// With its default settings it is the Sparse Transformer (Child et al. 2019, section 5):
//   H_0 = embed(x),  H_k = H_{k-1} + resblock(H_{k-1}),  y = softmax(norm(H_N) W_out)
//   a(H) = dropout(attention(norm(H))),  b(H) = dropout(ff(norm(H + a(H)))),  resblock = a + b
// Other settings give the blocks of other systems: normalised behind the branches, with other activations, without
// biases; an output whose weight is the token table; and attention with a distance term and a memory: Transformer-XL
// (Dai et al. 2019), Adaptive-Span (Sukhbaatar et al. 2019), Longformer's language model (Beltagy et al. 2020) and the
// Compressive Transformer (Rae et al. 2020).
#pragma once
#include <memory>
#include <vector>

#include "framework/layers/heads/next_byte.h"
#include "framework/layers/input.h"
#include "framework/layers/stack.h"
#include "framework/models/decoder/config.h"
#include "framework/models/mixes_positions.h"
#include "framework/models/model.h"

namespace longstride {

namespace generation {
struct Weights;
}

class Decoder : public Model,
                public Decodes,
                public GeneratesInOneKernel,
                public DividesSequences,
                public SetsWindows,
                public MixesPositions {
 public:
  explicit Decoder(const DecoderConfig& config);

  ParameterSet& parameters() override { return parameters_; }
  std::int64_t context() const override { return config_.context; }
  std::int64_t vocabulary() const override { return config_.vocabulary; }
  const StateSet& states() const override { return states_; }
  BatchFields fields() const override;
  std::int64_t warm_up_steps() const override;
  std::int64_t reach_of_memory() const override;
  std::vector<std::string> auxiliary_losses() const override { return family_->auxiliary_losses(); }

  void losses(Context& ctx, const Batch& batch, const Tensor& losses) const override;
  void loss_and_gradients(Context& ctx, const Batch& batch, double scale, const Tensor& losses) const override;
  SequenceCost cost(std::int64_t positions) const override;
  void check_group(int ranks) const override;
  void set_windows(const std::vector<std::int64_t>& of_layers) override;

  std::int64_t layers() const override { return config_.layers; }
  const Mixer& mixer(std::int64_t layer) const override { return *mixers_[static_cast<std::size_t>(layer)]; }
  void visit_attention(Context& ctx, const Batch& batch, const std::vector<std::int64_t>& queries,
                       const AttentionVisitor& visit) const override;

  // In decoding.cpp.
  std::unique_ptr<DecodingState> begin_decoding(Context& ctx, std::int64_t batch,
                                                std::int64_t positions) const override;
  void begin_position(Context& ctx, DecodingState& state, std::int64_t position) const override;
  std::int64_t positions_together(std::int64_t position) const override;
  void decode(Context& ctx, DecodingState& state, std::int64_t position, const Tensor& previous,
              const Tensor& logits) const override;
  bool generates(const DecodingState& state) const override;
  void generate(Context& ctx, DecodingState& state, const kernels::Drawing& drawing, std::int64_t first,
                std::int64_t count) const override;

 private:
  // The positions of each sequence that this rank holds in a step or an evaluation.
  struct RankSpan {
    std::int64_t first = 0;
    NextByteHead::Asked asked;  // (batch, seq / ranks)
  };
  // The bounds of the documents of a batch that has them, from `memory`: a Tape, or Scratch.
  template <class Memory>
  DocumentBounds bounds_of(Context& ctx, const Batch& batch, Memory& memory) const;
  RankSpan span_of(const Context& ctx, const Batch& batch, const Tensor& losses) const;
  generation::Weights generation_weights(const Stack::Caches& caches) const;

  DecoderConfig config_;
  ParameterSet parameters_;
  StateSet states_;
  std::unique_ptr<MixerFamily> family_;
  std::vector<std::shared_ptr<const Mixer>> mixers_;  // the blocks' own
  std::unique_ptr<Input> input_;
  std::unique_ptr<Stack> stack_;
  std::unique_ptr<NextByteHead> head_;
};

}  // namespace longstride
