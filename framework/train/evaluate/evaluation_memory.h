// Memory of an evaluation that is no part of a training run: on a GPU, the weights as well.
#pragma once
#include <functional>
#include <optional>

#include "framework/core/context.h"
#include "framework/train/evaluate/evaluator.h"
#include "framework/train/step/host_memory.h"
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
  // residual stream is fp32 unless it is `narrow_stream`.
  EvaluationMemory(Model& model, const Tensor& masters, Precision precision, Device device,
                   const std::function<std::size_t(const Context&)>& arena_bytes, bool narrow_stream = false);

  Context context();  // to evaluate in

 private:
  void move_weights(Model& model, const Tensor& masters);

  Context ctx_;
  std::optional<HostMemory> host_;
  std::optional<DeviceMemory> gpu_;  // masters, their narrow copy, library workspace, arena
  std::optional<Stream> stream_;
  Arena arena_;
};

}  // namespace longstride
