// An op is a folder and one declaration: a struct Args that holds its tensors, and LONGSTRIDE_OP(name, Args), which
// declares the kernels cpu::name and cuda::name. Args has
//   void check(Device) const        throws where the tensors do not fit together or the device does not compute in them
//   Cost cost() const               optional: without it the kernel meters itself
//   Tensor scratch_on(Device) const optional: shape and type of the member `scratch`, which the caller need not give
// What may be absent is initialised with {}, so that the compiler warns of all else that a call leaves out.
// framework/ops/run.h does all else that an op needs around its kernel.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/base/meter.h"
#include "kernels/base/tensor.h"

namespace longstride::kernels {

enum class Device : std::uint8_t { cpu, cuda };

// Where a kernel runs. On the CPU there is nothing to say: threads are OpenMP's.
struct Launch {
  void* stream = nullptr;     // cudaStream_t
  void* workspace = nullptr;  // device memory that a library call may use until the next one on this stream
  std::size_t workspace_bytes = 0;
  // A GPU run before the first, to choose algorithms by time: results do not matter, and every argument, inputs too,
  // may be overwritten. The host may wait.
  bool rehearsal = false;
  Meter* meter = nullptr;  // told of every range of work; for measuring
};

[[noreturn]] void cuda_is_absent();

}  // namespace longstride::kernels

#ifdef LONGSTRIDE_CUDA
#define LONGSTRIDE_CUDA_KERNEL(name, Args) void name(const Args& args, const Launch& launch);
#else
#define LONGSTRIDE_CUDA_KERNEL(name, Args) \
  inline void name(const Args&, const Launch&) { cuda_is_absent(); }
#endif

#define LONGSTRIDE_OP(name, Args)                                                \
  namespace cpu {                                                                \
  void name(const Args& args, const Launch& launch);                             \
  }                                                                              \
  namespace cuda {                                                               \
  LONGSTRIDE_CUDA_KERNEL(name, Args)                                             \
  }                                                                              \
  inline void launch_on(Device device, const Args& args, const Launch& launch) { \
    device == Device::cpu ? cpu::name(args, launch) : cuda::name(args, launch);  \
  }
