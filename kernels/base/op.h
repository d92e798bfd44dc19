// An op is a folder and one declaration: a struct Args that holds its tensors, and LONGSTRIDE_OP(name, Args), which
// declares the kernels cpu::name and cuda::name. Args has
//   void check(Device) const        throws if the tensors do not fit together or are of types that the device lacks
//   Cost cost() const               optional: without it the kernel meters itself
//   Tensor scratch_on(Device) const optional: shape and type of the member `scratch`, which the caller may leave out
// Optional tensors are initialised with {}, so that the compiler warns about any other that a call leaves out.
// framework/ops/run.h does everything else that an op needs around its kernel.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/base/meter.h"
#include "kernels/base/tensor.h"

namespace longstride::kernels {

enum class Device : std::uint8_t { cpu, cuda };

// Where a kernel runs. Unused on the CPU, where threads are OpenMP's.
struct Launch {
  void* stream = nullptr;     // cudaStream_t
  void* workspace = nullptr;  // device memory that a library call may use until the next one on this stream
  std::size_t workspace_bytes = 0;
  // A trial run on a GPU that chooses algorithms by time: results do not matter, every argument including inputs may be
  // overwritten, and the host may wait.
  bool rehearsal = false;
  Meter* meter = nullptr;  // notified of every range of work; null: no measurement
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

// An op that has no kernel for GPUs; its check says so.
#define LONGSTRIDE_CPU_OP(name, Args)                \
  namespace cpu {                                    \
  void name(const Args& args, const Launch& launch); \
  }                                                  \
  inline void launch_on(Device, const Args& args, const Launch& launch) { cpu::name(args, launch); }
