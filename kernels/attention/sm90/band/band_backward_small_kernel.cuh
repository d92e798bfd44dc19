// Attention backward over a band, for heads of at most 32. The products, their order and their bits are those of
// band_backward_large_kernel.cuh; the division of work is another. A block has four warpgroups. Three walk
// (band_backward_small_walker.cuh): key tiles go to them in turn, each has its own dK and dV, and hands dS over to the
// fourth. The fourth serves (band_backward_small_server.cuh): it loads tiles, computes the statistics of query tiles,
// and computes dQ, one query tile after the other, in one chain of products over all key tiles that it sees. So dQ has
// no partial sums, and no walker waits for it.
//
// dS of a query tile q has a slot with room for its last three key tiles, one per walker. A walker that owns key tile
// k <= q - 3 also owns k + 3, which q sees too: dS of (q, k) is late, and goes to one of two rooms of the walker. A
// walker arrives at the slot's barrier once for every query tile, after its last pair or, where it has none, as soon as
// the slot is empty.
//
// Nothing deadlocks: what precedes a pair of query tile q in its walker's order are pairs of query tiles up to q + 1.
// These need tiles and statistics, which the server has `lead` tiles before dQ, and room that is free once dQ of q - 1
// is done. The server waits for dS of q, and for a query tile whose slot every walker passes before its dS of q.
#pragma once
#include "kernels/attention/sm90/band/band_backward_small_server.cuh"
#include "kernels/attention/sm90/band/band_backward_small_walker.cuh"

namespace longstride::kernels::cuda::sm90 {

template <class T>
__global__ void __launch_bounds__(BandBackwardSmallBlock<T>::block_threads, 1)
    backward_band_small(const __grid_constant__ BandBackwardSmallProblem problem) {
  using Block = BandBackwardSmallBlock<T>;
  extern __shared__ char memory[];
  const BandBackwardSmallTask task(problem);
  if (task.begin >= task.end) return;
  char* const shared = memory + bytes_to_tile(memory);
  const Block block(problem, task, shared);
  if (threadIdx.x == 0) block.init_barriers();
  __syncthreads();
  if (block.group == Block::walkers) {
    registers_give<Block::serving_registers>();
    BandBackwardServer<T>(block).serve();
  } else {
    registers_take<Block::walking_registers>();
    BandBackwardWalker<T>(block).walk();
  }
}

}  // namespace longstride::kernels::cuda::sm90
