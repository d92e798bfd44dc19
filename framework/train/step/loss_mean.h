// The mean loss of the steps since it was last asked for. On a GPU each step's sum is copied to the host behind the
// step, so the host does not wait for it.
#pragma once
#include <array>
#include <cstdint>
#include <cstring>

#include "framework/core/device/memory.h"

namespace longstride {

class LossMean {
 public:
  // `nats` is TrainingState's.
  LossMean(Device device, const Tensor& nats)
      : nats_(nats),
        copies_{HostSide(device, nats.bytes()), HostSide(device, nats.bytes()), HostSide(device, nats.bytes()),
                HostSide(device, nats.bytes())} {}

  // Call when a step is on the queue.
  void add(const Queue& queue) {
    if (steps_ - added_ == static_cast<std::int64_t>(copies_.size())) add_oldest();
    copy_of(steps_++).fetch(queue, nats_);
    if (queue.immediate()) add_oldest();
  }

  // Per step, in nats summed over the global batch. Waits for the steps and begins anew; 0 if there was none.
  double take(const Queue& queue) {
    queue.synchronize();
    while (added_ < steps_) add_oldest();
    const double mean = steps_ > 0 ? sum_ / static_cast<double>(steps_) : 0;
    sum_ = 0;
    steps_ = added_ = 0;
    return mean;
  }

 private:
  // Staging keeps the host at most two steps ahead of the copies to the device, so the oldest of four has arrived.
  static constexpr std::size_t copies = 4;
  const HostSide& copy_of(std::int64_t step) const { return copies_[static_cast<std::size_t>(step) % copies]; }
  void add_oldest() {
    double nats = 0;
    std::memcpy(&nats, copy_of(added_++).of(nats_), sizeof(nats));
    sum_ += nats;
  }

  Tensor nats_;
  std::array<HostSide, copies> copies_;
  double sum_ = 0;
  std::int64_t steps_ = 0, added_ = 0;  // since take(): on the queue; in the sum
};

}  // namespace longstride
