#include "kernels/base/cuda_launch.cuh"
#include "kernels/block_lists/block_lists.h"
#include "kernels/gpu/lane.cuh"

namespace longstride::kernels::cuda {
namespace {

constexpr int warps = static_cast<int>(BlockListsArgs::shares), threads = warps * warp_threads;

struct Call {
  const int *key_begin, *keys;
  int *query_begin, *queries, *counts;
  int query_blocks, key_blocks;
  std::int64_t entries;
};

// The sum of x over the threads before this one; `all`: over all.
__device__ int sum_before(int x, int& all) {
  __shared__ int of_warp[warps];
  const int lane = static_cast<int>(threadIdx.x) % warp_threads, warp = static_cast<int>(threadIdx.x) / warp_threads;
  int sum = x;
  for (int step = 1; step < warp_threads; step *= 2) {
    const int other = __shfl_sync(0xFFFFFFFFu, sum, max(lane - step, 0));
    if (lane >= step) sum += other;
  }
  if (lane == warp_threads - 1) of_warp[warp] = sum;
  __syncthreads();
  int before = sum - x;
  all = 0;
  for (int w = 0; w < warps; ++w) {
    if (w < warp) before += of_warp[w];
    all += of_warp[w];
  }
  __syncthreads();
  return before;
}

// A block per head. Each warp has consecutive query blocks, one after the other: those of a list are different, so no
// two lanes count the same key block, and entries keep their order.
__global__ void __launch_bounds__(threads) block_lists_kernel(Call call) {
  const int lane = static_cast<int>(threadIdx.x) % warp_threads, warp = static_cast<int>(threadIdx.x) / warp_threads;
  const std::int64_t head = blockIdx.x;
  const int* const begin = call.key_begin + head * (call.query_blocks + 1);
  const int* const keys = call.keys + head * call.entries;
  int* const query_begin = call.query_begin + head * (call.key_blocks + 1);
  int* const queries = call.queries + head * call.entries;
  int* const counts = call.counts + head * warps * call.key_blocks;
  int* const own = counts + static_cast<std::int64_t>(warp) * call.key_blocks;
  const int share = (call.query_blocks + warps - 1) / warps;
  const int first = min(warp * share, call.query_blocks), last = min(first + share, call.query_blocks);
  const auto each = [&](auto&& f) {
    for (int b = first; b < last; ++b) {
      for (int at = begin[b] + lane; at < begin[b + 1]; at += warp_threads) f(b, keys[at]);
      __syncwarp();
    }
  };
  for (int key = lane; key < call.key_blocks; key += warp_threads) own[key] = 0;
  __syncwarp();
  each([&](int, int key) { ++own[key]; });
  __syncthreads();
  int before = 0;
  for (int block = 0; block < call.key_blocks; block += threads) {  // counts become places
    const int key = block + static_cast<int>(threadIdx.x);
    int count = 0, all = 0;
    for (int w = 0; key < call.key_blocks && w < warps; ++w) count += counts[w * call.key_blocks + key];
    int at = before + sum_before(count, all);
    before += all;
    if (key >= call.key_blocks) continue;
    query_begin[key] = at;
    for (int w = 0; w < warps; ++w) {
      int& place = counts[w * call.key_blocks + key];
      const int here = place;
      place = at;
      at += here;
    }
  }
  if (threadIdx.x == 0) query_begin[call.key_blocks] = before;
  __syncthreads();
  each([&](int b, int key) { queries[own[key]++] = b; });
}

}  // namespace

void block_lists(const BlockListsArgs& args, const Launch& launch) {
  const BlockLists& lists = args.lists;
  run("block_lists", block_lists_kernel, {static_cast<unsigned>(args.heads()), threads}, launch,
      Call{lists.key_begin.as<const int>(), lists.keys.as<const int>(), lists.query_begin.as<int>(),
           lists.queries.as<int>(), args.scratch.as<int>(), static_cast<int>(args.query_blocks()),
           static_cast<int>(args.key_blocks()), lists.keys.size(2)});
}

}  // namespace longstride::kernels::cuda
