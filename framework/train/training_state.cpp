#include "framework/train/training_state.h"

#include <cstring>

namespace longstride {

TrainingState::TrainingState(Model& model, const MemoryPlan& plan, std::int64_t micro_batch, std::int64_t context)
    : block_(static_cast<std::size_t>(plan.block())) {
  const Shape flat = {model.parameters().flat_size()};
  masters = take(flat, Dtype::f32);
  gradients = take(flat, Dtype::f32);
  optimizer.m = take(flat, Dtype::f32);
  optimizer.v = take(flat, Dtype::f32);
  optimizer.scalars = take({static_cast<std::int64_t>(Optimizer::scalars_bytes)}, Dtype::u8);
  if (plan.average > 0) optimizer.ema = take(flat, Dtype::f32);
  std::memset(block_.data(), 0, taken_);
  tokens = take({micro_batch, context}, Dtype::u8);
  losses = take({micro_batch, context}, Dtype::f32);
  LONGSTRIDE_CHECK(static_cast<std::int64_t>(block_.bytes() - taken_) == plan.activations,
                   "{} bytes are left for activations, {} are planned", block_.bytes() - taken_, plan.activations);
  arena_ = Arena(block_.data() + taken_, block_.bytes() - taken_);
  model.parameters().bind(masters, gradients);
}

Tensor TrainingState::take(const Shape& shape, Dtype dtype) {
  const Tensor t(block_.data() + taken_, dtype, shape);
  taken_ += Arena::rounded(t.bytes());
  return t;
}

}  // namespace longstride
