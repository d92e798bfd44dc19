// The results of dq that are saved, so that they are computed once: gradients of scores, which T's gradient multiplies,
// by distance; and probabilities, from which dk and dv follow, by keys. A unit's tile of queries has a tile of the
// former for every piece of the table that it reads, 64 queries and 64 distances, and one of the latter for every tile
// of keys. Pieces are numbered from the first that has an m that is not negative, tiles of keys alike: that of number n
// meets the pieces n and n + 1.
//
// A tile is as registers hold it, in 16 bytes per lane: columns [16 k, 16 k + 16) of warp w's 16 queries are operand k
// of the warp, and its lanes follow one another at 512 (4 k + w).
#pragma once
#include "kernels/distance_attention/sm90/tiles.cuh"

namespace longstride::kernels::cuda::distance::sm90 {

inline constexpr int saved_operand_bytes = 16 * warp_threads;

// The first of the `of_tile` tiles of query tile t. `unit`: number in the launch.
__device__ inline char* saved_tiles(const Problem& problem, void* saved, std::int32_t of_tile, const Place& p,
                                    std::int32_t t, std::int32_t unit) {
  const std::int64_t number =
      static_cast<std::int64_t>(unit) * problem.call.query_tiles + p.in.first + problem.step * t;
  return static_cast<char*>(saved) + number * of_tile * tile_bytes;
}
__device__ inline char* saved_gradients(const Problem& problem, const Place& p, std::int32_t t, std::int32_t unit) {
  return saved_tiles(problem, problem.call.score_gradients, problem.call.pieces(), p, t, unit);
}
__device__ inline char* saved_probabilities(const Problem& problem, const Place& p, std::int32_t t, std::int32_t unit) {
  return saved_tiles(problem, problem.call.probabilities, problem.call.bands, p, t, unit);
}
// The number of key tile 0 of query tile t. That of key tile s is lower by s.
__device__ inline std::int32_t number_of_first_keys(const Place& p, std::int32_t t) {
  return t - first_band(p.head.origin);
}
// The pieces [begin, end) that the key tiles [keys.begin, keys.end) of query tile t meet.
__device__ inline TileRange saved_pieces(const Place& p, std::int32_t t, TileRange keys) {
  const std::int32_t first = number_of_first_keys(p, t);
  return keys.begin < keys.end ? TileRange{first - keys.end + 1, first - keys.begin + 2} : TileRange{0, 0};
}

// Where a lane saves its share of a query tile's.
class SavedTiles {
 public:
  SavedTiles() = default;
  // `first`: the tile of number 0; `number`: of key tile 0.
  __device__ SavedTiles(char* first, std::int32_t number)
      : to_(first + number * tile_bytes + this_thread() % warpgroup_threads * 16) {}
  // Stores key tile s, or the farther one of its pieces.
  __device__ void store(std::int32_t s, const Operand& saved) const {
    char* const to = to_ - s * tile_bytes;
#pragma unroll
    for (int k = 0; k < 4; ++k)
      __stcs(reinterpret_cast<uint4*>(to + k * warpgroup_warps * saved_operand_bytes),
             uint4{saved[k][0], saved[k][1], saved[k][2], saved[k][3]});
  }

 private:
  char* to_ = nullptr;
};

// A warp's operand k, from the tile's copy in shared memory.
__device__ inline uint4 saved_operand(const char* tile, int k, int warp) {
  return *reinterpret_cast<const uint4*>(tile + (k * warpgroup_warps + warp) * saved_operand_bytes + this_lane() * 16);
}
// Its transpose: rows of distances or of keys.
__device__ inline void load_saved(std::uint32_t (&a)[4], const char* tile, int k, int warp) {
  const uint4 v = saved_operand(tile, k, warp);
  a[0] = transposed(v.x);
  a[1] = transposed(v.z);
  a[2] = transposed(v.y);
  a[3] = transposed(v.w);
}

}  // namespace longstride::kernels::cuda::distance::sm90
