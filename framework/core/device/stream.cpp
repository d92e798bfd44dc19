#include "framework/core/device/stream.h"

#include <cstring>

#include "framework/core/errors.h"

namespace longstride {

void Queue::copy_to_device(void* device, const void* host, std::size_t bytes) const {
  immediate() ? void(std::memcpy(device, host, bytes)) : driver::copy_to_device(device, host, bytes, stream_);
}

void Queue::copy_to_host(void* host, const void* device, std::size_t bytes) const {
  immediate() ? void(std::memcpy(host, device, bytes)) : driver::copy_to_host(host, device, bytes, stream_);
}

void Queue::zero(void* memory, std::size_t bytes) const {
  immediate() ? void(std::memset(memory, 0, bytes)) : driver::zero(memory, bytes, stream_);
}

void Queue::wait(const Event& event) const {
  if (event.handle_ != nullptr) driver::stream_waits(stream_, event.handle_.get());
}

void Queue::synchronize() const {
  if (!immediate()) driver::synchronize(stream_);
}

void Event::record(const Queue& queue) {
  recorded_ = std::chrono::steady_clock::now();
  if (queue.immediate()) return;
  if (handle_ == nullptr) handle_ = driver::make_event();
  driver::record(handle_.get(), queue.stream());
}

void Event::wait() const {
  if (handle_ != nullptr) driver::await(handle_.get());
}

double Event::milliseconds_since(const Event& begin) const {
  return handle_ != nullptr ? driver::milliseconds_between(begin.handle_.get(), handle_.get())
                            : std::chrono::duration<double, std::milli>(recorded_ - begin.recorded_).count();
}

void Graph::capture(const Queue& queue, const std::function<void()>& work) {
  LONGSTRIDE_CHECK(handle_ == nullptr && !queue.immediate(), "a graph is captured twice, or on the CPU");
  handle_ = driver::capture(queue.stream(), work);
}

}  // namespace longstride
