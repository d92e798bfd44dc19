#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/remembered/remembered.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 128;

__global__ void __launch_bounds__(threads) remember_kernel(const float* now, float* next, int rows,
                                                           const RememberedRows remembered, const std::int32_t* begin) {
  const int r = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  if (r >= rows) return;
  const std::int32_t last = begin != nullptr ? begin[(r + 1) * remembered.added - 1] : 0;
  next[r] = static_cast<float>(remembered.after(static_cast<std::int64_t>(now[r]), last));
}

__global__ void __launch_bounds__(threads)
    first_key_kernel(const float* now, std::int32_t* first_key, int rows, std::int32_t length) {
  const int r = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  if (r < rows) first_key[r] = length - static_cast<std::int32_t>(now[r]);
}

__global__ void __launch_bounds__(threads)
    key_bounds_kernel(const float* now, const std::int32_t* begin, const std::int32_t* end, std::int64_t count, int n,
                      std::int32_t length, std::int32_t* key_begin, std::int32_t* key_end) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= count) return;
  const std::int32_t from = begin[i] == 0 && now != nullptr ? -static_cast<std::int32_t>(now[i / n]) : begin[i];
  key_begin[i] = length + from;
  key_end[i] = length + end[i];
}

}  // namespace

void remember(const RememberArgs& args, const Launch& launch) {
  const auto rows = static_cast<int>(args.now.count());
  run("remember", remember_kernel, {blocks_for(rows, threads), threads}, launch, args.now.as<const float>(),
      args.next.as<float>(), rows, RememberedRows{args.length, args.added, args.compressed, args.rate, args.block},
      args.begin.as<const std::int32_t>());
}

void first_key(const FirstKeyArgs& args, const Launch& launch) {
  const auto rows = static_cast<int>(args.now.count());
  run("first_key", first_key_kernel, {blocks_for(rows, threads), threads}, launch, args.now.as<const float>(),
      args.first_key.as<std::int32_t>(), rows, static_cast<std::int32_t>(args.length));
}

void key_bounds(const KeyBoundsArgs& args, const Launch& launch) {
  const std::int64_t count = args.begin.count();
  run("key_bounds", key_bounds_kernel, {blocks_for(count, threads), threads}, launch, args.now.as<const float>(),
      args.begin.as<const std::int32_t>(), args.end.as<const std::int32_t>(), count,
      static_cast<int>(args.begin.size(2)), static_cast<std::int32_t>(args.length), args.key_begin.as<std::int32_t>(),
      args.key_end.as<std::int32_t>());
}

}  // namespace longstride::kernels::cuda
