#include "framework/train/step/host_tensors.h"

#include <cstring>

#include "framework/ops/basic.h"

namespace longstride {

HostTensors::HostTensors(const TrainingState& state, const TrainingTensors& own)
    : state_(state), own_(own), tensors_(own) {
  tensors_.moment_ranges.clear();
  if (shares_host_memory(state.sizes().device) && own.moment_ranges.empty()) return;
  const auto whole = [&](const SavedTensor& saved, const Tensor& t) {
    return saved.in_ranges() ? own.parameters.flat_size() : t.count();
  };
  memory_ = Block(Device::cpu, place(tensors_, nullptr, whole));
  place(tensors_, memory_.data(), whole);
}

// Calls f(a tensor of the state, the same elements here), one range at a time.
template <class F>
void HostTensors::for_each_tensor(F&& f) const {
  for (const SavedTensor& saved : saved_tensors) {
    const Tensor &own = own_.*saved.tensor, &here = tensors_.*saved.tensor;
    if (!own.given()) continue;
    if (!saved.in_ranges() || own_.moment_ranges.empty()) {
      f(own, here);
      continue;
    }
    std::int64_t at = 0;
    for (const FlatRange& range : own_.moment_ranges) {
      f(own.slice(0, at, at + range.count), range.of(here));
      at += range.count;
    }
  }
}

void HostTensors::zero() {
  if (copies()) std::memset(memory_.data(), 0, memory_.bytes());
}

void HostTensors::fetch(const Queue& queue, Communicator& comm) {
  if (!copies()) return;
  for_each_tensor(
      [&](const Tensor& own, const Tensor& here) { queue.copy_to_host(here.data(), own.data(), own.bytes()); });
  queue.synchronize();
  if (own_.moment_ranges.empty()) return;
  for (const SavedTensor& saved : saved_tensors)
    if (const Tensor& flat = tensors_.*saved.tensor; saved.in_ranges() && flat.given())
      for (const FlatRange& bucket : tensors_.parameters.buckets())
        comm.all_gather(bucket.of(flat).data(), bucket.count / comm.size() * static_cast<std::int64_t>(sizeof(float)));
}

void HostTensors::send(Context& ctx) const {
  if (!copies()) return;
  const Queue queue = ctx.queue();
  for_each_tensor(
      [&](const Tensor& own, const Tensor& here) { queue.copy_to_device(own.data(), here.data(), own.bytes()); });
  if (state_.low_precision.given()) ops::copy(ctx, state_.masters, state_.low_precision);
  queue.synchronize();
}

}  // namespace longstride
