#include "framework/train/evaluate/evaluation_memory.h"

#include "framework/ops/basic.h"
#include "framework/train/step/memory_plan.h"
#include "framework/train/step/precision.h"

namespace longstride {

EvaluationMemory::EvaluationMemory(Model& model, const Tensor& masters, const EvaluationConfig& config,
                                   const TrainConfig& train, Device device)
    : EvaluationMemory(
          model, masters, train.precision, device,
          [&](const Context& ctx) { return evaluation_bytes(model, ctx, config); }, narrow_stream(train, device)) {}

EvaluationMemory::EvaluationMemory(Model& model, const Tensor& masters, Precision precision, Device device,
                                   const std::function<std::size_t(const Context&)>& arena_bytes, bool narrow_stream) {
  ctx_.device = device;
  if (device == Device::cpu) {
    host_.emplace(arena_bytes(ctx_));
    arena_ = Arena(host_->data(), host_->bytes());
    return;
  }
  ctx_.compute = compute_type(precision, device);
  ctx_.narrow_stream = narrow_stream;
  const Tensor planned(nullptr, ctx_.compute, masters.shape());
  model.parameters().bind(masters, masters, planned);  // to count with weights of the type that they will have
  const std::size_t flat = Arena::rounded(masters.bytes());
  const std::size_t low = ctx_.compute == Dtype::f32 ? 0 : flat;  // rounded up: half of it is needed
  const std::size_t arena = Arena::rounded(arena_bytes(ctx_));
  gpu_.emplace(flat + low + library_workspace_bytes + arena);
  stream_.emplace();
  ctx_.launch.stream = stream_->handle();
  ctx_.launch.workspace = gpu_->data() + flat + low;
  ctx_.launch.workspace_bytes = library_workspace_bytes;
  arena_ = Arena(gpu_->data() + flat + low + library_workspace_bytes, arena);
  move_weights(model, masters);
}

void EvaluationMemory::move_weights(Model& model, const Tensor& masters) {
  void* stream = stream_->handle();
  const Tensor moved(gpu_->data(), Dtype::f32, masters.shape());
  copy_to_device(moved.data(), masters.data(), masters.bytes(), stream);
  Tensor low;
  if (ctx_.compute != Dtype::f32) {
    low = Tensor(gpu_->data() + Arena::rounded(masters.bytes()), ctx_.compute, masters.shape());
    Context ctx = context();
    ops::copy(ctx, moved, low);
  }
  synchronize(stream);
  model.parameters().bind(moved, moved, low);  // nothing here writes gradients
}

Context EvaluationMemory::context() {
  Context ctx = ctx_;
  ctx.arena = &arena_;
  return ctx;
}

}  // namespace longstride
