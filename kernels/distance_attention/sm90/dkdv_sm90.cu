// dk and dv on Hopper without a table. A warpgroup has 64 keys, which both accumulate in registers, and visits the
// query tiles that see them; the two warpgroups share the queries. Scores have rows of queries, as everywhere; P and dS
// pass through shared memory, from which they are read transposed.
#include "kernels/distance_attention/sm90/gradients.cuh"
#include "kernels/distance_attention/sm90/launch.cuh"

namespace longstride::kernels::cuda::distance::sm90 {
namespace {

// A step's slot has queries, a free tile and dO: without that between them the kernel takes 3% longer.
constexpr int step_slots = 3, tiles_of_step = 3, tiles_of_keys_of_block = 2 * warpgroups;
constexpr int weights_at = tiles_of_keys_of_block * tile_bytes, weights_bytes = 2 * tile_bytes,
              steps_at = weights_at + 2 * warpgroups * weights_bytes,
              control_at = steps_at + step_slots * tiles_of_step * tile_bytes;

struct Control {
  RingBarriers<1> keys;
  Group group;
  RingBarriers<step_slots> steps;
};
constexpr std::size_t shared_bytes = control_at + sizeof(Control) + tile_alignment;

__device__ void produce(const Problem& problem, char* shared, Control& control) {
  Filling<1> keys{control.keys};
  Filling<step_slots> steps{control.steps};
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
    for (std::int32_t t = group.all.begin; t < group.all.end; ++t) {
      std::uint64_t* const barrier = steps.begin(2 * tile_bytes);
      char* const to = shared + steps_at + steps.slot.index * tiles_of_step * tile_bytes;
      load.tile(to, problem.content, t * tile_rows, barrier);
      load.tile(to + 2 * tile_bytes, problem.dout, t * tile_rows, barrier);
      steps.advance();
    }
  }
}

template <class T>
class Consumer {
 public:
  __device__ Consumer(const Problem& problem, char* shared, Control& control)
      : problem_(problem),
        call_(problem.call),
        control_(control),
        keys_{control.keys},
        steps_{control.steps},
        own_(uniform(this_warpgroup())),
        shared_steps_(shared + steps_at),
        weights_(shared + weights_at + 2 * own_ * weights_bytes),
        k_(descriptor<row_bytes>(shared + 2 * own_ * tile_bytes)),
        v_(descriptor<row_bytes>(shared + (2 * own_ + 1) * tile_bytes)) {}

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
      store_key_gradients<T>(call_, group.p, (group.first + own_) * tile_rows, dk_, dv_);
    }
  }

 private:
  __device__ void visit(const Group& group, int taken) {
    const TileRange own = group.own_of(own_);
    const std::int32_t begin = uniform(own.begin), end = uniform(own.end);
    if (begin < end) {
      steps_.skip(begin - group.all.begin);
      begin_products();
      take_probabilities(group, begin);
      for (std::int32_t t = begin; t + 1 < end; ++t) step<true>(group, t);
      step<false>(group, end - 1);
    }
    keys_.release(taken);
    steps_.skip(group.all.end - (begin < end ? end : group.all.begin));
  }

  __device__ std::uint64_t queries(int tile) const {
    return descriptor<row_bytes>(shared_steps_ + (slot_ * tiles_of_step + tile) * tile_bytes);
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

  // The products of the next step, and its probabilities, are computed during those of gradients.
  __device__ void begin_products() {
    slot_ = steps_.take();
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
    to_probabilities<true>(s_, call_.scale * log2_e, group.p, {group.p, t, group.first + own_}, statistics);
    wgmma_wait<0>();
    wgmma_hold(dp_);
  }
  // P and dS have two places, in turns, so that a warp stores them while products of the step before still read the
  // others.
  template <bool More>
  __device__ void step(const Group& group, std::int32_t t) {
    const int slot = slot_;
    char* const weights = weights_ + t % 2 * weights_bytes;
    const std::uint64_t content = queries(0), dout = queries(2);
    to_gradients(dp_, s_, Statistics(call_, group.p, t));
    store_packed(weights, s_);
    store_packed(weights + tile_bytes, dp_);
    publish_weights();
    if constexpr (More) begin_products();
    wgmma_fence();
    multiply_columns<T>(dv_, descriptor<row_bytes>(weights), dout);
    multiply_columns<T>(dk_, descriptor<row_bytes>(weights + tile_bytes), content);
    if constexpr (More) {
      take_probabilities(group, t + 1);
    } else {
      wgmma_commit();
      wgmma_wait<0>();
    }
    wgmma_hold(dv_);
    wgmma_hold(dk_);
    steps_.release(slot);
  }

  const Problem& problem_;
  const Call& call_;
  const Control& control_;
  Emptying<1> keys_;
  Emptying<step_slots> steps_;
  const int own_;
  char *const shared_steps_, *const weights_;  // the ring's first slot; P, and dS after it, in two places
  const std::uint64_t k_, v_;
  int slot_ = 0;  // the step whose products are begun
  Accumulator dk_, dv_, s_, dp_;
};

template <class T>
__global__ void __launch_bounds__(threads, 1) dkdv_kernel(const __grid_constant__ Problem problem) {
  extern __shared__ char memory[];
  char* const shared = memory + bytes_to_tile(memory);
  auto& control = *reinterpret_cast<Control*>(shared + control_at);
  start_rings(control.keys, control.steps);
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
void dkdv(const Problem& problem, const Launch& launch) {
  run_groups("distance attention dkdv", dkdv_kernel<T>, shared_bytes, problem, tiles_of_keys(problem), launch);
}
template void dkdv<__nv_bfloat16>(const Problem&, const Launch&);
template void dkdv<__half>(const Problem&, const Launch&);

}  // namespace longstride::kernels::cuda::distance::sm90
