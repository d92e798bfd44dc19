// Sends a step's number and batch to where kernels read them. For a GPU they pass through one of two host buffers, so
// the host is at most two steps ahead.
#pragma once
#include <array>
#include <cstdint>

#include "framework/train/step/training_state.h"

namespace longstride {

class Staging {
 public:
  // `input` is TrainingState's.
  Staging(Device device, const Tensor& input) : input_(input), buffers_{Buffer(device, input), Buffer(device, input)} {}
  static std::int64_t bytes_on_host(Device device, const Tensor& input) {
    return buffers * static_cast<std::int64_t>(HostSide::bytes_of(device, input.bytes()));
  }
  // Finishes reading the rows before it returns.
  void send(const Queue& queue, std::int64_t step, const std::uint8_t* rows, std::size_t bytes);

 private:
  static constexpr int buffers = 2;
  struct Buffer {
    Buffer(Device device, const Tensor& input) : host(device, input.bytes()) {}
    HostSide host;
    Event sent;
  };
  Tensor input_;
  std::array<Buffer, buffers> buffers_;
};

}  // namespace longstride
