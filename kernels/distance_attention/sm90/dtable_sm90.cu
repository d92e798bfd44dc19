// The gradient of T's rows of two neighbouring bands (gpu/call.h) of a head on Hopper, over a chunk of the tiles of
// queries of all sequences. A warpgroup has a band, whose gradient stays in registers; both read the same queries, each
// its own key tile. The skewed dS passes through shared memory, from which it is read transposed.
#include "kernels/distance_attention/sm90/gradients.cuh"
#include "kernels/distance_attention/sm90/launch.cuh"

namespace longstride::kernels::cuda::distance::hopper {
namespace {

constexpr int step_slots = 3, tiles_of_step = 3 + 2 * warpgroups, pieces = warpgroups + 1;
constexpr int skewed_at = pieces * tile_bytes, steps_at = skewed_at + 2 * warpgroups * tile_bytes,
              control_at = steps_at + step_slots * tiles_of_step * tile_bytes;

struct Control {
  std::uint64_t table;
  RingBarriers<step_slots> steps;
};
constexpr std::size_t shared_bytes = control_at + sizeof(Control) + tile_alignment;

// The units (sequence, class, query tile) of a chunk that have a visible pair in one of `warpgroups` bands from `apart`
// on.
class Units {
 public:
  __device__ Units(const Problem& problem, std::int32_t head, std::int32_t apart, std::int32_t chunk)
      : problem_(problem), apart_(apart), p_(problem.call, 0, head, 0) {
    const Call& call = problem.call;
    const std::int32_t tiles = tiles_of_queries(problem), units = call.batch * problem.step * tiles,
                       per_chunk = (units + call.chunks - 1) / call.chunks;
    const std::int32_t begin = min(chunk * per_chunk, units);
    left_ = min((chunk + 1) * per_chunk, units) - begin;
    const std::int32_t nearest = p_.head.origin + apart * tile_rows - (tile_rows - 1);
    if (nearest >= p_.head.reach.end) left_ = 0;
    p_.tile = begin % tiles;
    p_.in.first = begin / tiles % problem.step;
    p_.head.sequence = begin / tiles / problem.step;
    enter();
    seek();
  }
  __device__ bool more() const { return left_ > 0; }
  __device__ const Place& place() const { return p_; }
  // Whether band `apart` has a visible pair of this unit.
  __device__ bool sees(std::int32_t apart) const {
    return left_ > 0 && p_.tile - apart >= range_.begin && p_.tile - apart < range_.end;
  }
  __device__ void advance() {
    next();
    seek();
  }

 private:
  __device__ void seek() {
    for (; left_ > 0; next()) {
      range_ = key_tiles(p_, p_.tile);
      const std::int32_t last = p_.tile - apart_;  // key tile of warpgroup 0; the others' precede it
      if (last >= range_.begin && last - (warpgroups - 1) < range_.end) return;
    }
  }
  __device__ void next() {
    --left_;
    if (++p_.tile < tiles_of_queries(problem_) || left_ == 0) return;
    p_.tile = 0;
    if (++p_.in.first == problem_.step) {
      p_.in.first = 0;
      ++p_.head.sequence;
    }
    enter();
  }
  // Only the first key differs from sequence to sequence and from class to class.
  __device__ void enter() {
    const Call& call = problem_.call;
    if (call.first_key == nullptr || left_ <= 0) return;
    p_.head.first_key = min(max(call.first_key[p_.head.sequence], 0), call.n_k);
    p_.in.first_key = entries_before(p_.head.first_key, p_.in.first, problem_.step);
  }

  const Problem& problem_;
  std::int32_t apart_, left_;
  Place p_;
  TileRange range_ = {0, 0};
};

__device__ void produce(const Problem& problem, char* shared, Control& control, Units units, std::int32_t head,
                        std::int32_t apart) {
  Filling<step_slots> steps{control.steps};
  const std::int32_t origin = problem.keys - problem.queries;
  const Loader table(problem, {problem.call, 0, head, 0});
  barrier_arrive_expect(&control.table, pieces * tile_bytes);
  for (int i = 0; i < pieces; ++i) table.piece(shared + i * tile_bytes, origin, apart + i, &control.table);
  for (; units.more(); units.advance()) {
    const Place& p = units.place();
    const Loader load(problem, p);
    std::uint64_t* const barrier = steps.begin(tiles_of_step * tile_bytes);
    char* const to = shared + steps_at + steps.slot.index * tiles_of_step * tile_bytes;
    load.tile(to, problem.content, p.tile * tile_rows, barrier);
    load.tile(to + tile_bytes, problem.position, p.tile * tile_rows, barrier);
    load.tile(to + 2 * tile_bytes, problem.dout, p.tile * tile_rows, barrier);
    for (int w = 0; w < warpgroups; ++w) {
      const std::int32_t row = (p.tile - apart - w) * tile_rows;
      load.tile(to + (3 + 2 * w) * tile_bytes, problem.k, row, barrier);
      load.tile(to + (4 + 2 * w) * tile_bytes, problem.v, row, barrier);
    }
    steps.advance();
  }
}

template <class T, bool Span>
class Consumer {
 public:
  __device__ Consumer(const Problem& problem, char* shared, Control& control)
      : call_(problem.call),
        steps_{control.steps},
        own_(uniform(this_warpgroup())),
        warp_(warp_of_group()),
        steps_memory_(shared + steps_at),
        skewed_memory_(shared + skewed_at + 2 * own_ * tile_bytes),
        near_rows_(descriptor<row_bytes>(shared + own_ * tile_bytes)),
        far_rows_(descriptor<row_bytes>(shared + (own_ + 1) * tile_bytes)) {
    barrier_wait(&control.table, 0);
    clear(near_sum_);
    clear(far_sum_);
  }

  __device__ void run(Units units, std::int32_t apart) {
    const std::int32_t own_apart = apart + own_;
    bool begun = false;  // whether the unit's products with the table are computed
    while (units.more()) {
      if (!begun) slot_ = steps_.take();
      if (!uniform(units.sees(own_apart))) {
        steps_.release(slot_);
        units.advance();
        continue;
      }
      if (!begun) {
        wgmma_fence();
        multiply_table();
        wgmma_wait<0>();
        take_products();
      }
      const Place p = units.place();
      units.advance();
      begun = uniform(units.sees(own_apart)) != 0;
      if (begun)
        step<true>(p, p.tile - own_apart);
      else
        step<false>(p, p.tile - own_apart);
    }
  }

  __device__ void store(std::int32_t head, std::int32_t band, std::int32_t chunk) const {
    if (band >= call_.bands) return;
    const std::int64_t at = (static_cast<std::int64_t>(chunk) * call_.heads + head) * call_.bands + band;
    float* const to = call_.table_sums + at * band_rows * call_.size;
    store_half(near_sum_, to);
    store_half(far_sum_, to + tile_rows * call_.size);
  }

 private:
  __device__ std::uint64_t tile(int number) const {
    return descriptor<row_bytes>(steps_memory_ + (slot_ * tiles_of_step + number) * tile_bytes);
  }
  // The products of slot_'s queries with the rows of the band, with which the scores begin.
  __device__ void multiply_table() {
    multiply<T>(near_, tile(1), near_rows_, false);
    multiply<T>(far_, tile(1), far_rows_, false);
    wgmma_commit();
  }
  __device__ void take_products() {
    wgmma_hold(near_);
    wgmma_hold(far_);
    skew_.gather(s_, near_, far_, warp_);
  }

  // `More`: the next unit has pairs in the band, too. Its scores begin during the products of gradients.
  template <bool More>
  __device__ void step(const Place& p, std::int32_t s) {
    const Statistics statistics(call_, p, p.tile);
    const int slot = slot_;
    const std::uint64_t content = tile(0), position = tile(1), dout = tile(2), k = tile(3 + 2 * own_),
                        v = tile(4 + 2 * own_);
    wgmma_fence();
    multiply<T>(s_, content, k, true);
    wgmma_commit();
    multiply<T>(dp_, dout, v, false);
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_hold(s_);
    const TilePairs pairs(p, p.tile, s);
    to_probabilities<Span>(s_, call_.scale * log2_e, p, pairs, statistics);
    wgmma_wait<0>();
    wgmma_hold(dp_);
    to_gradients(dp_, s_, statistics);
    Operand near_skewed, far_skewed = {};
    skew_.scatter<T>(dp_, near_skewed, far_skewed, warp_);
    store_operand(skewed_memory_, near_skewed);
    store_operand(skewed_memory_ + tile_bytes, far_skewed);
    proxy_fence();
    named_barrier_sync(1 + own_, warpgroup_threads);
    if constexpr (More) slot_ = steps_.take();
    wgmma_fence();
    if constexpr (More) multiply_table();
    multiply_columns<T>(near_sum_, descriptor<row_bytes>(skewed_memory_), position);
    multiply_columns<T>(far_sum_, descriptor<row_bytes>(skewed_memory_ + tile_bytes), position);
    wgmma_commit();
    if constexpr (More) {
      wgmma_wait<1>();
      take_products();
    }
    wgmma_wait<0>();
    wgmma_hold(near_sum_);
    wgmma_hold(far_sum_);
    steps_.release(slot);
    named_barrier_sync(1 + own_, warpgroup_threads);  // all warps' products have read the skewed gradients
  }

  __device__ void store_half(const Accumulator& d, float* to) const {
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int column = 8 * j + lane_column();
        const float2 pair = {d[element_at(j, h, 0)] * call_.scale, d[element_at(j, h, 1)] * call_.scale};
        if (column < call_.size) *reinterpret_cast<float2*>(to + (lane_row() + 8 * h) * call_.size + column) = pair;
      }
  }

  const Call& call_;
  Emptying<step_slots> steps_;
  const int own_, warp_;
  char *const steps_memory_, *const skewed_memory_;
  const std::uint64_t near_rows_, far_rows_;  // the band's rows of T
  const Skew skew_ = {};
  int slot_ = 0;
  Accumulator near_sum_, far_sum_, s_, dp_, near_, far_;
};

template <class T, bool Span>
__global__ void __launch_bounds__(threads, 1) dtable_kernel(const __grid_constant__ Problem problem) {
  extern __shared__ char memory[];
  char* const shared = memory + bytes_to_tile(memory);
  auto& control = *reinterpret_cast<Control*>(shared + control_at);
  if (threadIdx.x == 0) {
    barrier_init(&control.table, 1);
    control.steps.init();
    barrier_init_fence();
    proxy_fence();
  }
  __syncthreads();
  const std::int32_t band = static_cast<std::int32_t>(blockIdx.z) * warpgroups, head = problem.head[blockIdx.x],
                     chunk = static_cast<std::int32_t>(blockIdx.y);
  const std::int32_t apart = first_band(problem.keys - problem.queries) + band;
  const Units units(problem, head, apart, chunk);
  if (threadIdx.x >= producer) {
    registers_give<producer_registers>();
    if (threadIdx.x == producer) produce(problem, shared, control, units, head, apart);
  } else {
    registers_take<consumer_registers>();
    Consumer<T, Span> consumer(problem, shared, control);
    consumer.run(units, apart);
    consumer.store(head, band + this_warpgroup(), chunk);
  }
}

}  // namespace

template <class T>
void dtable(const Call& call, const Launch& launch) {
  const auto kernel = call.span != nullptr ? dtable_kernel<T, true> : dtable_kernel<T, false>;
  allow_shared(kernel, shared_bytes);
  for (const Problem& problem : problems_of(call, DtypeOf<T>::value))
    run("distance attention dtable", kernel,
        {dim3(
             static_cast<unsigned>(problem.heads), static_cast<unsigned>(call.chunks),
             static_cast<unsigned>((call.bands + warpgroups - 1) / warpgroups)),  // the first bands have the most tiles
         threads, shared_bytes},
        launch, problem);
}
template void dtable<__nv_bfloat16>(const Call&, const Launch&);
template void dtable<__half>(const Call&, const Launch&);

}  // namespace longstride::kernels::cuda::distance::hopper
