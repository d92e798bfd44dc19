// The GPU as the framework sees it: which one there is, memory on it, a stream, events, and a step captured as a graph.
// Everything gives back what it holds. Where there is no CUDA, device_count() is 0 and nothing else may be called.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace longstride {

enum class Device : std::uint8_t { cpu, cuda };

// Whether this program was built with CUDA at all. It may still find no GPU.
bool built_with_cuda();
// GPUs that this process may use; 0 where there is no CUDA, no driver or no GPU. Never throws.
int device_count();

struct DeviceInfo {
  std::string name;  // "NVIDIA H200"
  int major = 0, minor = 0;
  std::size_t total_bytes = 0, free_bytes = 0;
};
DeviceInfo device_info();  // of the GPU that this thread uses: the first, until it is told another

// Which GPU this thread uses from now on. A thread that puts work on a GPU is told so itself.
void use_device(int number);
int used_device();
std::string device_identity();        // of the GPU that this thread uses: no other has it, on any host
std::string device_links(int count);  // how the first so many GPUs reach each other, in words

// One allocation. UserError when it does not fit, which says what is free and what to change.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

// Memory of the host that the GPU reads and writes by itself, while the host does something else.
class PinnedMemory {
 public:
  explicit PinnedMemory(std::size_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

// Work in order.
class Event;
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void* handle() const { return handle_; }
  void wait(const Event& event) const;  // what is put on it from now on comes after the event; the host does not wait

 private:
  void* handle_ = nullptr;
};

// A point in a stream. One that was never recorded counts as passed.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(const Stream& stream) { record(stream.handle()); }
  void record(void* stream);
  void wait() const;                                    // the host waits until it has passed
  double milliseconds_since(const Event& begin) const;  // both have passed
  void* handle() const { return handle_; }

 private:
  void* handle_ = nullptr;
};

// What a function puts on a stream, to be put there again in one call.
class Graph {
 public:
  Graph() = default;
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  // Calls `work`, which must only put work on `stream`; nothing of it is executed.
  void capture(const Stream& stream, const std::function<void()>& work) { capture(stream.handle(), work); }
  void capture(void* stream, const std::function<void()>& work);
  bool captured() const { return handle_ != nullptr; }
  void discard();  // does not wait for what is being replayed
  void replay(const Stream& stream) const { replay(stream.handle()); }
  void replay(void* stream) const;

 private:
  void* handle_ = nullptr;
};

// On a stream given by its handle, in its order. Host memory that is not pinned may make the host wait.
void copy_to_device(void* device, const void* host, std::size_t bytes, void* stream);
void copy_to_host(void* host, const void* device, std::size_t bytes, void* stream);
void zero_on_device(void* device, std::size_t bytes, void* stream);
void synchronize(void* stream);  // the host waits for all work on it

}  // namespace longstride
