#include "framework/train/step/training_state.h"

#include <cstring>

namespace longstride {

TrainingState::TrainingState(Model& model, const TrainConfig& config, const MemoryPlan& plan, int ranks)
    : bytes_(static_cast<std::size_t>(plan.block())) {
  const Batching batching = divide_batch(config, ranks);
  if (plan.device == Device::cpu)
    base_ = host_.emplace(bytes_).data();
  else
    base_ = gpu_.emplace(bytes_).data();
  const Shape flat = {model.parameters().flat_size()};
  masters = take(flat, Dtype::f32);
  if (plan.compute != Dtype::f32) low = take(flat, plan.compute);
  gradients = take(flat, Dtype::f32);
  if (plan.exchange > 0) wire = take(flat, gradient_type(config, plan.device));
  const Shape updated = {optimizer_elements(model.parameters(), config, ranks)};
  optimizer.m = take(updated, Dtype::f32);
  optimizer.v = take(updated, Dtype::f32);
  optimizer.scalars = take({static_cast<std::int64_t>(Optimizer::scalars_bytes)}, Dtype::u8);
  if (plan.average > 0) optimizer.ema = take(updated, Dtype::f32);
  step = take({1}, Dtype::i64);
  tokens = take({batching.per_rank, model.context()}, Dtype::u8);
  nats = take({1}, Dtype::f64);
  losses = take({batching.micro, model.context() / batching.context}, Dtype::f32);
  if (plan.device == Device::cpu) {
    std::memset(base_, 0, taken_);
  } else {
    zero_on_device(base_, taken_, nullptr);
    synchronize(nullptr);
  }
  if (plan.libraries > 0) workspace = take({plan.libraries}, Dtype::u8);
  LONGSTRIDE_CHECK(static_cast<std::int64_t>(bytes_ - taken_) == plan.activations,
                   "{} bytes are left for activations, {} are planned", bytes_ - taken_, plan.activations);
  arena_ = Arena(base_ + taken_, bytes_ - taken_);
  model.parameters().bind(masters, gradients, low);
}

Tensor TrainingState::take(const Shape& shape, Dtype dtype) {
  const Tensor t(base_ + taken_, dtype, shape);
  taken_ += Arena::rounded(t.bytes());
  return t;
}

}  // namespace longstride
