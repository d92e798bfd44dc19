// dk and dv on Hopper. A warpgroup has 64 keys, which both accumulate in registers, and visits the query tiles that see
// them; the two warpgroups share the queries. Scores have rows of queries, as everywhere, so that the skew stays in
// registers; P and dS pass through shared memory, from which they are read transposed. No two steps share products with
// the table, so there are two per step. `Table`: whether there is one.
#include "kernels/distance_attention/sm90/gradients.cuh"
#include "kernels/distance_attention/sm90/launch.cuh"

namespace longstride::kernels::cuda::distance::hopper {
namespace {

constexpr int step_slots = 3, piece_slots = 5, tiles_of_keys_of_block = 2 * warpgroups;
constexpr int weights_at = tiles_of_keys_of_block * tile_bytes, weights_bytes = 2 * tile_bytes,
              steps_at = weights_at + 2 * warpgroups * weights_bytes,
              pieces_at = steps_at + step_slots * 3 * tile_bytes, control_at = pieces_at + piece_slots * tile_bytes;

struct Control {
  RingBarriers<1> keys;
  Group group;
  RingBarriers<step_slots> steps;
  RingBarriers<piece_slots> pieces;
};
constexpr std::size_t shared_bytes = control_at + sizeof(Control) + tile_alignment;

template <bool Table>
__device__ void produce(const Problem& problem, char* shared, Control& control) {
  Filling<1> keys{control.keys};
  Filling<step_slots> steps{control.steps};
  Filling<piece_slots> pieces{control.pieces};
  const std::int32_t groups = groups_of(problem, tiles_of_keys(problem));
  for (auto index = static_cast<std::int32_t>(blockIdx.x); index < groups; index += gridDim.x) {
    const Group group = key_group(problem, index);
    keys.wait();
    control.group = group;
    std::uint64_t* const full = keys.announce(group.steps() > 0 ? tiles_of_keys_of_block * tile_bytes : 0);
    keys.advance();
    if (group.steps() == 0) continue;
    const Loader load(problem, group.p);
    for (int w = 0; w < warpgroups; ++w) {
      load.tile(shared + 2 * w * tile_bytes, problem.k, (group.first + w) * tile_rows, full);
      load.tile(shared + (2 * w + 1) * tile_bytes, problem.v, (group.first + w) * tile_rows, full);
    }
    const std::int32_t nearest = group.all.begin - group.first - (warpgroups - 1);
    in_order<Table>(
        group.steps(),
        [&](std::int32_t i) {
          std::uint64_t* const barrier = pieces.begin(tile_bytes);
          load.piece(shared + pieces_at + pieces.slot.index * tile_bytes, group.p.head.origin, nearest + i, barrier);
          pieces.advance();
        },
        [&](std::int32_t k) {
          std::uint64_t* const barrier = steps.begin((Table ? 3 : 2) * tile_bytes);
          char* const to = shared + steps_at + steps.slot.index * 3 * tile_bytes;
          const std::int32_t row = (group.all.begin + k) * tile_rows;
          load.tile(to, problem.content, row, barrier);
          if constexpr (Table) load.tile(to + tile_bytes, problem.position, row, barrier);
          load.tile(to + 2 * tile_bytes, problem.dout, row, barrier);
          steps.advance();
        });
  }
}

template <class T, bool Table, bool Span>
class Consumer {
 public:
  __device__ Consumer(const Problem& problem, char* shared, Control& control)
      : problem_(problem),
        call_(problem.call),
        control_(control),
        keys_{control.keys},
        reader_{{control.steps}, {control.pieces}},
        own_(uniform(this_warpgroup())),
        warp_(warp_of_group()),
        steps_(shared + steps_at),
        weights_(shared + weights_at + 2 * own_ * weights_bytes),
        k_(descriptor<row_bytes>(shared + 2 * own_ * tile_bytes)),
        v_(descriptor<row_bytes>(shared + (2 * own_ + 1) * tile_bytes)),
        table_(descriptor<row_bytes>(shared + pieces_at)) {}

  __device__ void run() {
    const std::int32_t groups = groups_of(problem_, tiles_of_keys(problem_));
    for (auto index = static_cast<std::int32_t>(blockIdx.x); index < groups; index += gridDim.x) {
      const int taken = keys_.take();
      const Group group = control_.group;
      clear(dk_);
      clear(dv_);
      if (group.steps() > 0)
        visit(group, taken);
      else
        keys_.release(taken);
      store(group);
    }
  }

 private:
  __device__ void visit(const Group& group, int taken) {
    reader_.reset();
    const TileRange own = group.own_of(own_);
    const std::int32_t begin = uniform(own.begin), end = uniform(own.end);
    if (begin < end) {
      const std::int32_t before = begin - group.all.begin;
      reader_.template skip<Table>(before, warpgroups - own_ - 1 + before);
      if constexpr (Table) {
        steps_with_table(group, begin, end);
      } else {
        begin_products();
        take_probabilities(group, begin);
        for (std::int32_t t = begin; t + 1 < end; ++t) step<true>(group, t);
        step<false>(group, end - 1);
      }
    }
    keys_.release(taken);
    reader_.template skip<Table>(group.steps(), warpgroups + group.steps());
  }

  __device__ std::uint64_t queries(int tile) const {
    return descriptor<row_bytes>(steps_ + (slot_ * 3 + tile) * tile_bytes);
  }

  // ---- With a table ----

  __device__ void steps_with_table(const Group& group, std::int32_t begin, std::int32_t end) {
    near_piece_ = reader_.take_piece();
    begin_scores();
    wait_for_scores<0>();
    Statistics statistics(call_, group.p, begin);
    held_ = -1;
    for (std::int32_t t = begin; t + 1 < end; ++t) step_with_table<true>(group, t, statistics);
    step_with_table<false>(group, end - 1, statistics);
    wgmma_wait<0>();
    wgmma_hold(dv_);
    wgmma_hold(dk_);
    reader_.steps.release(held_);
  }
  // Takes the next queries, and begins their products with the keys and with two pieces of the table.
  __device__ void begin_scores() {
    slot_ = reader_.take_step();
    far_piece_ = reader_.take_piece();
    wgmma_fence();
    multiply<T>(near_, queries(1), advanced(table_, near_piece_ * tile_bytes), false);
    multiply<T>(far_, queries(1), advanced(table_, far_piece_ * tile_bytes), false);
    multiply<T>(s_, queries(0), k_, false);
    wgmma_commit();
  }
  template <int Pending>
  __device__ void wait_for_scores() {
    wgmma_wait<Pending>();
    wgmma_hold(near_);
    wgmma_hold(far_);
    wgmma_hold(s_);
  }
  // The scores have begun a step before; so do those of the next step (`More`), whose statistics are read meanwhile.
  // The products of gradients end during the next step. P and dS have two places, in turns, so that a warp stores them
  // while products of the step before still read the others.
  template <bool More>
  __device__ void step_with_table(const Group& group, std::int32_t t, Statistics& statistics) {
    const std::uint64_t content = queries(0), dout = queries(2);
    const int slot = slot_;
    char* const weights = weights_ + t % 2 * weights_bytes;
    reader_.pieces.release(near_piece_);
    near_piece_ = far_piece_;  // of the next step
    skew_.gather<true>(s_, near_, far_, warp_);
    wgmma_fence();
    multiply<T>(dp_, dout, v_, false);
    wgmma_commit();
    to_probabilities<Span>(s_, call_.scale * log2_e, group.p, {group.p, t, group.first + own_}, statistics);
    store_packed(weights, s_);
    wgmma_wait<0>();
    wgmma_hold(dp_);
    wgmma_hold(dv_);
    wgmma_hold(dk_);
    if (held_ >= 0) reader_.steps.release(held_);
    held_ = slot;
    to_gradients(dp_, s_, statistics);
    store_packed(weights + tile_bytes, dp_);
    if constexpr (More) {
      begin_scores();
      statistics = Statistics(call_, group.p, t + 1);
    } else {
      reader_.pieces.release(near_piece_);
    }
    publish_weights();
    wgmma_fence();
    multiply_columns<T>(dv_, descriptor<row_bytes>(weights), dout);
    multiply_columns<T>(dk_, descriptor<row_bytes>(weights + tile_bytes), content);
    wgmma_commit();
    if constexpr (More) wait_for_scores<1>();
  }

  // P and dS, for products that need them transposed.
  __device__ void store_packed(char* to, const Accumulator& from) const {
    Operand weights;
    pack_all<T>(weights, from);
    store_operand(to, weights);
  }
  __device__ void publish_weights() const {
    proxy_fence();
    named_barrier_sync(1 + own_, warpgroup_threads);
  }

  // ---- Without a table ----

  // The products of the next step, and its probabilities, are computed during those of gradients.
  __device__ void begin_products() {
    slot_ = reader_.take_step();
    wgmma_fence();
    multiply<T>(s_, queries(0), k_, false);
    wgmma_commit();
    multiply<T>(dp_, queries(2), v_, false);
  }
  __device__ void take_probabilities(const Group& group, std::int32_t t) {
    const Statistics statistics(call_, group.p, t);
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_hold(s_);
    to_probabilities<Span>(s_, call_.scale * log2_e, group.p, {group.p, t, group.first + own_}, statistics);
    wgmma_wait<0>();
    wgmma_hold(dp_);
  }
  template <bool More>
  __device__ void step(const Group& group, std::int32_t t) {
    const int slot = slot_;
    const std::uint64_t content = queries(0), dout = queries(2);
    to_gradients(dp_, s_, Statistics(call_, group.p, t));
    store_packed(weights_, s_);
    store_packed(weights_ + tile_bytes, dp_);
    publish_weights();
    if constexpr (More) begin_products();
    wgmma_fence();
    multiply_columns<T>(dv_, descriptor<row_bytes>(weights_), dout);
    multiply_columns<T>(dk_, descriptor<row_bytes>(weights_ + tile_bytes), content);
    if constexpr (More) {
      take_probabilities(group, t + 1);
    } else {
      wgmma_commit();
      wgmma_wait<0>();
    }
    wgmma_hold(dv_);
    wgmma_hold(dk_);
    reader_.steps.release(slot);
    named_barrier_sync(1 + own_, warpgroup_threads);  // all warps' products have read the weights
  }

  __device__ void store(const Group& group) const {
    const Place& p = group.p;
    const std::int32_t begin = (group.first + own_) * tile_rows + lane_row();  // entry
    const auto row = [&](const HeadMatrix& m, int h) -> T* {
      return begin + 8 * h < p.in.entries ? row_of<T>(m, p.head, p.in.position(begin + 8 * h)) : nullptr;
    };
    store_rows<T>(dk_, {call_.scale, call_.scale}, call_.size, [&](int h) { return row(call_.dk, h); });
    store_rows<T>(dv_, {1, 1}, call_.value_size, [&](int h) { return row(call_.dv, h); });
  }

  const Problem& problem_;
  const Call& call_;
  const Control& control_;
  Emptying<1> keys_;
  Reader<step_slots, piece_slots> reader_;
  const int own_, warp_;
  char *const steps_, *const weights_;  // the ring's first slot; P, and dS after it
  const std::uint64_t k_, v_, table_;
  int slot_ = 0, near_piece_ = 0, far_piece_ = 0;  // slots of the queries and of the two pieces of this step
  int held_ = -1;                                  // with a table: the slot of the step whose gradients are multiplied
  const Skew skew_ = {};
  Accumulator dk_, dv_, s_, dp_, near_, far_;
};

template <class T, bool Table, bool Span>
__global__ void __launch_bounds__(threads, 1) dkdv_kernel(const __grid_constant__ Problem problem) {
  extern __shared__ char memory[];
  char* const shared = memory + bytes_to_tile(memory);
  auto& control = *reinterpret_cast<Control*>(shared + control_at);
  if (threadIdx.x == 0) {
    control.keys.init();
    control.steps.init();
    control.pieces.init();
    barrier_init_fence();
    proxy_fence();
  }
  __syncthreads();
  if (threadIdx.x >= producer) {
    registers_give<producer_registers>();
    if (threadIdx.x == producer) produce<Table>(problem, shared, control);
  } else {
    registers_take<consumer_registers>();
    Consumer<T, Table, Span>(problem, shared, control).run();
  }
}

}  // namespace

template <class T>
void dkdv(const Call& call, const Launch& launch) {
  with_form(call, [&](auto form) {
    using F = decltype(form);
    for (const Problem& problem : problems_of(call, DtypeOf<T>::value))
      run_groups("distance attention dkdv", dkdv_kernel<T, F::Table, F::Span>, shared_bytes, problem,
                 tiles_of_keys(problem), launch);
  });
}
template void dkdv<__nv_bfloat16>(const Call&, const Launch&);
template void dkdv<__half>(const Call&, const Launch&);

}  // namespace longstride::kernels::cuda::distance::hopper
