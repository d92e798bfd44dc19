// out = W_p attention(normed) + b_p, the inside of the dropout in a(H) = dropout(attention(norm(H))) (Eq. 12).
// attention: several heads over one pattern (Eq. 2 to 8), scaled by 1 / sqrt(key size). Queries and keys may be
// normalised and rotated first.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "framework/layers/branch.h"
#include "framework/layers/linear.h"
#include "kernels/attention/decode/decode.h"
#include "kernels/query_key/query_key.h"

namespace longstride {

struct AttentionMixerConfig {
  std::int64_t width = 0, heads = 0, key_size = 0, value_size = 0;
  double weight_deviation = 0;  // of W_qkv
  double output_deviation = 0;  // of W_p
  bool biased = true;           // whether W_qkv and W_p have biases
  kernels::QueryKeyTransform transform;
};

// The plans of a model's layers, by sequence length; layers with equal parts share a plan. Each rank of a group that
// divides a sequence has an equal run of the heads. Thread-safe.
class AttentionPlans {
 public:
  AttentionPlans(kernels::PatternConfig pattern, std::int64_t heads) : cache_(std::move(pattern), heads) {}
  std::shared_ptr<const kernels::AttentionPlan> plan(std::int64_t layer, std::int64_t positions, int rank = 0,
                                                     int ranks = 1) const;
  std::shared_ptr<const kernels::DecodePlan> decode_plan(std::int64_t layer, std::int64_t positions) const;

 private:
  mutable std::mutex mutex_;
  mutable kernels::PlanCache cache_;
  mutable std::map<std::tuple<const kernels::AttentionPlan*, int, int>, std::shared_ptr<const kernels::AttentionPlan>>
      parts_;  // parts of the cached plans, which are never dropped
  mutable std::map<const kernels::AttentionPlan*, std::shared_ptr<const kernels::DecodePlan>> decode_plans_;
};

// The keys and values of earlier positions.
struct AttentionCache : BranchCache {
  std::shared_ptr<const kernels::DecodePlan> plan;
  kernels::DecodeCache rows;
};

class AttentionMixer : public Branch {
 public:
  // Parameters: `name`.query_key_value.*, `name`.output.*
  AttentionMixer(ParameterSet& parameters, const std::string& name, const AttentionMixerConfig& config,
                  std::shared_ptr<const AttentionPlans> plans, std::int64_t layer);

  void forward(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape* tape) const override;
  bool adds_residual() const override { return true; }
  Tensor output_bias_gradient() const override { return output_.bias_gradient(); }
  const Parameter& gradients_final_from() const override { return query_key_value_.weight(); }
  void backward(Context& ctx, const Tensor& dout, const Tensor& dnormed, Tape& tape) const override;
  // The kernel's own outputs, o and lse, are kept. q, k, v, the exchange between sequence ranks and W_p are repeated.
  int kept_results() const override { return 2; }
  void forward_keeping(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape& tape) const override;
  void forward_again(Context& ctx, const Tensor& normed, const BranchOutput& out, const KeptResults& kept,
                     Tape& tape) const override;
  struct QkvHeads {
    Tensor q, k, v;  // (batch, seq, heads, size)
  };
  // The inputs of attention for positions `first` and later, in `scratch`.
  QkvHeads project(Context& ctx, const Tensor& normed, std::int64_t first, Scratch& scratch) const;
  std::unique_ptr<BranchCache> make_cache(Context& ctx, Scratch& memory, std::int64_t batch,
                                          std::int64_t positions) const override;
  void decode(Context& ctx, const Tensor& normed, const Tensor& out, BranchCache* cache,
              std::int64_t position) const override;

  const Linear& query_key_value() const { return query_key_value_; }
  const Linear& output() const { return output_; }

 private:
  // The outputs of the kernel for this rank's heads: o (batch, seq, heads value size) and lse (batch, heads, seq).
  struct Attended {
    Tensor o, lse;
  };
  // Saves everything on `tape`, and only what attention gives on `kept_on`; either may be null. What is `known` is not
  // computed.
  void forward_with(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape* tape, Tape* kept_on,
                    Attended known) const;
  Attended attend(Context& ctx, const QkvHeads& in, Scratch& scratch, Tape* tape) const;
  // Slices of qkv. If `transformed`, the result of transform(), is given, q and k are slices of it.
  QkvHeads heads_of(const Tensor& qkv, std::int64_t heads, const Tensor& transformed = {}) const;
  // The transformed queries and keys of positions `first` and later, (batch, seq, heads (2 key size)), on the tape or
  // in scratch; absent without a transformation.
  Tensor transform(Context& ctx, const Tensor& qkv, std::int64_t heads, std::int64_t first, Scratch& scratch,
                   Tape* tape = nullptr) const;
  // Converts the gradients in dqkv, in place, from those of the transformed queries and keys to those of qkv.
  void transform_back(Context& ctx, const Tensor& qkv, std::int64_t heads, const Tensor& dqkv) const;
  Tensor queries_and_keys_in(const Tensor& qkv, std::int64_t heads) const;  // (batch, seq, 2 heads, key size)
  std::vector<std::int64_t> column_groups() const;                          // the widths of q, k and v in qkv
  // Adds the gradient of the bias in qkv, for sequences of this many positions: over dqkv only where it has to.
  void add_bias_gradient(Context& ctx, const Tensor& dqkv, std::int64_t positions) const;
  double scale() const;

  AttentionMixerConfig config_;
  Linear query_key_value_;
  Linear output_;
  std::shared_ptr<const AttentionPlans> plans_;
  std::int64_t layer_;
};

}  // namespace longstride
