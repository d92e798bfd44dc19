// Which CUDA kernels compute an attention.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "kernels/attention/attention.h"
#include "kernels/attention/delta.h"
#include "kernels/attention/portable/portable.h"
#include "kernels/attention/sm90/attention_sm90.h"
#include "kernels/attention/sm90/band.h"
#include "kernels/base/cuda_launch.cuh"

namespace longstride::kernels::cuda {

namespace {

// Of the current device; looked up once for each.
bool is_hopper() {
  static constexpr int most_devices = 64;
  static const auto hopper = [] {
    std::array<bool, most_devices> found{};
    int count = 0;
    check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    for (int device = 0; device < std::min(count, most_devices); ++device) {
      int major = 0, minor = 0;
      check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
      check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
      found[static_cast<std::size_t>(device)] = major == 9 && minor == 0;
    }
    return found;
  }();
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  return device < most_devices && hopper[static_cast<std::size_t>(device)];
}

template <class Args>
bool takes_sm90(const Args& args) {
  if (args.path == AttentionPath::portable) return false;
  const bool can = is_hopper() && sm90::supports(args);
  if (args.path == AttentionPath::sm90 && !can)
    throw std::runtime_error("this GPU or this attention is not one that the sm90 kernels do");
  return can;
}

}  // namespace

std::size_t attention_workspace_bytes(const AttentionArgs&) { return 0; }

// delta.
std::size_t attention_workspace_bytes(const AttentionBackwardArgs& args) {
  constexpr std::size_t line = 256;
  const auto rows = static_cast<std::size_t>(args.q.size[0] * args.q.size[1] * args.q.size[2]);
  return (rows * sizeof(float) + line - 1) / line * line;
}

void attention(const AttentionArgs& args, const Launch& launch) {
  if (!takes_sm90(args)) return portable::attention(args, launch);
  sm90::is_band(args) ? sm90::attention_band(args, launch) : sm90::attention(args, launch);
}

void attention_backward(const AttentionBackwardArgs& args, const Launch& launch) {
  const bool hopper = takes_sm90(args);
  if (hopper && sm90::is_band(args)) return sm90::attention_backward_band(args, launch);
  auto* const delta = static_cast<float*>(args.workspace);
  attention_delta(args, delta, launch);
  attention_zero_unreached(args, launch);
  if (hopper) return sm90::attention_backward(args, delta, launch);
  portable::attention_backward(args, delta, launch);
}

}  // namespace longstride::kernels::cuda
