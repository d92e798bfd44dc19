#include "framework/train/evaluate/evaluation_memory.h"

#include "framework/ops/basic.h"
#include "framework/train/step/memory_plan.h"
#include "framework/train/step/precision.h"

namespace longstride {

EvaluationMemory::EvaluationMemory(Model& model, const Tensor& masters, const EvaluationConfig& config,
                                   const TrainConfig& train, Device device)
    : EvaluationMemory(
          model, masters, train.precision, device,
          [&](const Context& ctx) { return evaluation_bytes(model, ctx, config); },
          low_precision_residual(train, device)) {}

EvaluationMemory::EvaluationMemory(Model& model, const Tensor& masters, Precision precision, Device device,
                                   const std::function<std::size_t(const Context&)>& arena_bytes,
                                   bool low_precision_residual)
    : stream_(device) {
  ctx_.device = device;
  ctx_.launch.stream = stream_.stream();
  ctx_.compute = compute_type(computes_in_16_bits(device) ? precision : Precision::fp32, device);
  ctx_.low_precision_residual = low_precision_residual;
  const bool moves = !shares_host_memory(device);
  Tensor weights(nullptr, Dtype::f32, masters.shape()), low_precision;
  if (ctx_.compute != Dtype::f32) low_precision = Tensor(nullptr, ctx_.compute, masters.shape());
  if (moves) model.parameters().bind(masters, masters, low_precision);  // to count with the weights' final types
  const std::size_t libraries = library_workspace_bytes(device), arena = Arena::rounded(arena_bytes(ctx_)),
                    flat = moves ? Arena::rounded(weights.bytes()) : 0,
                    moved = flat + (moves ? Arena::rounded(low_precision.bytes()) : 0);
  block_ = Block(device, moved + libraries + arena);
  ctx_.launch.workspace = block_.data() + moved;
  ctx_.launch.workspace_bytes = libraries;
  arena_ = Arena(block_.data() + moved + libraries, block_.bytes() - moved - libraries);
  if (!moves) return;
  weights = Tensor(block_.data(), Dtype::f32, masters.shape());
  stream_.copy_to_device(weights.data(), masters.data(), weights.bytes());
  if (low_precision.given()) {
    low_precision = Tensor(block_.data() + flat, ctx_.compute, masters.shape());
    Context ctx = context();
    ops::copy(ctx, weights, low_precision);
  }
  stream_.synchronize();
  model.parameters().bind(weights, weights, low_precision);  // nothing here writes gradients
}

Context EvaluationMemory::context() {
  Context ctx = ctx_;
  ctx.arena = &arena_;
  return ctx;
}

}  // namespace longstride
