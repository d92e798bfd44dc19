#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/remembered/remembered.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 128;

// The rows that a step adds to a memory of `length` rows, and to both memories, of `all`, once that is full.
struct Added {
  float length, all, positions, compressed;
};

__global__ void __launch_bounds__(threads) remember_kernel(const float* now, float* next, int rows, const Added added) {
  const int r = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  if (r >= rows) return;
  const float before = now[r];
  next[r] = before < added.length ? fminf(before + added.positions, added.length)
                                  : fminf(before + added.compressed, added.all);
}

__global__ void __launch_bounds__(threads)
    first_key_kernel(const float* now, std::int32_t* first_key, int rows, std::int32_t length) {
  const int r = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  if (r < rows) first_key[r] = length - static_cast<std::int32_t>(now[r]);
}

}  // namespace

void remember(const RememberArgs& args, const Launch& launch) {
  const auto rows = static_cast<int>(args.now.count());
  const Added added{static_cast<float>(args.length), static_cast<float>(args.length + args.compressed),
                    static_cast<float>(args.added), static_cast<float>(args.added / args.rate)};
  run("remember", remember_kernel, {blocks_for(rows, threads), threads}, launch, args.now.as<const float>(),
      args.next.as<float>(), rows, added);
}

void first_key(const FirstKeyArgs& args, const Launch& launch) {
  const auto rows = static_cast<int>(args.now.count());
  run("first_key", first_key_kernel, {blocks_for(rows, threads), threads}, launch, args.now.as<const float>(),
      args.first_key.as<std::int32_t>(), rows, static_cast<std::int32_t>(args.length));
}

}  // namespace longstride::kernels::cuda
