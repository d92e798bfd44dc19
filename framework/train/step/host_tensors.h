// All that a checkpoint holds in the host's memory, in whole flat buffers: the state's own tensors where the host and
// the device share them and no rank has a part only, otherwise copies.
#pragma once
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/train/checkpoint/checkpoint.h"
#include "framework/train/step/training_state.h"

namespace longstride {

class HostTensors {
 public:
  // Sharded: `owned` are the ranges of this rank's optimizer.
  HostTensors(const ParameterSet& parameters, const TrainingState& state, const std::vector<FlatRange>& owned,
              bool sharded);

  const TrainingTensors& tensors() const { return tensors_; }
  void zero();  // of copies
  // From the device; sharded, from all ranks, each of which calls it.
  void fetch(const Queue& queue, Communicator& comm);
  // To the device; the low-precision copy is made anew, as the masters rounded. Of the ranges that this rank owns.
  void send(Context& ctx) const;

 private:
  bool copies() const { return memory_.data() != nullptr; }
  template <class F>
  void for_each_tensor(F&& f) const;
  const TrainingState& state_;
  const std::vector<FlatRange> owned_;
  const bool sharded_;
  Block memory_;
  TrainingTensors tensors_;
};

}  // namespace longstride
