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

#include "framework/layers/heads/next_byte.h"
#include "framework/models/decoder/config.h"
#include "framework/models/stack_model.h"

namespace longstride {

namespace generation {
struct Weights;
}

class Decoder : public StackModel,
                public Predicts,
                public Decodes,
                public GeneratesInOneKernel,
                public DividesSequences {
 public:
  explicit Decoder(const DecoderConfig& config);

  void check_group(int ranks) const override;
  Shape scores_shape(std::int64_t positions) const override { return head().scores_shape(positions); }
  void predict(Context& ctx, const Batch& batch, const Tensor& scores) const override;

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
  generation::Weights generation_weights(const Stack::Caches& caches) const;

  DecoderConfig config_;
  const NextByteHead* head_ = nullptr;  // the model's
};

}  // namespace longstride
