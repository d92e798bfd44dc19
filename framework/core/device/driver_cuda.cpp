#include <cuda_runtime.h>

#include "framework/core/device/device.h"
#include "framework/core/device/driver.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"
#include "kernels/base/cuda_launch.cuh"

namespace longstride {
namespace {

using kernels::cuda::check;

cudaStream_t stream_of(void* handle) { return static_cast<cudaStream_t>(handle); }
cudaEvent_t event_of(void* handle) { return static_cast<cudaEvent_t>(handle); }

}  // namespace

bool built_with_cuda() { return true; }

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // no driver or no GPU is a valid answer: clear the error, so that no later call reports it
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

namespace driver {

Handle allocate(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    const DeviceInfo info = device_info();
    throw user_error(
        "{:.2f} GiB of GPU memory are needed, but only {:.2f} of the {:.2f} GiB of the {} are free; lower "
        "train.micro_batch or set model.recompute: block (`longstride plan` says what takes the memory)",
        gib(bytes), gib(info.free_bytes), gib(info.total_bytes), info.name);
  }
  check(error, "cudaMalloc");
  return {data, [](void* memory) { cudaFree(memory); }};
}

Handle allocate_pinned(std::size_t bytes) {
  void* data = nullptr;
  check(cudaMallocHost(&data, bytes), "cudaMallocHost");
  return {data, [](void* memory) { cudaFreeHost(memory); }};
}

void copy_to_device(void* device, const void* host, std::size_t bytes, void* stream) {
  check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_of(stream)), "copy to the GPU");
}

void copy_to_host(void* host, const void* device, std::size_t bytes, void* stream) {
  check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_of(stream)), "copy from the GPU");
}

void zero(void* memory, std::size_t bytes, void* stream) {
  check(cudaMemsetAsync(memory, 0, bytes, stream_of(stream)), "cudaMemsetAsync");
}

Handle make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  return {stream, [](void* handle) {
            cudaStreamSynchronize(stream_of(handle));
            cudaStreamDestroy(stream_of(handle));
          }};
}

void synchronize(void* stream) { check(cudaStreamSynchronize(stream_of(stream)), "cudaStreamSynchronize"); }

Handle make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event), "cudaEventCreate");
  return {event, [](void* handle) { cudaEventDestroy(event_of(handle)); }};
}

void record(void* event, void* stream) {
  check(cudaEventRecord(event_of(event), stream_of(stream)), "cudaEventRecord");
}

void await(void* event) { check(cudaEventSynchronize(event_of(event)), "cudaEventSynchronize"); }

void stream_waits(void* stream, void* event) {
  check(cudaStreamWaitEvent(stream_of(stream), event_of(event), 0), "cudaStreamWaitEvent");
}

double milliseconds_between(void* begin, void* end) {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, event_of(begin), event_of(end)), "cudaEventElapsedTime");
  return milliseconds;
}

Handle capture(void* stream, const std::function<void()>& work) {
  cudaGraph_t graph = nullptr;
  check(cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(stream_of(stream), &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    throw;
  }
  check(cudaStreamEndCapture(stream_of(stream), &graph), "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check(error, "cudaGraphInstantiate");
  return {executable, [](void* handle) { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(handle)); }};
}

void replay(void* graph, void* stream) {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream_of(stream)), "cudaGraphLaunch");
}

}  // namespace driver

}  // namespace longstride
