// y = x + dropout(W_p attention(norm(x)) + b_p)          (Eq. 12, with the residual of Eq. 11)
// attention: several heads over one pattern (Eq. 2 to 8), scaled by 1 / sqrt(key size).
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "framework/layers/layer_norm.h"
#include "framework/layers/linear.h"
#include "framework/ops/attention.h"

namespace longstride {

struct AttentionBranchConfig {
  std::int64_t width = 0, heads = 0, key_size = 0, value_size = 0;
  double weight_deviation = 0;  // of W_qkv
  double output_deviation = 0;  // of W_p
  float dropout = 0;
  std::uint32_t dropout_id = 0;  // tells this dropout from all others of the model
};

// The tile lists of a model's layers, by sequence length; layers whose parts are equal share. Thread-safe.
class AttentionPlans {
 public:
  AttentionPlans(kernels::PatternConfig pattern, std::int64_t heads) : cache_(std::move(pattern), heads) {}
  std::shared_ptr<const kernels::AttentionPlan> plan(std::int64_t layer, std::int64_t positions) const {
    std::lock_guard lock(mutex_);
    return cache_.get(layer, positions);
  }

 private:
  mutable std::mutex mutex_;
  mutable kernels::PlanCache cache_;
};

// x, y: (batch, seq, width) of the residual type. backward: dx may be dy.
class AttentionBranch : public Layer {
 public:
  // Parameters: `name`_norm.*, `name`.query_key_value.*, `name`.output.*
  AttentionBranch(ParameterSet& parameters, const std::string& name, const AttentionBranchConfig& config,
                  std::shared_ptr<const AttentionPlans> plans, std::int64_t layer);

  void forward(Context& ctx, const Tensor& x, const Tensor& y, Tape* tape) const override;
  void backward(Context& ctx, const Tensor& dy, const Tensor& dx, Tape& tape) const override;
  // One position, (batch, 1, width), attending to what the cache keeps of those before it.
  void decode(Context& ctx, const Tensor& x, const Tensor& y, const ops::DecodeCache& cache,
              std::int64_t position) const;

 private:
  struct Heads {
    Tensor q, k, v;  // (batch, seq, heads, size)
  };
  Heads heads_of(const Tensor& qkv) const;
  double scale() const;

  AttentionBranchConfig config_;
  LayerNorm norm_;
  Linear query_key_value_;
  Linear output_;
  std::shared_ptr<const AttentionPlans> plans_;
  std::int64_t layer_;
};

}  // namespace longstride
