// T's gradient on Hopper: what dq has saved of the gradients of scores (saved.cuh), transposed, times q + v. A block
// has four neighbouring pieces of a head's rows, two per warpgroup, whose gradients stay in registers, and visits a
// chunk of the tiles of queries. Reading what was saved bounds its time.
#include "kernels/distance_attention/sm90/launch.cuh"
#include "kernels/distance_attention/sm90/saved.cuh"
#include "kernels/gpu/global.cuh"

namespace longstride::kernels::cuda::distance::sm90 {
namespace {

constexpr int own_pieces = 2, pieces_of_block = own_pieces * warpgroups, slots = 5, tiles_of_slot = 1 + pieces_of_block;
constexpr int control_at = slots * tiles_of_slot * tile_bytes;
constexpr std::size_t shared_bytes = control_at + sizeof(RingBarriers<slots>) + tile_alignment;

// A chunk of the (sequence, class, query tile)s of a head of a launch, as far as they meet `pieces_of_block` pieces
// from `first` on.
class Tiles {
 public:
  __device__ Tiles(const Problem& problem, std::int32_t head, std::int32_t first, std::int32_t chunk)
      : problem_(problem), head_(head), first_(first), p_(problem.call, 0, problem.head[head], 0) {
    const std::int32_t begin = sequences_before(problem.first_unit),
                       end = sequences_before(problem.first_unit + problem.units);
    const std::int32_t tiles = tiles_of_queries(problem), count = (end - begin) * problem.step * tiles,
                       per_chunk = (count + problem.call.chunks - 1) / problem.call.chunks;
    const std::int32_t at = min(chunk * per_chunk, count);
    left_ = min(at + per_chunk, count) - at;
    p_.tile = at % tiles;
    p_.in.first = at / tiles % problem.step;
    p_.head.sequence = begin + at / tiles / problem.step;
    enter();
    seek();
  }
  __device__ bool more() const { return left_ > 0; }
  __device__ const Place& place() const { return p_; }
  // The pieces that this tile meets, from `first` on.
  __device__ TileRange pieces() const { return {max(met_.begin - first_, 0), min(met_.end - first_, pieces_of_block)}; }
  __device__ std::int32_t unit() const { return p_.head.sequence * problem_.heads + head_ - problem_.first_unit; }
  __device__ void advance() {
    next();
    seek();
  }

 private:
  // Sequences whose unit of this head is below `unit`.
  __device__ std::int32_t sequences_before(std::int32_t unit) const {
    return (unit - head_ + problem_.heads - 1) / problem_.heads;
  }
  __device__ void seek() {
    for (; left_ > 0; next()) {
      met_ = saved_pieces(p_, p_.tile, key_tiles(p_, p_.tile));
      if (met_.begin < first_ + pieces_of_block && met_.end > first_) return;
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
  std::int32_t head_, first_, left_;  // head: of the problem
  Place p_;
  TileRange met_ = {0, 0};
};

__device__ void produce(const Problem& problem, char* shared, RingBarriers<slots>& ring, Tiles tiles,
                        std::int32_t first) {
  Filling<slots> filling{ring};
  for (; tiles.more(); tiles.advance()) {
    const Place& p = tiles.place();
    const TileRange pieces = tiles.pieces();
    const std::uint32_t saved = (pieces.end - pieces.begin) * tile_bytes;
    std::uint64_t* const barrier = filling.begin(tile_bytes + saved);
    char* const to = shared + filling.slot.index * tiles_of_slot * tile_bytes;
    Loader(problem, p).tile(to, problem.position, p.tile * tile_rows, barrier);
    const char* const from = saved_gradients(problem, p, p.tile, tiles.unit());
    bulk_load(to + (1 + pieces.begin) * tile_bytes, from + (first + pieces.begin) * tile_bytes, saved, barrier);
    filling.advance();
  }
}

template <class T>
class Consumer {
 public:
  __device__ Consumer(const Problem& problem, const char* shared, RingBarriers<slots>& ring)
      : problem_(problem),
        ring_{ring},
        own_(uniform(this_warpgroup()) * own_pieces),
        warp_(warp_of_group()),
        shared_(shared),
        queries_(descriptor<row_bytes>(shared)) {
    clear(sum_[0]);
    clear(sum_[1]);
  }

  __device__ void run(Tiles tiles) {
    for (; tiles.more(); tiles.advance()) {
      const TileRange pieces = tiles.pieces();
      const bool first = uniform(pieces.begin <= own_ && own_ < pieces.end);
      const bool second = uniform(pieces.begin <= own_ + 1 && own_ + 1 < pieces.end);
      const int slot = ring_.take();
      if (first && second)
        add<0, 2>(slot);
      else if (first)
        add<0, 1>(slot);
      else if (second)
        add<1, 2>(slot);
      ring_.release(slot);
    }
  }

  __device__ void store(std::int32_t head, std::int32_t first, std::int32_t chunk) const {
    const Call& call = problem_.call;
    const std::int64_t pieces = (static_cast<std::int64_t>(chunk) * call.heads + problem_.head[head]) * call.pieces();
#pragma unroll
    for (int i = 0; i < own_pieces; ++i)
      if (first + own_ + i < call.pieces())
        store_piece(sum_[i], call.table_sums + (pieces + first + own_ + i) * tile_rows * call.size);
  }

 private:
  // Adds the products of the own pieces [Begin, End).
  template <int Begin, int End>
  __device__ void add(int slot) {
    const char* const saved = shared_ + (slot * tiles_of_slot + 1 + own_) * tile_bytes;
    Operand gradients[own_pieces];
#pragma unroll
    for (int i = Begin; i < End; ++i)
#pragma unroll
      for (int w = 0; w < warpgroup_warps; ++w) load_saved(gradients[i][w], saved + i * tile_bytes, warp_, w);
    wgmma_fence();
#pragma unroll
    for (int i = Begin; i < End; ++i)
      multiply_rows<T>(sum_[i], gradients[i], advanced(queries_, slot * tiles_of_slot * tile_bytes));
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (int i = Begin; i < End; ++i) wgmma_hold(sum_[i]);
  }

  __device__ void store_piece(const Accumulator& d, float* to) const {
    const Call& call = problem_.call;
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int column = 8 * j + lane_column();
        if (column >= call.size) continue;
        float2* const pair = reinterpret_cast<float2*>(to + (lane_row() + 8 * h) * call.size + column);
        const float2 of_launch = {d[element_at(j, h, 0)] * call.scale, d[element_at(j, h, 1)] * call.scale};
        if (problem_.first_unit == 0)
          *pair = of_launch;
        else
          add_to_global(pair, of_launch);  // the launch has no other thread that adds to it
      }
  }

  const Problem& problem_;
  Emptying<slots> ring_;
  const int own_, warp_;  // the first own piece of the block's
  const char* const shared_;
  const std::uint64_t queries_;  // slot 0
  Accumulator sum_[own_pieces];
};

template <class T>
__global__ void __launch_bounds__(threads, 1) dtable_kernel(const __grid_constant__ Problem problem) {
  extern __shared__ char memory[];
  char* const shared = memory + bytes_to_tile(memory);
  auto& ring = *reinterpret_cast<RingBarriers<slots>*>(shared + control_at);
  start_rings(ring);
  const auto head = static_cast<std::int32_t>(blockIdx.x), chunk = static_cast<std::int32_t>(blockIdx.y),
             first = static_cast<std::int32_t>(blockIdx.z) * pieces_of_block;
  const Tiles tiles(problem, head, first, chunk);
  if (threadIdx.x >= producer) {
    registers_give<producer_registers>();
    if (threadIdx.x == producer) produce(problem, shared, ring, tiles, first);
  } else {
    registers_take<consumer_registers>();
    if (problem.first_unit > 0 && !tiles.more()) return;
    Consumer<T> consumer(problem, shared, ring);
    consumer.run(tiles);
    consumer.store(head, first, chunk);
  }
}

}  // namespace

template <class T>
void dtable(const Problem& problem, const Launch& launch) {
  const Call& call = problem.call;
  allow_shared(dtable_kernel<T>, shared_bytes);
  run("distance attention dtable", dtable_kernel<T>,
      {dim3(static_cast<unsigned>(problem.heads), static_cast<unsigned>(call.chunks),
            static_cast<unsigned>((call.pieces() + pieces_of_block - 1) /
                                  pieces_of_block)),  // the nearest have the most
       threads, shared_bytes},
      launch, problem);
}
template void dtable<__nv_bfloat16>(const Problem&, const Launch&);
template void dtable<__half>(const Problem&, const Launch&);

}  // namespace longstride::kernels::cuda::distance::sm90
