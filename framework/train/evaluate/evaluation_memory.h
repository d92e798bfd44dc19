// Memory for an evaluation outside a training run; on a GPU it includes the weights.
#pragma once
#include <functional>

#include "framework/core/context.h"
#include "framework/core/device/memory.h"
#include "framework/train/evaluate/evaluator.h"
#include "framework/train/train_config.h"

namespace longstride {

class EvaluationMemory {
 public:
  // `masters` is the host's flat buffer that the model is bound to. On a GPU the weights are copied to the device and
  // the model is bound to the copy. Weights and residual stream have the types of `train`, so the figure equals that of
  // an evaluation during training. The CPU always computes in fp32.
  EvaluationMemory(Model& model, const Tensor& masters, const EvaluationConfig& config, const TrainConfig& train,
                   Device device);
  // The same for any other use of a model's weights, with an arena of the size that `arena_bytes` returns. The residual
  // stream is fp32 unless `low_precision_residual`.
  EvaluationMemory(Model& model, const Tensor& masters, Precision precision, Device device,
                   const std::function<std::size_t(const Context&)>& arena_bytes, bool low_precision_residual = false);

  Context context();  // to evaluate in

 private:
  Context ctx_;
  Block block_;  // on a GPU: masters and their low-precision copy; everywhere: library workspace, arena
  Stream stream_;
  Arena arena_;
};

}  // namespace longstride
