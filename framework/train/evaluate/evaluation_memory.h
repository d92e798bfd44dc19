// Memory of an evaluation that is no part of a training run: on a GPU, the weights as well.
#pragma once
#include <functional>

#include "framework/core/context.h"
#include "framework/core/device/memory.h"
#include "framework/train/evaluate/evaluator.h"
#include "framework/train/train_config.h"

namespace longstride {

class EvaluationMemory {
 public:
  // `masters` is the host's flat buffer that the model is bound to. On a GPU the weights are copied there and the model
  // is bound to them, and weights and residual stream have the types of `train`: the figure is that of an evaluation
  // during the training. The CPU always computes in fp32.
  EvaluationMemory(Model& model, const Tensor& masters, const EvaluationConfig& config, const TrainConfig& train,
                   Device device);
  // The same for any other use of a model's weights, with an arena of as many bytes as `arena_bytes` counts. The
  // residual stream is fp32 unless it is `low_precision_residual`.
  EvaluationMemory(Model& model, const Tensor& masters, Precision precision, Device device,
                   const std::function<std::size_t(const Context&)>& arena_bytes, bool low_precision_residual = false);

  Context context();  // to evaluate in

 private:
  Context ctx_;
  Block block_;  // on a GPU masters and their low-precision copy; library workspace, arena
  Stream stream_;
  Arena arena_;
};

}  // namespace longstride
