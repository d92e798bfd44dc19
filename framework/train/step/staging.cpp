#include "framework/train/step/staging.h"

#include <cstring>

namespace longstride {

void Staging::send(const Queue& queue, std::int64_t step, const std::uint8_t* rows, std::size_t bytes) {
  Buffer& buffer = buffers_[static_cast<std::size_t>(step % buffers)];
  buffer.sent.wait();
  std::byte* const number = buffer.host.of(input_);
  std::memcpy(number, &step, sizeof(step));
  std::memcpy(number + TrainingState::step_to_batch, rows, bytes);
  buffer.host.send(queue, input_);
  buffer.sent.record(queue);
}

}  // namespace longstride
