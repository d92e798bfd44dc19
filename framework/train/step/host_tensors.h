// A checkpoint's content in host memory, as whole flat buffers: the state's own tensors if host and device share memory
// and every rank holds all of them, otherwise copies.
#pragma once
#include "framework/comm/communicator.h"
#include "framework/train/checkpoint/saved_tensors.h"
#include "framework/train/step/training_state.h"

namespace longstride {

class HostTensors {
 public:
  HostTensors(const TrainingState& state, const TrainingTensors& own);

  const TrainingTensors& tensors() const { return tensors_; }
  void zero();  // copies only
  // Copies from the device and, if sharded, from all ranks; then every rank calls it.
  void fetch(const Queue& queue, Communicator& comm);
  // Copies the ranges that this rank owns to the device, and rounds the masters to the low-precision copy
  // again.
  void send(Context& ctx) const;

 private:
  bool copies() const { return memory_.data() != nullptr; }
  template <class F>
  void for_each_tensor(F&& f) const;
  const TrainingState& state_;
  const TrainingTensors own_;
  Block memory_;
  TrainingTensors tensors_;
};

}  // namespace longstride
