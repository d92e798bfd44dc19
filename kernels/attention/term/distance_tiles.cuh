// The distance term's Tiles, for products by tensor cores: its shared memory and what it does in each kernel's loop.
#pragma once
#include "kernels/attention/term/distance.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/distance_attention/gpu/probabilities.cuh"

namespace longstride::kernels::cuda::portable {

// Tiles of `Queries` rows of q and the position bias, `Stages` of them, and the rows of the table for the pairs of one
// and a key tile (distance_attention/gpu/tile.cuh). `Skew`: with room for a warp's dS along distances.
template <class T, int Key, int Queries, int Stages, bool Skew>
class DistanceTiles {
  static constexpr int rows_of_tile = distance::tile_rows, strips = Queries / rows_of_tile;
  using Window = distance::Window<T, Key, strips + 2>;
  static constexpr int positions = Stages * Queries * Key, window = (strips + 2) * rows_of_tile * Key;

 public:
  static constexpr int elements = positions + window + (Skew ? distance::block_warps * distance::skew_elements : 0);

  __device__ DistanceTiles(const DistanceTerm& term, T* memory)
      : term_(term), memory_(memory), window_{memory + positions} {
    if constexpr (Skew) skewed().clear();
  }

  // For the queries from entry `begin` on.
  __device__ void load_queries(std::int32_t begin, int stage) const {
    if (of().table == nullptr) return;
    load_tile<Queries>(position(stage), HeadRows<const T>(of().position, term_.unit), term_.call.key_size,
                       EntryPositions(term_.queries), begin, term_.call.aligned);
  }
  // The 64 rows of the table from the nearest on, or as many after them, for the tiles with these first entries.
  __device__ void load_piece(std::int32_t queries, std::int32_t keys, int ahead) const {
    window_.load(of(), term_.head, term_.in.first_query, (queries - keys) / rows_of_tile + ahead);
  }

  __device__ distance::EntryPairs pairs(std::int32_t queries, std::int32_t keys) const {
    return {term_.head, term_.in.first_query + queries, keys, Queries};
  }
  __device__ bool reads_ends() const { return false; }
  // True if no query of the warp whose first row is `row` sees a key of the tile.
  __device__ bool unseen(const distance::EntryPairs& pairs, int row) const {
    const std::int32_t farthest = pairs.base + row + strips * distance::warp_rows - 1,
                       nearest = pairs.base + row - rows_of_tile + 1;
    return farthest < term_.head.reach.begin || nearest >= term_.head.reach.end;
  }

  template <int Strips>
  __device__ void add_scores(float (&s)[Strips][distance::scores][4], int stage, int row, std::int32_t queries,
                             std::int32_t keys) const {
    if (of().table != nullptr)
      distance::add_distance_scores(s, position(stage), row, window_, (queries - keys) / rows_of_tile);
  }
  // Drops probabilities and scales the kept ones. row: of the warp's first query, as an entry.
  __device__ void drop(float (&p)[distance::scores][4], std::int32_t row, std::int32_t keys) const {
    if (of().kept.limit == 0) return;
    distance::each_kept(of(), term_.in, drawn(row), keys, [&](int j, int e, float keep) { p[j][e] *= keep; });
  }
  // As distance::to_score_gradients, of the warp whose first row is `row` of the tile.
  __device__ float to_gradients(float (&s)[distance::scores][4], float (&dp)[distance::scores][4],
                                const float (&lse)[2], const float (&delta)[2], bool masked, const TwoIntervals& seen,
                                int row, std::int32_t queries, std::int32_t keys) const {
    return distance::to_score_gradients(
        of(), term_.head, term_.in, pairs(queries, keys), row, [&] { return drawn(queries + row); }, lse, delta, masked,
        seen, s, dp);
  }
  // d += dS times the rows of the table.
  __device__ void add_gradients(float (&d)[Key / 8][4], const float (&ds)[distance::scores][4], std::int32_t queries,
                                std::int32_t keys) const {
    if (of().table == nullptr) return;
    skewed().store(ds);
    __syncwarp();
    distance::multiply_skewed<Key>(d, skewed(), window_, (queries - keys) / rows_of_tile);
    __syncwarp();
  }

  // Adds dq through the table to dq through the keys, and writes the block's sums of gradients. Both lack the scale.
  // Called once nothing is copied any more.
  __device__ void finish(float (&by_content)[Key / 8][4], const float (&by_position)[Key / 8][4], float span) const {
    auto* const sums = reinterpret_cast<float*>(window_.data);
    const int size = term_.call.key_size, width = 2 * size + 1;
    static_assert(distance::block_warps * (2 * Key + 1) * sizeof(float) <= sizeof(T) * window);
    float* const own = sums + this_warp() * width;
    sum_rows(by_content, own);
    sum_rows(by_position, own + size);
    span = warp_sum(span);
    if (this_lane() == 0) own[2 * size] = of().span != nullptr ? span * (of().longest_span / of().ramp) : 0.0f;
    __syncthreads();
    for (int x = this_thread(); x < width; x += block_threads)
      term_.sums()[x] = sums[x] + sums[x + width] + sums[x + 2 * width] + sums[x + 3 * width];
#pragma unroll
    for (int j = 0; j < Key / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) by_content[j][e] += by_position[j][e];
  }

 private:
  __device__ const distance::Call& of() const { return term_.call.of; }
  __device__ Tile<T, Key> position(int stage) const { return {memory_ + stage * Queries * Key}; }
  __device__ distance::SkewedGradient<T> skewed() const {
    return {memory_ + positions + window + this_warp() * distance::skew_elements};
  }
  __device__ distance::DrawnRows drawn(std::int32_t row) const {
    return {of(), term_.head,
            [&](int r) { return row + r < term_.queries.length ? term_.queries.position(row + r) : 0; }};
  }
  // The sums over a warp's 16 rows of its accumulator, times the scale.
  __device__ void sum_rows(const float (&d)[Key / 8][4], float* to) const {
#pragma unroll
    for (int j = 0; j < Key / 8; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float sum = d[j][e] + d[j][e + 2];
#pragma unroll
        for (int offset = 4; offset < warp_threads; offset *= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
        const int column = distance::fragment_column(j, e);
        if (this_lane() < 4 && column < term_.call.key_size) to[column] = sum * term_.call.scale;
      }
  }

  const DistanceTerm& term_;
  T* memory_;
  Window window_;
};

template <class T, int Key, int Queries, int Stages, bool Skew>
struct TilesOf<DistanceTerm, T, Key, Queries, Stages, Skew> {
  using Type = DistanceTiles<T, Key, Queries, Stages, Skew>;
};

}  // namespace longstride::kernels::cuda::portable
