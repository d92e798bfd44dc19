// Memory on a device, and the host's side of it.
#pragma once
#include <cstddef>
#include <utility>

#include "framework/core/device/stream.h"
#include "framework/core/tensor.h"

namespace longstride {

// One allocation, aligned for an arena and never touched before it is used. UserError when it does not fit.
class Block {
 public:
  Block() = default;  // no memory: while planning, tensors cut from it have null pointers
  // Memory that the device computes in.
  Block(Device device, std::size_t bytes);
  // Host memory for copies on the device's streams. For a GPU it is pinned, so the host need not wait for a copy.
  static Block host_side(Device device, std::size_t bytes);

  std::byte* data() const { return static_cast<std::byte*>(data_.get()); }
  std::size_t bytes() const { return bytes_; }

 private:
  Block(driver::Handle data, std::size_t bytes) : data_(std::move(data)), bytes_(bytes) {}
  static Block on_host(std::size_t bytes);

  driver::Handle data_ = driver::no_handle();
  std::size_t bytes_ = 0;
};

// Where the host writes what a device reads, and reads what the device wrote, one tensor at a time. It is the tensor
// itself where they share memory, otherwise pinned memory that send() and fetch() copy.
class HostSide {
 public:
  HostSide(Device device, std::size_t bytes)  // bytes: size of the largest tensor
      : pinned_(bytes_of(device, bytes) > 0 ? Block::host_side(device, bytes) : Block()) {}
  // Bytes that it allocates.
  static std::size_t bytes_of(Device device, std::size_t bytes) { return shares_host_memory(device) ? 0 : bytes; }

  std::byte* of(const Tensor& t) const { return pinned_.bytes() > 0 ? pinned_.data() : t.as<std::byte>(); }
  void send(const Queue& queue, const Tensor& t) const {
    if (pinned_.bytes() > 0) queue.copy_to_device(t.data(), pinned_.data(), t.bytes());
  }
  // Where `t` is on the host once the queue has reached this point.
  const std::byte* fetch(const Queue& queue, const Tensor& t) const {
    if (pinned_.bytes() > 0) queue.copy_to_host(pinned_.data(), t.data(), t.bytes());
    return of(t);
  }

 private:
  Block pinned_;
};

}  // namespace longstride
