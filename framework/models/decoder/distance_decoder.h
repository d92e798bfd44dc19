// A decoder whose attention has a distance term and may look back beyond the segment into a memory: Transformer-XL (Dai
// et al. 2019), Adaptive-Span (Sukhbaatar et al. 2019), Longformer's language model (Beltagy et al. 2020) and the
// Compressive Transformer (Rae et al. 2020), as `model.distance` and `model.memory` set it.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/mixers/distance/mixer.h"
#include "framework/models/attention_views.h"
#include "framework/models/decoder/trunk.h"
#include "framework/models/model.h"

namespace longstride {

class DistanceDecoder final : public Model,
                              public Decodes,
                              public SetsWindows,
                              public LearnsSpans,
                              public ShowsAttention,
                              public LooksBack,
                              public AttendsByDistance {
 public:
  explicit DistanceDecoder(const DecoderConfig& config);

  ParameterSet& parameters() override { return parameters_; }
  std::int64_t context() const override { return config_.context; }
  std::int64_t vocabulary() const override { return config_.vocabulary; }
  const StateSet& states() const override { return states_; }
  std::int64_t warm_up_steps() const override;
  std::int64_t reach_of_memory() const override;
  std::vector<std::string> auxiliary_losses() const override;

  void losses(Context& ctx, const Batch& batch, const Tensor& losses) const override;
  void loss_and_gradients(Context& ctx, const Batch& batch, double scale, const Tensor& losses) const override;
  SequenceCost cost(std::int64_t positions) const override;
  void set_windows(const std::vector<std::int64_t>& of_layers) override;
  SpanParameters spans() const override;

  // In distance_decoding.cpp.
  std::unique_ptr<DecodingState> begin_decoding(Context& ctx, std::int64_t batch,
                                                std::int64_t positions) const override;
  void begin_position(Context& ctx, DecodingState& state, std::int64_t position) const override;
  void decode(Context& ctx, DecodingState& state, std::int64_t position, const Tensor& previous,
              const Tensor& logits) const override;

  // In distance_views.cpp.
  AttentionShape attention_shape() const override;
  std::string attention_kind(std::int64_t layer, std::int64_t head) const override;
  PairWeight pair_weight(std::int64_t layer, std::int64_t head, double span) const override;
  void visit_attention(Context& ctx, const Batch& batch, const std::vector<std::int64_t>& queries,
                       const AttentionVisitor& visit) const override;
  LookBack look_back() const override;
  LookBack look_back_of_layer(std::int64_t layer) const override;
  double mean_keys(double span) const override;
  std::vector<Layer> distance_attention() const override;

 private:
  std::shared_ptr<const DistanceMixer> make_attention(std::int64_t layer, const std::string& name);
  DistanceShape shape() const;
  bool has_span_loss() const { return config_.distance.span.loss > 0; }
  std::int64_t remembered_positions() const;  // by one layer, one row of a compressed memory being `rate` of them
  // That of a whole segment, with a span per head as a share of the longest, if heads learn any.
  kernels::DistanceScores mask(std::int64_t layer, std::vector<float>& spans) const;
  std::vector<float> spans_of(double span) const;  // of every head, from positions
  double compressor_parameters() const;
  double learning_flops(double positions) const;  // per sequence, of a compression that learns

  DecoderConfig config_;
  ParameterSet parameters_;
  StateSet states_;
  SharedDistance shared_;
  std::shared_ptr<const RememberedPositions> remembered_;
  std::shared_ptr<Windows> windows_;
  std::vector<std::shared_ptr<const DistanceMixer>> attention_;  // the blocks' own
  DecoderTrunk trunk_;
};

}  // namespace longstride
