// dk and dv on Hopper from the probabilities that dq has saved (saved.cuh), so neither scores nor their skew are
// computed again: three products per pair of tiles, where five would be needed. A warpgroup has 64 keys, whose
// gradients it accumulates in registers, and visits the query tiles that see them; the two warpgroups share the
// queries. P is read transposed as dq wrote it, dS = P (dP - delta) after it has passed through shared memory. The next
// step's dP is computed during this step's products of gradients.
#include "kernels/distance_attention/sm90/gradients.cuh"
#include "kernels/distance_attention/sm90/launch.cuh"
#include "kernels/distance_attention/sm90/saved.cuh"

namespace longstride::kernels::cuda::distance::hopper {
namespace {

// A step's slot: queries, P of warpgroup 0, dO, P of warpgroup 1. With dO before both P the kernel takes 2% longer.
constexpr int key_slots = 2, step_slots = 4, tiles_of_step = 2 + warpgroups, dout_at = 2;
__device__ constexpr int probabilities_at(int w) { return 1 + 2 * w; }
constexpr int weights_at = key_slots * warpgroups * tile_bytes, weights_bytes = 2 * tile_bytes,
              steps_at = weights_at + 2 * warpgroups * weights_bytes,
              control_at = steps_at + step_slots * tiles_of_step * tile_bytes;

struct Control {
  RingBarriers<key_slots> keys;
  Group groups[key_slots];
  RingBarriers<step_slots> steps;
};
constexpr std::size_t shared_bytes = control_at + sizeof(Control) + tile_alignment;

__device__ inline bool contains(TileRange range, std::int32_t t) { return range.begin <= t && t < range.end; }

__device__ void produce_step(const Problem& problem, const Group& group, std::int32_t t, char* to,
                             Filling<step_slots>& steps) {
  int saved = 0;
  for (int w = 0; w < warpgroups; ++w) saved += contains(group.own_of(w), t) ? 1 : 0;
  std::uint64_t* const barrier = steps.begin((2 + saved) * tile_bytes);
  const Loader load(problem, group.p);
  load.tile(to, problem.content, t * tile_rows, barrier);
  load.tile(to + dout_at * tile_bytes, problem.dout, t * tile_rows, barrier);
  const char* const from = saved_probabilities(problem, group.p, t, group.unit);
  const std::int32_t number = number_of_first_keys(group.p, t) - group.first;
  for (int w = 0; w < warpgroups; ++w)
    if (contains(group.own_of(w), t))
      bulk_load(to + probabilities_at(w) * tile_bytes, from + (number - w) * tile_bytes, tile_bytes, barrier);
  steps.advance();
}

__device__ void produce(const Problem& problem, char* shared, Control& control) {
  Filling<key_slots> keys{control.keys};
  Filling<step_slots> steps{control.steps};
  const std::int32_t groups = groups_of(problem, tiles_of_keys(problem));
  for (auto index = static_cast<std::int32_t>(blockIdx.x); index < groups; index += gridDim.x) {
    const Group group = key_group(problem, index);
    keys.wait();
    control.groups[keys.slot.index] = group;
    std::uint64_t* const full = keys.announce(group.steps() > 0 ? warpgroups * tile_bytes : 0);
    char* const to = shared + keys.slot.index * warpgroups * tile_bytes;
    keys.advance();
    if (group.steps() == 0) continue;
    const Loader load(problem, group.p);
    for (int w = 0; w < warpgroups; ++w) load.tile(to + w * tile_bytes, problem.v, (group.first + w) * tile_rows, full);
    for (std::int32_t t = group.all.begin; t < group.all.end; ++t)
      produce_step(problem, group, t, shared + steps_at + steps.slot.index * tiles_of_step * tile_bytes, steps);
  }
}

// A lane's delta of its two rows of query tile t.
struct Delta {
  float of_row[2];

  __device__ Delta(const Call& call, const Place& p, std::int32_t t) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const std::int32_t entry = p.first_query(t) + lane_row() + 8 * h;
      of_row[h] = entry < p.in.entries ? call.delta[p.head.row(call, p.query(call, entry))] : 0.0f;
    }
  }
};

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
        warp_(warp_of_group()),
        shared_steps_(shared + steps_at),
        weights_(shared + weights_at + 2 * own_ * weights_bytes),
        values_(descriptor<row_bytes>(shared + own_ * tile_bytes)) {}

  __device__ void run() {
    const std::int32_t groups = groups_of(problem_, tiles_of_keys(problem_));
    for (auto index = static_cast<std::int32_t>(blockIdx.x); index < groups; index += gridDim.x) {
      const int taken = keys_.take();
      const Group group = control_.groups[taken];
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
    const TileRange own = group.own_of(own_);
    const std::int32_t begin = uniform(own.begin), end = uniform(own.end);
    if (begin < end) {
      steps_.skip(begin - group.all.begin);
      const std::uint64_t v = advanced(values_, taken * warpgroups * tile_bytes);
      begin_step(v);
      wait_for_dp<0>();
      Delta delta(call_, group.p, begin);
      held_ = -1;
      for (std::int32_t t = begin; t + 1 < end; ++t) step<true>(group, t, v, delta);
      step<false>(group, end - 1, v, delta);
      wgmma_wait<0>();
      wgmma_hold(dv_);
      wgmma_hold(dk_);
      steps_.release(held_);
    }
    keys_.release(taken);
    steps_.skip(group.all.end - (begin < end ? end : group.all.begin));
  }

  __device__ char* tile_of_step(int tile) const { return shared_steps_ + (slot_ * tiles_of_step + tile) * tile_bytes; }
  // Takes the next queries and begins their dP.
  __device__ void begin_step(std::uint64_t v) {
    slot_ = steps_.take();
    wgmma_fence();
    multiply<T>(dp_, descriptor<row_bytes>(tile_of_step(dout_at)), v, false);
    wgmma_commit();
  }
  template <int Pending>
  __device__ void wait_for_dp() {
    wgmma_wait<Pending>();
    wgmma_hold(dp_);
  }

  // dP is there. P and dS have two places, in turns: a warp waits for its own products of the step before, but those of
  // the other warps may still read what it has stored for them.
  template <bool More>
  __device__ void step(const Group& group, std::int32_t t, std::uint64_t v, Delta& delta) {
    const int slot = slot_;
    char* const weights = weights_ + t % 2 * weights_bytes;
    const std::uint64_t content = descriptor<row_bytes>(tile_of_step(0)),
                        dout = descriptor<row_bytes>(tile_of_step(dout_at));
    Operand p, ds;
    load_probabilities(p);
    to_gradients(ds, p, delta);
    wgmma_wait<0>();
    wgmma_hold(dv_);
    wgmma_hold(dk_);
    if (held_ >= 0) steps_.release(held_);
    held_ = slot;
    store_operand(weights, p);
    store_operand(weights + tile_bytes, ds);
    if constexpr (More) {
      begin_step(v);
      delta = Delta(call_, group.p, t + 1);
    }
    proxy_fence();
    named_barrier_sync(1 + own_, warpgroup_threads);
    wgmma_fence();
    multiply_columns<T>(dv_, descriptor<row_bytes>(weights), dout);
    multiply_columns<T>(dk_, descriptor<row_bytes>(weights + tile_bytes), content);
    wgmma_commit();
    if constexpr (More) wait_for_dp<1>();
  }

  __device__ void load_probabilities(Operand& p) const {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint4 v = saved_operand(tile_of_step(probabilities_at(own_)), k, warp_);
      p[k][0] = v.x;
      p[k][1] = v.y;
      p[k][2] = v.z;
      p[k][3] = v.w;
    }
  }
  __device__ void to_gradients(Operand& ds, const Operand& p, const Delta& delta) const {
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 weights = unpack<T>(p[k][i]);
        const float* const dp = dp_ + 8 * k + 2 * i;
        ds[k][i] = pack<T>(weights.x * (dp[0] - delta.of_row[i % 2]), weights.y * (dp[1] - delta.of_row[i % 2]));
      }
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
  Emptying<key_slots> keys_;
  Emptying<step_slots> steps_;
  const int own_, warp_;
  char *const shared_steps_, *const weights_;  // the ring's first slot; P, and dS after it, in two places
  const std::uint64_t values_;                 // of slot 0
  int slot_ = 0;                               // of this step
  int held_ = -1;                              // of the step whose gradients are multiplied
  Accumulator dk_, dv_, dp_;
};

template <class T>
__global__ void __launch_bounds__(threads, 1) dkdv_saved_kernel(const __grid_constant__ Problem problem) {
  extern __shared__ char memory[];
  char* const shared = memory + bytes_to_tile(memory);
  auto& control = *reinterpret_cast<Control*>(shared + control_at);
  if (threadIdx.x == 0) {
    control.keys.init();
    control.steps.init();
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
void dkdv_of_saved(const Problem& problem, const Launch& launch) {
  run_groups("distance attention dkdv of saved", dkdv_saved_kernel<T>, shared_bytes, problem, tiles_of_keys(problem),
             launch);
}
template void dkdv_of_saved<__nv_bfloat16>(const Problem&, const Launch&);
template void dkdv_of_saved<__half>(const Problem&, const Launch&);

}  // namespace longstride::kernels::cuda::distance::hopper
