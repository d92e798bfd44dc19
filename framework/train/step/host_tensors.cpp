#include "framework/train/step/host_tensors.h"

#include <cstring>
#include <utility>

#include "framework/ops/basic.h"

namespace longstride {

HostTensors::HostTensors(const ParameterSet& parameters, const TrainingState& state,
                         const std::vector<FlatRange>& owned, bool sharded, const StateTensors& streams)
    : state_(state), owned_(owned), sharded_(sharded), tensors_{parameters,
                                                                state.masters,
                                                                state.optimizer.m,
                                                                state.optimizer.v,
                                                                state.optimizer.ema,
                                                                {},
                                                                state.optimizer.factors,
                                                                &state.factors,
                                                                streams} {
  if (shares_host_memory(state.sizes().device) && !sharded) return;
  const std::size_t flat = Arena::rounded(state.masters.bytes());
  const std::size_t factors = Arena::rounded(state.optimizer.factors.bytes());
  const Tensor remembered = streams.rows.all_now();
  memory_ = Block(Device::cpu, 4 * flat + factors + Arena::rounded(remembered.bytes()));
  std::byte* next = memory_.data();
  for (Tensor* t : {&tensors_.masters, &tensors_.m, &tensors_.v, &tensors_.ema}) {
    if (t->given()) *t = Tensor(next, t->dtype(), state.masters.shape());
    next += flat;
  }
  if (tensors_.factors.given()) tensors_.factors = Tensor(next, Dtype::f32, tensors_.factors.shape());
  next += factors;
  if (!remembered.given()) return;
  const Tensor copy(next, remembered.dtype(), remembered.shape());
  tensors_.streams.rows = streams.rows.at(copy, copy);
}

// Calls f(a tensor of the state, the same elements here), one range at a time.
template <class F>
void HostTensors::for_each_tensor(F&& f) const {
  f(state_.masters, tensors_.masters);
  if (tensors_.factors.given()) f(state_.optimizer.factors, tensors_.factors);
  const std::pair<Tensor, Tensor> both[] = {
      {state_.optimizer.m, tensors_.m}, {state_.optimizer.v, tensors_.v}, {state_.optimizer.ema, tensors_.ema}};
  for (const auto& [own, flat] : both) {
    std::int64_t at = 0;
    for (const FlatRange& range : owned_) {
      if (own.given() && range.count > 0) f(own.slice(0, at, at + range.count), range.of(flat));
      at += range.count;
    }
  }
  if (state_.states.given()) f(state_.states.all_now(), tensors_.streams.rows.all_now());
}

void HostTensors::zero() {
  if (copies()) std::memset(memory_.data(), 0, memory_.bytes());
}

void HostTensors::fetch(const Queue& queue, Communicator& comm) {
  if (!copies()) return;
  for_each_tensor(
      [&](const Tensor& own, const Tensor& here) { queue.copy_to_host(here.data(), own.data(), own.bytes()); });
  queue.synchronize();
  if (!sharded_) return;
  for (const Tensor& flat : {tensors_.m, tensors_.v, tensors_.ema})
    for (const FlatRange& bucket : tensors_.parameters.buckets())
      if (flat.given())
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
