#include <cuda_runtime.h>

#include "framework/core/device/device.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"
#include "kernels/base/cuda_launch.cuh"

namespace longstride {
namespace {

using kernels::cuda::check;

cudaStream_t of(const Stream& stream) { return static_cast<cudaStream_t>(stream.handle()); }

}  // namespace

bool built_with_cuda() { return true; }

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // no driver, or no GPU: an answer, not a failure to be found by a later call
  return 0;
}

DeviceInfo device_info() {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, used_device()), "cudaGetDeviceProperties");
  DeviceInfo info{properties.name, properties.major, properties.minor, 0, 0};
  check(cudaMemGetInfo(&info.free_bytes, &info.total_bytes), "cudaMemGetInfo");
  return info;
}

void use_device(int number) { check(cudaSetDevice(number), "cudaSetDevice"); }

int used_device() {
  int number = 0;
  check(cudaGetDevice(&number), "cudaGetDevice");
  return number;
}

std::string device_identity() {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, used_device()), "cudaGetDeviceProperties");
  std::string text;
  for (const char byte : properties.uuid.bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

// NVLink carries atomic operations, PCIe does not.
std::string device_links(int count) {
  if (count < 2 || count > device_count()) return "not visible from one process";
  bool peers = true, atomics = true;
  for (int a = 0; a < count; ++a)
    for (int b = 0; b < count; ++b) {
      if (a == b) continue;
      int access = 0, native = 0;
      check(cudaDeviceGetP2PAttribute(&access, cudaDevP2PAttrAccessSupported, a, b), "cudaDeviceGetP2PAttribute");
      check(cudaDeviceGetP2PAttribute(&native, cudaDevP2PAttrNativeAtomicSupported, a, b), "cudaDeviceGetP2PAttribute");
      peers = peers && access != 0;
      atomics = atomics && native != 0;
    }
  return !peers ? "the host's memory" : atomics ? "NVLink" : "PCIe";
}

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    const DeviceInfo info = device_info();
    throw user_error(
        "{:.2f} GiB of GPU memory are needed, and {:.2f} of the {:.2f} GiB of the {} are free; lower "
        "train.micro_batch or set model.recompute: block (`longstride plan` says what takes the memory)",
        gib(bytes), gib(info.free_bytes), gib(info.total_bytes), info.name);
  }
  check(error, "cudaMalloc");
  data_ = static_cast<std::byte*>(data);
}

DeviceMemory::~DeviceMemory() { cudaFree(data_); }

PinnedMemory::PinnedMemory(std::size_t bytes) : bytes_(bytes) {
  void* data = nullptr;
  check(cudaMallocHost(&data, bytes), "cudaMallocHost");
  data_ = static_cast<std::byte*>(data);
}

PinnedMemory::~PinnedMemory() { cudaFreeHost(data_); }

Stream::Stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  handle_ = stream;
}

Stream::~Stream() {
  cudaStreamSynchronize(of(*this));  // memory that its work uses may be freed next
  cudaStreamDestroy(of(*this));
}

void Stream::wait(const Event& event) const {
  check(cudaStreamWaitEvent(of(*this), static_cast<cudaEvent_t>(event.handle()), 0), "cudaStreamWaitEvent");
}

Event::Event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event), "cudaEventCreate");
  handle_ = event;
}

Event::~Event() { cudaEventDestroy(static_cast<cudaEvent_t>(handle_)); }

void Event::record(void* stream) {
  check(cudaEventRecord(static_cast<cudaEvent_t>(handle_), static_cast<cudaStream_t>(stream)), "cudaEventRecord");
}

void Event::wait() const { check(cudaEventSynchronize(static_cast<cudaEvent_t>(handle_)), "cudaEventSynchronize"); }

double Event::milliseconds_since(const Event& begin) const {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(begin.handle_), static_cast<cudaEvent_t>(handle_)),
        "cudaEventElapsedTime");
  return milliseconds;
}

Graph::~Graph() { discard(); }

void Graph::discard() {
  if (handle_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(handle_));
  handle_ = nullptr;
}

void Graph::capture(void* handle, const std::function<void()>& work) {
  LONGSTRIDE_CHECK(handle_ == nullptr, "a graph is captured twice");
  const auto stream = static_cast<cudaStream_t>(handle);
  cudaGraph_t graph = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    throw;
  }
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check(error, "cudaGraphInstantiate");
  handle_ = executable;
}

void Graph::replay(void* stream) const {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(handle_), static_cast<cudaStream_t>(stream)), "cudaGraphLaunch");
}

void copy_to_device(void* device, const void* host, std::size_t bytes, void* stream) {
  check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, static_cast<cudaStream_t>(stream)),
        "copy to the GPU");
}

void copy_to_host(void* host, const void* device, std::size_t bytes, void* stream) {
  check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, static_cast<cudaStream_t>(stream)),
        "copy from the GPU");
}

void zero_on_device(void* device, std::size_t bytes, void* stream) {
  check(cudaMemsetAsync(device, 0, bytes, static_cast<cudaStream_t>(stream)), "cudaMemsetAsync");
}

void synchronize(void* stream) {
  check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "cudaStreamSynchronize");
}

}  // namespace longstride
