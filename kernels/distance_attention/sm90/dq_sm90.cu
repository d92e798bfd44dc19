// dq and what it adds to the gradients of the biases, on Hopper. A warpgroup has 64 queries and visits their key tiles
// in turn. Gradients of scores go from their accumulator to left operands in registers: as they are for the product
// with the keys, and skewed for the one with the table. A piece of the table belongs to the pairs of two neighbouring
// key tiles, whose gradients are collected first, so there is one such product per step.
#include "kernels/distance_attention/sm90/gradients.cuh"
#include "kernels/distance_attention/sm90/launch.cuh"

namespace longstride::kernels::cuda::distance::hopper {
namespace {

constexpr int step_slots = 4, piece_slots = 6, tiles_of_queries = 3 * warpgroups, query_slots = 2;
constexpr int steps_at = query_slots * tiles_of_queries * tile_bytes,
              pieces_at = steps_at + step_slots * 2 * tile_bytes, control_at = pieces_at + piece_slots * tile_bytes;

struct Control {
  RingBarriers<query_slots> queries;
  RingBarriers<step_slots> steps;
  RingBarriers<piece_slots> pieces;
  float sums[warpgroups][warpgroup_warps][2 * tile_rows];
};
constexpr std::size_t shared_bytes = control_at + sizeof(Control) + tile_alignment;

__device__ void produce(const Problem& problem, char* shared, Control& control) {
  Filling<query_slots> queries{control.queries};
  Filling<step_slots> steps{control.steps};
  Filling<piece_slots> pieces{control.pieces};
  const std::int32_t groups = groups_of(problem.call, problem.call.query_tiles);
  for (auto index = static_cast<std::int32_t>(blockIdx.x); index < groups; index += gridDim.x) {
    const Group group = query_group(problem.call, index);
    if (group.steps() == 0) continue;
    const Loader load{problem, group.p.head.sequence, group.p.head.head};
    std::uint64_t* const full = queries.begin(tiles_of_queries * tile_bytes);
    for (int w = 0; w < warpgroups; ++w) {
      const std::int32_t row = (group.first + w) * tile_rows;
      char* const to = shared + (queries.slot.index * tiles_of_queries + 3 * w) * tile_bytes;
      load.tile(to, problem.content, row, full);
      load.tile(to + tile_bytes, problem.position, row, full);
      load.tile(to + 2 * tile_bytes, problem.dout, row, full);
    }
    queries.advance();
    const std::int32_t farthest = group.first + warpgroups - group.all.begin;
    in_order(
        group.steps(),
        [&](std::int32_t i) {
          std::uint64_t* const barrier = pieces.begin(tile_bytes);
          load.piece(shared + pieces_at + pieces.slot.index * tile_bytes, group.p.head.origin, farthest - i, barrier);
          pieces.advance();
        },
        [&](std::int32_t k) {
          std::uint64_t* const barrier = steps.begin(2 * tile_bytes);
          char* const to = shared + steps_at + steps.slot.index * 2 * tile_bytes;
          load.tile(to, problem.k, (group.all.begin + k) * tile_rows, barrier);
          load.tile(to + tile_bytes, problem.v, (group.all.begin + k) * tile_rows, barrier);
          steps.advance();
        });
  }
}

template <class T>
class Consumer {
 public:
  __device__ Consumer(const Problem& problem, char* shared, Control& control)
      : call_(problem.call),
        control_(control),
        queries_{control.queries},
        reader_{{control.steps}, {control.pieces}},
        own_(uniform(this_warpgroup())),
        warp_(warp_of_group()),
        content_(descriptor<row_bytes>(shared + 3 * own_ * tile_bytes)),
        position_(descriptor<row_bytes>(shared + (3 * own_ + 1) * tile_bytes)),
        dout_(descriptor<row_bytes>(shared + (3 * own_ + 2) * tile_bytes)),
        keys_(descriptor<row_bytes>(shared + steps_at)),
        values_(descriptor<row_bytes>(shared + steps_at + tile_bytes)),
        table_(descriptor<row_bytes>(shared + pieces_at)) {}

  __device__ void run() {
    const std::int32_t groups = groups_of(call_, call_.query_tiles);
    for (auto index = static_cast<std::int32_t>(blockIdx.x); index < groups; index += gridDim.x) {
      const Group group = query_group(call_, index);
      clear(by_content_);
      clear(by_position_);
      if (group.steps() > 0) visit(group);
      if (group.first + own_ < call_.query_tiles) store(group);
    }
  }

 private:
  __device__ void visit(const Group& group) {
    const Statistics statistics(call_, group.p, group.first + own_);
    const int taken = queries_.take();
    queries_at_ = taken * tiles_of_queries * tile_bytes;
    reader_.reset();
    const TileRange own = group.own_of(own_);
    const std::int32_t begin = uniform(own.begin), end = uniform(own.end);
    if (begin < end) {
      const std::int32_t before = begin - group.all.begin;
      reader_.skip(before, warpgroups - own_ - 1 + before);
      first_products();
      for (std::int32_t s = begin; s + 1 < end; ++s) step<true>(group, s, statistics);
      step<false>(group, end - 1, statistics);
    }
    queries_.release(taken);
    reader_.skip(group.steps(), warpgroups + group.steps());
  }

  __device__ void first_products() {
    far_piece_ = reader_.take_piece();
    near_piece_ = reader_.take_piece();
    wgmma_fence();
    multiply<T>(far_, advanced(position_, queries_at_), advanced(table_, far_piece_ * tile_bytes), false);
    multiply<T>(near_, advanced(position_, queries_at_), advanced(table_, near_piece_ * tile_bytes), false);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(far_);
    wgmma_hold(near_);
#pragma unroll
    for (auto& k : skewed_)
#pragma unroll
      for (std::uint32_t& word : k) word = 0;
    move_on();
  }
  __device__ void move_on() {
    skew_.gather(s_, near_, far_, warp_);
#pragma unroll
    for (int i = 0; i < 32; ++i) far_[i] = near_[i] * call_.keep_scale;  // 1: see the forward kernel
  }

  template <bool More>
  __device__ void step(const Group& group, std::int32_t s, const Statistics& statistics) {
    const int slot = reader_.take_step();
    wgmma_fence();
    multiply<T>(s_, advanced(content_, queries_at_), advanced(keys_, slot * 2 * tile_bytes), true);
    wgmma_commit();
    multiply<T>(dp_, advanced(dout_, queries_at_), advanced(values_, slot * 2 * tile_bytes), false);
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_hold(s_);
    const TilePairs pairs(group.p, group.first + own_, s);
    to_probabilities(s_, call_.scale * log2_e, group.p, pairs, statistics);
    wgmma_wait<0>();
    wgmma_hold(dp_);
    to_gradients(dp_, s_, statistics);
    Operand ds, near_skewed;
    pack_all<T>(ds, dp_);
    skew_.scatter<T>(dp_, near_skewed, skewed_, warp_);
    int piece = 0;
    wgmma_fence();
    if constexpr (More) {
      piece = reader_.take_piece();
      multiply<T>(near_, advanced(position_, queries_at_), advanced(table_, piece * tile_bytes), false);
      wgmma_commit();
    }
    multiply_rows<T>(by_content_, ds, advanced(keys_, slot * 2 * tile_bytes));
    multiply_rows<T>(by_position_, skewed_, advanced(table_, far_piece_ * tile_bytes));
    if constexpr (!More) multiply_rows<T>(by_position_, near_skewed, advanced(table_, near_piece_ * tile_bytes));
    wgmma_commit();
    if constexpr (More) {  // the next scores begin during the products of gradients
      wgmma_wait<1>();
      wgmma_hold(near_);
      move_on();
    }
    wgmma_wait<0>();
    wgmma_hold(by_content_);
    wgmma_hold(by_position_);
    reader_.steps.release(slot);
    reader_.pieces.release(far_piece_);
    if constexpr (More) {
#pragma unroll
      for (int k = 0; k < 4; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i) skewed_[k][i] = near_skewed[k][i];
      far_piece_ = near_piece_;
      near_piece_ = piece;
    } else {
      reader_.pieces.release(near_piece_);
    }
  }

  // The sums over a warp's rows of an accumulator.
  __device__ void sum_rows(const Accumulator& d, float* to) const {
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float sum = d[element_at(j, 0, e)] + d[element_at(j, 1, e)];
#pragma unroll
        for (int offset = 4; offset < warp_threads; offset *= 2) sum += __shfl_xor_sync(~0u, sum, offset);
        if (this_lane() < 4) to[8 * j + lane_column() + e] = sum;
      }
  }

  __device__ void store(const Group& group) {
    auto& sums = control_.sums[own_];
    sum_rows(by_content_, sums[warp_]);
    sum_rows(by_position_, sums[warp_] + tile_rows);
    named_barrier_sync(1 + own_, warpgroup_threads);
    const std::int64_t unit = static_cast<std::int64_t>(group.p.head.sequence) * call_.heads + group.p.head.head;
    float* const to = call_.bias_sums + (unit * call_.query_tiles + group.first + own_) * (2 * call_.size + 1);
    const int x = this_thread() % warpgroup_threads, column = x % tile_rows;
    if (column < call_.size)
      to[x / tile_rows * call_.size + column] = call_.scale * (sums[0][x] + sums[1][x] + sums[2][x] + sums[3][x]);
    if (x == 0) to[2 * call_.size] = 0;  // of the span
    named_barrier_sync(1 + own_, warpgroup_threads);
#pragma unroll
    for (int i = 0; i < 32; ++i) by_content_[i] += by_position_[i];
    const std::int32_t begin = (group.first + own_) * tile_rows + lane_row();
    store_rows<T>(by_content_, {call_.scale, call_.scale}, call_.size, [&](int h) -> T* {
      return begin + 8 * h < call_.n_q ? row_of<T>(call_.dq, group.p.head, begin + 8 * h) : nullptr;
    });
  }

  const Call& call_;
  Control& control_;
  Emptying<query_slots> queries_;
  Reader<step_slots, piece_slots> reader_;
  const int own_, warp_;
  const std::uint64_t content_, position_, dout_, keys_, values_, table_;  // own tiles and the rings' first ones
  int queries_at_ = 0;                  // bytes from slot 0 to that of the own queries
  int far_piece_ = 0, near_piece_ = 0;  // slots of the two pieces of this step
  const Skew skew_ = {};
  Operand skewed_;  // gradients of the far piece, those of this step's key tile excepted
  Accumulator by_content_, by_position_, s_, dp_, near_, far_;
};

template <class T>
__global__ void __launch_bounds__(threads, 1) dq_kernel(const __grid_constant__ Problem problem) {
  extern __shared__ char memory[];
  char* const shared = memory + bytes_to_tile(memory);
  auto& control = *reinterpret_cast<Control*>(shared + control_at);
  if (threadIdx.x == 0) {
    control.queries.init();
    control.steps.init();
    control.pieces.init();
    barrier_init_fence();
    proxy_fence();
  }
  __syncthreads();
  if (threadIdx.x >= producer) {
    registers_give<producer_registers>();
    if (threadIdx.x == producer) produce(problem, shared, control);
  } else {
    registers_take<consumer_registers>();
    Consumer<T>(problem, shared, control).run();
  }
}

}  // namespace

template <class T>
void dq(const Call& call, const Launch& launch) {
  run_groups<T>("distance attention dq", dq_kernel<T>, shared_bytes, call, call.query_tiles, launch);
}
template void dq<__nv_bfloat16>(const Call&, const Launch&);
template void dq<__half>(const Call&, const Launch&);

}  // namespace longstride::kernels::cuda::distance::hopper
