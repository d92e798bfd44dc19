// dk and dv on Hopper from the probabilities that dq has saved (saved.cuh), so neither scores nor their skew are
// computed again: three products per pair of tiles, where five would be needed. A warpgroup has 64 keys, whose
// gradients it accumulates in registers, and visits the query tiles that see them; the two warpgroups share the
// queries. Rows are keys: dP^T = V dO^T, P^T as it is read, and dS^T = P^T (dP^T - delta), so that all left operands
// stay in registers. The next step's dP^T is computed with this step's products of gradients.
#include "kernels/distance_attention/sm90/gradients.cuh"
#include "kernels/distance_attention/sm90/launch.cuh"
#include "kernels/distance_attention/sm90/saved.cuh"

namespace longstride::kernels::cuda::distance::sm90 {
namespace {

// A step's slot: queries, P of warpgroup 0, dO, P of warpgroup 1.
constexpr int step_slots = 6, tiles_of_step = 2 + warpgroups, dout_at = 2;
__device__ constexpr int probabilities_at(int w) { return 1 + 2 * w; }
constexpr int steps_at = warpgroups * tile_bytes, deltas_at = steps_at + step_slots * tiles_of_step * tile_bytes,
              deltas_of_warp = 2 * tile_rows,
              control_at = deltas_at + warpgroups * warpgroup_warps * deltas_of_warp * static_cast<int>(sizeof(float));

struct Control {
  RingBarriers<1> keys;
  Group groups[1];
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
  Filling<1> keys{control.keys};
  Filling<step_slots> steps{control.steps};
  const std::int32_t groups = groups_of(problem, tiles_of_keys(problem));
  for (auto index = static_cast<std::int32_t>(blockIdx.x); index < groups; index += gridDim.x) {
    const Group group = key_group(problem, index);
    keys.wait();
    control.groups[0] = group;
    std::uint64_t* const full = keys.announce(group.steps() > 0 ? warpgroups * tile_bytes : 0);
    keys.advance();
    if (group.steps() == 0) continue;
    const Loader load(problem, group.p);
    for (int w = 0; w < warpgroups; ++w)
      load.tile(shared + w * tile_bytes, problem.v, (group.first + w) * tile_rows, full);
    for (std::int32_t t = group.all.begin; t < group.all.end; ++t)
      produce_step(problem, group, t, shared + steps_at + steps.slot.index * tiles_of_step * tile_bytes, steps);
  }
}

// delta of a query tile, of which every lane needs a quarter: a warp's own copy, in two places, in turns.
class Deltas {
 public:
  __device__ explicit Deltas(float* memory) : memory_(memory) {}

  // Loads a lane's share of query tile t's. It is there after put(), for the next step.
  __device__ void load(const Call& call, const Place& p, std::int32_t t) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int32_t entry = p.first_query(t) + this_lane() + i * warp_threads;
      loaded_[i] = entry < p.in.entries ? call.delta[p.head.row(call, p.query(call, entry))] : 0.0f;
    }
  }
  __device__ void put() {
    place_ ^= tile_rows;
#pragma unroll
    for (int i = 0; i < 2; ++i) memory_[place_ + this_lane() + i * warp_threads] = loaded_[i];
    __syncwarp();
  }
  // The values of an accumulator's columns 8 j + lane_column() + {0, 1}.
  __device__ float2 of_columns(int j) const {
    return *reinterpret_cast<const float2*>(memory_ + place_ + 8 * j + lane_column());
  }

 private:
  float* const memory_;
  int place_ = 0;
  float loaded_[2];
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
        shared_(shared),
        deltas_(reinterpret_cast<float*>(shared + deltas_at) + this_warp() * deltas_of_warp) {}

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
      store_key_gradients<T>(call_, group.p, (group.first + own_) * tile_rows, dk_, dv_);
    }
  }

 private:
  __device__ void visit(const Group& group, int taken) {
    load_operand(values_, shared_ + own_ * tile_bytes);
    proxy_fence();  // ldmatrix may read after the release otherwise, when the next keys come
    keys_.release(taken);
    const TileRange own = group.own_of(own_);
    const std::int32_t begin = uniform(own.begin), end = uniform(own.end);
    if (begin < end) {
      steps_.skip(begin - group.all.begin);
      deltas_.load(call_, group.p, begin);
      begin_step();
      deltas_.put();
      wgmma_wait<0>();
      wgmma_hold(dp_);
      for (std::int32_t t = begin; t + 1 < end; ++t) step<true>(group, t);
      step<false>(group, end - 1);
    }
    steps_.skip(group.all.end - (begin < end ? end : group.all.begin));
  }

  __device__ char* tile_of_slot(int slot, int tile) const {
    return shared_ + steps_at + (slot * tiles_of_step + tile) * tile_bytes;
  }
  // Takes the next queries and begins their dP^T.
  __device__ void begin_step() {
    slot_ = steps_.take();
    wgmma_fence();
    multiply<T>(dp_, values_, descriptor<row_bytes>(tile_of_slot(slot_, dout_at)), false);
    wgmma_commit();
  }

  // dP^T is there.
  template <bool More>
  __device__ void step(const Group& group, std::int32_t t) {
    const int slot = slot_;
    if constexpr (More) deltas_.load(call_, group.p, t + 1);
    Operand p, ds;
#pragma unroll
    for (int w = 0; w < warpgroup_warps; ++w) load_saved(p[w], tile_of_slot(slot, probabilities_at(own_)), warp_, w);
    to_gradients(ds, p);
    if constexpr (More) begin_step();
    wgmma_fence();
    multiply_rows<T>(dv_, p, descriptor<row_bytes>(tile_of_slot(slot, dout_at)));
    multiply_rows<T>(dk_, ds, descriptor<row_bytes>(tile_of_slot(slot, 0)));
    wgmma_commit();
    if constexpr (More) deltas_.put();
    wgmma_wait<0>();
    wgmma_hold(dv_);
    wgmma_hold(dk_);
    if constexpr (More) wgmma_hold(dp_);
    steps_.release(slot);
  }

  __device__ void to_gradients(Operand& ds, const Operand& p) const {
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 delta = deltas_.of_columns(2 * k + half);
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          const float2 weights = unpack<T>(p[k][i]);
          const float* const dp = dp_ + 8 * k + 2 * i;
          ds[k][i] = pack<T>(weights.x * (dp[0] - delta.x), weights.y * (dp[1] - delta.y));
        }
      }
  }

  const Problem& problem_;
  const Call& call_;
  const Control& control_;
  Emptying<1> keys_;
  Emptying<step_slots> steps_;
  const int own_, warp_;
  char* const shared_;
  Deltas deltas_;
  int slot_ = 0;    // the step whose dP^T is begun
  Operand values_;  // the own keys
  Accumulator dk_, dv_, dp_;
};

template <class T>
__global__ void __launch_bounds__(threads, 1) dkdv_saved_kernel(const __grid_constant__ Problem problem) {
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
void dkdv_of_saved(const Problem& problem, const Launch& launch) {
  run_groups("distance attention dkdv of saved", dkdv_saved_kernel<T>, shared_bytes, problem, tiles_of_keys(problem),
             launch);
}
template void dkdv_of_saved<__nv_bfloat16>(const Problem&, const Launch&);
template void dkdv_of_saved<__half>(const Problem&, const Launch&);

}  // namespace longstride::kernels::cuda::distance::sm90
