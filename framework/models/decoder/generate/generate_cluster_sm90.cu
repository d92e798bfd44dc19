// The kernel for clusters, its launch, and the host's choice of its configuration.
#include <algorithm>
#include <bit>

#include "framework/models/decoder/generate/cluster_generator.cuh"
#include "kernels/base/gpu_kind.h"

namespace longstride::generation {
namespace {

constexpr int largest_cluster = 16, smallest_cluster = 8;  // with fewer blocks a whole grid is faster
constexpr int most_clusters = 16;
constexpr int most_warp_keys = 128;  // per layer: longer lists of keys are better read by more multiprocessors
constexpr int few_keys = 32;         // not worth dividing between warps

template <class T>
__global__ void __launch_bounds__(cluster_threads, 1)
    generate_cluster_kernel(const __grid_constant__ GenerationProblem problem, const __grid_constant__ Cluster cluster,
                            const __grid_constant__ PositionSpan span) {
  ClusterGenerator<T>(problem, cluster, span).run();
}

template <class F>
void with_16_bits(Dtype dtype, F&& f) {
  if (dtype == Dtype::bf16)
    f(__nv_bfloat16{});
  else
    f(__half{});
}

template <class T>
void allow_clusters(std::size_t shared_bytes) {
  allow_shared(generate_cluster_kernel<T>, shared_bytes);
  check(cudaFuncSetAttribute(generate_cluster_kernel<T>, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
        "cudaFuncSetAttribute");
}

// Number of clusters of this size that the GPU runs at once.
int clusters_at_once(Dtype dtype, int size, std::int64_t shared_bytes) {
  int count = 0;
  with_16_bits(dtype, [&](auto zero) {
    using T = decltype(zero);
    allow_clusters<T>(static_cast<std::size_t>(shared_bytes));
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(size), 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = static_cast<unsigned>(size);
    config.blockDim = cluster_threads;
    config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
    config.attrs = &attribute;
    config.numAttrs = 1;
    if (cudaOccupancyMaxActiveClusters(&count, generate_cluster_kernel<T>, &config) != cudaSuccess) {
      cudaGetLastError();
      count = 0;
    }
  });
  return count;
}

bool divides(const PackedMatrix& m, int size) { return m.tiles % size == 0; }

// True if parts of tiles fill stages.
bool in_parts(const PackedMatrix& m) {
  return m.depth % blocks_at_once == 0 && std::has_single_bit(static_cast<unsigned>(m.depth));
}
// Parts per tile of a product whose tiles warps share: as many as there are warps, of at least four blocks.
int parts_of(const PackedMatrix& m, int size) {
  const int tiles = m.tiles / size;
  return std::max(1, std::min(cluster_warps / tiles, m.depth / blocks_at_once));
}
bool in_shares(const PackedMatrix& m, int size) {
  const int tiles = m.tiles / size;
  return in_parts(m) && tiles > 0 && tiles <= cluster_warps && std::has_single_bit(static_cast<unsigned>(tiles)) &&
         m.depth / parts_of(m, size) <= stage_blocks;
}

bool fits_clusters(const GenerationProblem& p, int size) {
  return p.heads.count % size == 0 && divides(p.output, size) && divides(p.feed_inner, size) &&
         divides(p.logits, size) && in_parts(p.qkv) && p.qkv.depth <= stage_blocks && in_shares(p.output, size) &&
         in_shares(p.feed_outer, size) && p.width % 256 == 0 && p.width <= most_cluster_width &&
         p.heads.key_size + p.heads.value_size <= 256 && std::has_single_bit(static_cast<unsigned>(p.heads.value_size));
}

// Each product's share for one block, once the offset of its input is known.
void lay_out_products(const GenerationProblem& p, Cluster& c) {
  using T = __nv_bfloat16;
  int parts_so_far = 0;
  const auto work = [&](const PackedMatrix& m, int parts, int input, int columns, int bias) {
    TileWork w;
    w.tiles = m.tiles / c.size;
    w.part_shift = std::countr_zero(static_cast<unsigned>(parts));
    w.blocks = m.depth / parts;
    w.piece_tiles = w.tiles;
    w.piece_blocks = 0;
    w.stages = stages_of(w.tiles * m.depth);
    w.input = input;
    w.pitch = pitch_of<T>(columns) * static_cast<int>(sizeof(T));
    w.bias = bias;
    w.first_part = parts_so_far;
    parts_so_far += w.tiles * parts;
    return w;
  };
  const Biases& at = c.biases_at;
  TileWork& qkv = c.own[qkv_kind] = work(p.qkv, 1, c.normed, p.width, at.qkv);
  const int keys = c.query_rows(p) / tile_rows, values = c.value_rows(p) / tile_rows;
  qkv.piece_tiles = keys;
  qkv.piece_blocks = stages_of(keys * p.qkv.depth) * stage_blocks;
  qkv.stages = 2 * stages_of(keys * p.qkv.depth) + stages_of(values * p.qkv.depth);
  c.own[inner_kind] = work(p.feed_inner, 1, c.normed, p.width, at.inner);
  c.own[logits_kind] = work(p.logits, 1, c.normed, p.width, 0);
  c.shared[0] = work(p.output, parts_of(p.output, c.size), c.mixed, p.heads.count * p.heads.value_size, at.output);
  c.shared[1] = work(p.feed_outer, parts_of(p.feed_outer, c.size), c.inner, p.inner, at.outer);
}

// The smallest ring that works: a slot may be used twice within one turn of the warps (ClusterGenerator::multiply).
int fewest_stages(const Cluster& c) {
  int most = 4;
  const auto see = [&](const TileWork& w) {
    const int parts = std::min(w.tiles << w.part_shift, cluster_warps);
    most = std::max(most, std::min(w.stages, stages_of(parts * w.blocks) + 2));
  };
  for (const TileWork& w : c.own) see(w);
  for (const TileWork& w : c.shared) see(w);
  return (most + 1) / 2;
}

// Lays out shared memory. T stands for either 16-bit type.
void lay_out(const GenerationProblem& p, Cluster& c) {
  using T = __nv_bfloat16;
  c.bytes = 0;
  const auto aligned = [](std::int64_t bytes) { return (bytes + 127) / 128 * 128; };
  const auto take = [&](std::int64_t bytes) {
    const int begin = c.bytes;
    c.bytes += static_cast<int>(aligned(bytes));
    return begin;
  };
  const std::int64_t n = c.sequences, units = n * c.heads, size = sizeof(T), word = 4;
  const int mixed = p.heads.count * p.heads.value_size, dk = p.heads.key_size, dv = p.heads.value_size;
  c.lay_out_biases(p);
  c.share_of_width = 1.0f / static_cast<float>(p.width);
  c.ring = take(std::int64_t{c.stages} * stage_bytes);
  c.biases = take(word * 2 * c.biases_at.count);
  c.stream = take(word * n * p.width);
  // A hand-over may overwrite the one two before it; `normed` is only needed between two of `deltas`.
  c.normed = c.deltas = take(size * n * pitch_of<T>(p.width));
  c.inner = c.mixed =
      take(std::max(size * n * pitch_of<T>(p.inner), aligned(size * n * pitch_of<T>(mixed)) + word * n * p.vocabulary));
  c.logits = c.mixed + static_cast<int>(aligned(size * n * pitch_of<T>(mixed)));
  c.partials = c.sums = take(word * cluster_warps * std::max(32, dv + 4));
  c.norm_parts = take(static_cast<std::int64_t>(sizeof(NormPart)) * n * cluster_warps);
  std::int64_t parts = 2 * cluster_warps;  // parts of the two products whose tiles warps share
  for (const PackedMatrix* m : {&p.qkv, &p.feed_inner, &p.logits}) parts += m->tiles / c.size;
  c.parts = take(static_cast<std::int64_t>(sizeof(WorkPart)) * parts);
  c.query = take(word * units * dk);
  c.fresh = take(size * units * (dk + dv));
  c.keys = take(units * c.unit_warps * c.key_slots * KeyRing<T>::slot_bytes(c, dv));
  c.plans = take(static_cast<std::int64_t>(sizeof(KeyPlan)) * units * p.plans);
  c.key_shares = take(static_cast<std::int64_t>(sizeof(KeyShare)) * units * p.plans * c.unit_warps);
  c.entries = take(static_cast<std::int64_t>(sizeof(LayerEntry)) * p.layers);
  c.geometry = take(static_cast<std::int64_t>(sizeof(HeadGeometry)) * p.geometries);
  c.head_entries = take(static_cast<std::int64_t>(sizeof(HeadEntry)) * p.plans * p.heads.count);
  c.barriers = take(8 * c.barrier_count());
  lay_out_products(p, c);
}

// Divides shared memory between the ring and the keys: as few chunks of keys as possible, as many of them resident as
// leave a long enough ring, and the longest ring that then fits. `keys`: per warp. c.stages is 0 if there is no room.
void share_memory(const GenerationProblem& p, std::int64_t keys, std::int64_t shared_bytes, Cluster& c) {
  const auto stages_beside = [&](std::int64_t chunks, std::int64_t slots) {
    c.key_slots = static_cast<int>(slots);
    c.slot_keys = static_cast<int>((keys + chunks - 1) / chunks);
    c.stages = 0;
    lay_out(p, c);
    constexpr int barriers_of_a_stage = 16;
    return static_cast<int>((shared_bytes - c.bytes - 128) / (stage_bytes + barriers_of_a_stage));
  };
  constexpr int enough_stages = 5;     // a shorter ring comes before resident keys, a longer one after them
  constexpr int most_more_chunks = 2;  // than the fewest, to make room for the ring
  int stages = 0;
  const std::int64_t fewest = (keys + most_slot_keys - 1) / most_slot_keys;
  for (std::int64_t chunks = fewest; stages < enough_stages && chunks <= fewest + most_more_chunks; ++chunks)
    for (std::int64_t slots = chunks; stages < enough_stages && slots > 0; --slots)
      stages = stages_beside(chunks, slots);
  c.stages = stages >= fewest_stages(c) ? stages : 0;
  lay_out(p, c);
}

Cluster plan_of_size(const GenerationProblem& p, Dtype dtype, int size, std::int64_t most_keys,
                     std::int64_t shared_bytes) {
  Cluster c;
  const int at_once = std::min(most_clusters, clusters_at_once(dtype, size, shared_bytes));
  if (at_once == 0) return {};
  c.sequences = (p.batch + at_once - 1) / at_once;
  c.count = (p.batch + c.sequences - 1) / c.sequences;
  c.size = size;
  c.heads = p.heads.count / size;
  const int units = c.sequences * c.heads;
  if (c.sequences > most_cluster_sequences || units > cluster_warps) return {};
  c.unit_warps = static_cast<int>(std::min<std::int64_t>(cluster_warps / units, (most_keys + few_keys - 1) / few_keys));
  const std::int64_t of_warp = (most_keys + c.unit_warps - 1) / c.unit_warps;
  if (of_warp > most_warp_keys) return {};
  c.key_layout = KeyLayout(p.heads.key_size);
  share_memory(p, of_warp, shared_bytes, c);
  return c.stages > 0 ? c : Cluster{};
}

}  // namespace

Cluster plan_cluster(const GenerationProblem& p, Dtype dtype, std::int64_t most_keys, std::int64_t shared_bytes) {
  if ((dtype != Dtype::bf16 && dtype != Dtype::f16) || !is_hopper()) return {};
  if (p.heads.transformed) return {};  // this kernel cannot transform queries and keys
  for (int size = largest_cluster; size >= smallest_cluster; size /= 2) {
    if (!fits_clusters(p, size)) continue;
    const Cluster c = plan_of_size(p, dtype, size, most_keys, shared_bytes);
    if (c.size > 0) return c;
  }
  return {};
}

void launch_clusters(const GenerationProblem& problem, const Cluster& cluster, const PositionSpan& span, Dtype dtype,
                     const Launch& launch) {
  with_16_bits(dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto bytes = static_cast<std::size_t>(cluster.bytes);
    allow_clusters<T>(bytes);
    Grid grid{static_cast<unsigned>(cluster.size * cluster.count), cluster_threads, bytes};
    grid.cluster = static_cast<unsigned>(cluster.size);
    kernels::cuda::run("generate_cluster", generate_cluster_kernel<T>, grid, launch, problem, cluster, span);
  });
}

}  // namespace longstride::generation
