// Ordered work on a device. On the CPU work is done when a call returns, so there is nothing to wait for.
#pragma once
#include <chrono>
#include <cstddef>
#include <functional>
#include <utility>

#include "framework/core/device/device.h"
#include "framework/core/device/driver.h"

namespace longstride {

class Event;

// Where work is put: a stream that another object owns.
class Queue {
 public:
  explicit Queue(Device device = Device::cpu, void* stream = nullptr) : device_(device), stream_(stream) {}
  Device device() const { return device_; }
  void* stream() const { return stream_; }                        // cudaStream_t
  bool immediate() const { return shares_host_memory(device_); }  // work is done when a call returns

  // Copies between device and host. Host memory that is not pinned may make the host wait.
  void copy_to_device(void* device, const void* host, std::size_t bytes) const;
  void copy_to_host(void* host, const void* device, std::size_t bytes) const;
  void zero(void* memory, std::size_t bytes) const;
  void wait(const Event& event) const;  // later work on this queue waits for the event; the host does not wait
  void synchronize() const;             // the host waits for all work on it

 private:
  Device device_;
  void* stream_;
};

// A queue that owns its stream. Its destructor waits for its work, so memory that the work uses must outlive it.
class Stream : public Queue {
 public:
  explicit Stream(Device device)
      : Stream(device, shares_host_memory(device) ? driver::no_handle() : driver::make_stream()) {}

 private:
  Stream(Device device, driver::Handle handle) : Queue(device, handle.get()), handle_(std::move(handle)) {}
  driver::Handle handle_;
};

// A point in a queue. One that was never recorded counts as passed.
class Event {
 public:
  void record(const Queue& queue);
  void wait() const;                                    // the host waits until it has passed
  double milliseconds_since(const Event& begin) const;  // both have passed

 private:
  friend class Queue;
  driver::Handle handle_ = driver::no_handle();     // made when it is first recorded on a GPU
  std::chrono::steady_clock::time_point recorded_;  // on the CPU
};

// The work that a function puts on a GPU's stream, captured so that one call repeats it.
class Graph {
 public:
  // Calls `work`, which must only put work on `queue`; none of that work is executed.
  void capture(const Queue& queue, const std::function<void()>& work);
  bool captured() const { return handle_ != nullptr; }
  void discard() { handle_.reset(); }  // does not wait for a replay in progress
  void replay(const Queue& queue) const { driver::replay(handle_.get(), queue.stream()); }

 private:
  driver::Handle handle_ = driver::no_handle();
};

}  // namespace longstride
