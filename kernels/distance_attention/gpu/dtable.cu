// The gradient of T's rows of one band (call.h) of a head, over a chunk of the tiles of queries of all sequences: dS
// along distances, transposed, times q + v.
#include "kernels/attention/term/distance.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/distance_attention/gpu/probabilities.cuh"

namespace longstride::kernels::cuda::distance {
namespace {

template <class T, int Key, int Value>
struct DtableShared {
  struct Stage {
    T content[tile_rows * Key], position[tile_rows * Key], dout[tile_rows * Value];
    T k[tile_rows * Key], v[tile_rows * Value];
  };
  Stage stage[2];
  T window[2 * tile_rows * Key];
  T skewed[block_warps][skew_elements];
};

// The rows x = 16 block + (0 .. 15) of a band: d (16 x Columns) += dS of the warps whose queries reach them, times
// their rows of `position`. Warp w's dS begins at x = 16 w.
template <class T, int Columns>
__device__ inline void add_band_rows(float (&d)[Columns / 8][4], const T* skewed, int block,
                                     Tile<T, Columns> position) {
  const int lane = this_lane();
#pragma unroll
  for (int w = 0; w < block_warps; ++w) {
    const int at = block - w;  // sixteen columns of the warp's dS
    if (at < 0 || at >= skew_columns / 16) continue;
    std::uint32_t left[1][4];
    load_matrices_transposed(
        left[0], skewed + w * skew_elements + (lane % 8 + lane / 16 * 8) * skew_stride + 16 * at + lane / 8 % 2 * 8);
    portable::multiply_fragment<T>(reinterpret_cast<float(&)[1][Columns / 8][4]>(d), left, position, 16 * w);
  }
}

// A lane's two rows of a tile of queries.
struct LaneRows {
  float lse[2] = {INFINITY, INFINITY}, delta[2] = {0, 0};  // lse in base 2; infinity where there is no query: P = 0
  portable::TwoIntervals seen{};

  __device__ LaneRows(const PortableCall& whole, const Place& p) {
    const portable::DistanceTerm::Seen keys(whole, p.head, p.in);
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const std::int32_t entry = entry_of(p, fragment_row(2 * upper));
      if (!p.is_query(entry)) continue;
      const std::int32_t i = p.query(whole.of, entry);
      lse[upper] = whole.lse[p.head.row(whole.of, i)] * log2_e;
      delta[upper] = whole.delta[p.head.row(whole.of, i)];
      const Interval in = keys.interval(i);
      seen.low[upper] = in.begin;
      seen.high[upper] = in.end;
    }
  }
  __device__ DrawnRows drawn(const Call& call, const Place& p) const {
    return {call, p.head, [&](int r) { return p.is_query(entry_of(p, r)) ? p.query(call, entry_of(p, r)) : 0; }};
  }
  __device__ static std::int32_t entry_of(const Place& p, int r) { return p.first_query(p.tile) + warp_row() + r; }
};

// The units (sequence, query tile) of a chunk, those without a visible pair in the band left out.
class Units {
 public:
  __device__ Units(const Call& call, std::int32_t head, std::int32_t apart, std::int32_t begin, std::int32_t end)
      : call_(call), head_(head), apart_(apart), at_(begin), end_(end) {
    seek();
  }
  __device__ bool more() const { return at_ < end_; }
  __device__ Place place() const { return {call_, at_ / call_.query_tiles, head_, at_ % call_.query_tiles}; }
  __device__ void advance() {
    ++at_;
    seek();
  }

 private:
  __device__ void seek() {
    const std::int32_t tiles = query_tiles_of(call_.n_q, call_.step[head_]);
    for (; at_ < end_; ++at_) {
      if (at_ % call_.query_tiles >= tiles) continue;
      const Place p = place();
      const TileRange range = key_tiles(p, p.tile);
      if (p.tile - apart_ >= range.begin && p.tile - apart_ < range.end) return;
    }
  }

  const Call& call_;
  std::int32_t head_, apart_, at_, end_;
};

template <class T, int Key, int Value>
__global__ void __launch_bounds__(block_threads) dtable_kernel(const __grid_constant__ PortableCall whole) {
  const Call& call = whole.of;
  const auto band = static_cast<std::int32_t>(blockIdx.x), h = static_cast<std::int32_t>(blockIdx.y);
  const auto chunk = static_cast<std::int32_t>(blockIdx.z);
  const std::int32_t units = call.batch * call.query_tiles, per_chunk = (units + call.chunks - 1) / call.chunks;
  const std::int32_t apart = first_band(origin_of(call.n_q, call.n_k, call.step[h])) + band;
  Units next(call, h, apart, min(chunk * per_chunk, units), min((chunk + 1) * per_chunk, units));

  extern __shared__ __align__(128) char memory[];
  auto& shared = *reinterpret_cast<DtableShared<T, Key, Value>*>(memory);
  const SkewedGradient<T> skewed{shared.skewed[this_warp()]};
  const Window<T, Key, 2> window{shared.window};
  const auto load = [&](const Place& p, int stage) {
    auto& to = shared.stage[stage];
    load_queries(call, call.content, p, p.tile, Tile<T, Key>{to.content}, call.size);
    load_queries(call, call.position, p, p.tile, Tile<T, Key>{to.position}, call.size);
    load_queries(call, call.dout, p, p.tile, Tile<T, Value>{to.dout}, call.value_size);
    load_keys(call, call.k, p, p.tile - apart, Tile<T, Key>{to.k}, call.size);
    load_keys(call, call.v, p, p.tile - apart, Tile<T, Value>{to.v}, call.value_size);
  };
  if (next.more()) {
    const Place p = next.place();
    window.load(call, p.head, p.head.origin, apart);
    window.load(call, p.head, p.head.origin, apart + 1);
    load(p, 0);
  }
  copies_commit();
  skewed.clear();

  float acc[2][Key / 8][4] = {};  // rows 32 warp + (0 .. 31) of the band
  for (int stage = 0; next.more(); stage ^= 1) {
    const Place p = next.place();
    next.advance();
    const LaneRows rows(whole, p);
    copies_wait<0>();
    __syncthreads();
    if (next.more()) load(next.place(), stage ^ 1);
    copies_commit();
    auto& now = shared.stage[stage];
    const Tile<T, Key> position{now.position};
    const bool masked = TilePairs(p, p.tile, p.tile - apart).masked || whole.bounds.begin != nullptr;
    const EntryPairs pairs(p.head, p.first_query(p.tile), (p.tile - apart) * tile_rows, tile_rows);
    float x[1][scores][4], dp[scores][4];
    multiply_transposed<T, tile_rows>(x[0], Tile<T, Key>{now.content}, warp_row(), Tile<T, Key>{now.k});
    add_distance_scores(x, position, warp_row(), window, apart);
    multiply_transposed<T, tile_rows>(dp, Tile<T, Value>{now.dout}, warp_row(), Tile<T, Value>{now.v});
    to_score_gradients(
        call, p.head, p.in, pairs, warp_row(), [&] { return rows.drawn(call, p); }, rows.lse, rows.delta, masked,
        rows.seen, x[0], dp);
    skewed.store(dp);
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) add_band_rows(acc[half], shared.skewed[0], 2 * this_warp() + half, position);
  }
  copies_wait<0>();

  const std::int64_t at = (static_cast<std::int64_t>(chunk) * call.heads + h) * call.bands + band;
  float* const to = call.table_sums + at * band_rows * call.size;
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int j = 0; j < Key / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = 32 * this_warp() + 16 * half + fragment_row(e), column = fragment_column(j, e);
        if (column < call.size) to[row * call.size + column] = acc[half][j][e] * call.scale;
      }
}

// dS of query i and the key m before it, 0 if it does not see that key.
__device__ inline float score_gradient(const PortableCall& whole, const Head& head, std::int32_t i, std::int32_t m) {
  const Call& call = whole.of;
  const std::int32_t before = call.n_k - call.n_q + i, j = before - m * head.step;
  const BoundsOfHead bounds = whole.bounds.of(head.sequence, head.head);
  const float weight = head.ramp.weight(m * head.step);
  if (m < head.reach.begin || m >= head.reach.end || j < head.first_key || weight == 0) return 0;
  if (bounds.given() && (j < bounds.begin[i] || j >= bounds.end[i])) return 0;
  const auto dot = [](const float* a, const float* b, int size) {
    float sum = 0;
    for (int d = 0; d < size; ++d) sum = fmaf(a[d], b[d], sum);
    return sum;
  };
  const float score = dot(row_of<const float>(call.content, head, i), row_of<const float>(call.k, head, j), call.size) +
                      dot(row_of<const float>(call.position, head, i), distance_row<float>(call, head, m), call.size);
  const float dp = dot(row_of<const float>(call.dout, head, i), row_of<const float>(call.v, head, j), call.value_size);
  const bool kept = call.kept.keeps(call.kept.row(head.sequence, head.head, i), j, call.kept.step_word());
  const std::int64_t row = head.row(call, i);
  return weight * expf(score * call.scale - call.lse[row]) * (dp * (kept ? call.keep_scale : 0.0f) - call.delta[row]);
}

// In f32: a warp has one m after another, and a lane every 32nd query that has it. The block writes the sums as the
// rows of one band, and zeros as those of the other.
__global__ __launch_bounds__(block_threads) void dtable_f32_kernel(const __grid_constant__ PortableCall whole) {
  const Call& call = whole.of;
  const auto band = static_cast<std::int32_t>(blockIdx.x), h = static_cast<std::int32_t>(blockIdx.y);
  const auto chunk = static_cast<std::int32_t>(blockIdx.z);
  const std::int32_t units = call.batch * call.query_tiles, per_chunk = (units + call.chunks - 1) / call.chunks;
  const std::int64_t at = (static_cast<std::int64_t>(chunk) * call.heads + h) * call.bands + band;
  for (std::int32_t x = this_warp(); x < band_rows; x += block_warps) {
    float sum[portable::plain_vectors] = {};
    for (std::int32_t unit = chunk * per_chunk; unit < min(units, (chunk + 1) * per_chunk) && x < tile_rows; ++unit) {
      const Head head(call, unit / call.query_tiles, h);
      const std::int32_t m = band_begin(head.origin, band) + x, begin = unit % call.query_tiles * portable::plain_rows;
      const std::int32_t i = begin + this_lane();
      const float own = i < call.n_q && m >= 0 ? score_gradient(whole, head, i, m) : 0.0f;
      for (int lane = 0; lane < warp_threads; ++lane) {
        const float ds = __shfl_sync(0xFFFFFFFFu, own, lane);
        if (ds == 0) continue;
        const float* const from = row_of<const float>(call.position, head, begin + lane);
#pragma unroll
        for (int e = 0; e < portable::plain_vectors; ++e) {
          const int column = e * warp_threads + this_lane();
          if (column < call.size) sum[e] = fmaf(ds, from[column], sum[e]);
        }
      }
    }
#pragma unroll
    for (int e = 0; e < portable::plain_vectors; ++e) {
      const int column = e * warp_threads + this_lane();
      if (column < call.size) call.table_sums[(at * band_rows + x) * call.size + column] = sum[e] * call.scale;
    }
  }
}

template <class Kernel>
void run_dtable(Kernel kernel, const PortableCall& whole, std::size_t bytes, const Launch& launch) {
  const Call& call = whole.of;
  const dim3 blocks(static_cast<unsigned>(call.bands), static_cast<unsigned>(call.heads),
                    static_cast<unsigned>(call.chunks));
  allow_shared(kernel, bytes);
  run("distance attention dtable", kernel, {blocks, block_threads, bytes}, launch, whole);
}

}  // namespace

template <class T>
void dtable(const PortableCall& whole, const Launch& launch) {
  portable::with_head_sizes(whole.key_size, whole.value_size, [&](auto sizes) {
    constexpr int key = decltype(sizes)::key, value = decltype(sizes)::value;
    run_dtable(dtable_kernel<T, key, value>, whole, sizeof(DtableShared<T, key, value>), launch);
  });
}
template <>
void dtable<float>(const PortableCall& whole, const Launch& launch) {
  run_dtable(dtable_f32_kernel, whole, 0, launch);
}
template void dtable<__nv_bfloat16>(const PortableCall&, const Launch&);
template void dtable<__half>(const PortableCall&, const Launch&);

}  // namespace longstride::kernels::cuda::distance
