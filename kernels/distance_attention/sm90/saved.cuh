// Gradients of scores by distance: dq saves them and T's gradient multiplies them, so they are computed once. A unit's
// tile of queries has a tile of them for every piece of the table that it reads: 64 queries and 64 distances. Pieces
// are numbered from the first that has an m that is not negative.
//
// A tile is as registers hold it, in 16 bytes per lane: distances [16 k, 16 k + 16) of warp w's 16 queries are operand
// k of the warp, and its lanes follow one another at 512 (4 k + w).
#pragma once
#include "kernels/distance_attention/sm90/tiles.cuh"

namespace longstride::kernels::cuda::distance::hopper {

inline constexpr int saved_operand_bytes = 16 * warp_threads;

// Piece 0 of query tile t of a place. `unit`: of the launch.
__device__ inline char* saved_tile(const Problem& problem, const Place& p, std::int32_t t, std::int32_t unit) {
  const Call& call = problem.call;
  const std::int64_t number = static_cast<std::int64_t>(unit) * call.query_tiles + p.in.first + problem.step * t;
  return static_cast<char*>(call.score_gradients) + number * call.pieces() * tile_bytes;
}
// The pieces [begin, end) that the key tiles [keys.begin, keys.end) of query tile t meet.
__device__ inline TileRange saved_pieces(const Place& p, std::int32_t t, TileRange keys) {
  const std::int32_t nearest = t - first_band(p.head.origin);
  return keys.begin < keys.end ? TileRange{nearest - keys.end + 1, nearest - keys.begin + 2} : TileRange{0, 0};
}

// Where a lane saves its share of a query tile, if at all.
class SavedTile {
 public:
  SavedTile() = default;
  __device__ SavedTile(const Problem& problem, const Place& p, std::int32_t t, std::int32_t unit) {
    if (problem.call.score_gradients == nullptr) return;
    const std::int32_t farther = t - first_band(p.head.origin) + 1;
    farther_ = saved_tile(problem, p, t, unit) + farther * tile_bytes + this_thread() % warpgroup_threads * 16;
  }
  // The farther of the two pieces that key tile s meets.
  __device__ void store(std::int32_t s, const Operand& gradients) const {
    if (farther_ == nullptr) return;
    char* const to = farther_ - s * tile_bytes;
#pragma unroll
    for (int k = 0; k < 4; ++k)
      __stcs(reinterpret_cast<uint4*>(to + k * warpgroup_warps * saved_operand_bytes),
             uint4{gradients[k][0], gradients[k][1], gradients[k][2], gradients[k][3]});
  }

 private:
  char* farther_ = nullptr;  // of key tile 0
};

// The transpose of operand k of the 16 queries of a warp, from the tile's copy in shared memory: rows of distances.
__device__ inline void load_saved(std::uint32_t (&a)[4], const char* tile, int k, int warp) {
  const uint4 v =
      *reinterpret_cast<const uint4*>(tile + (k * warpgroup_warps + warp) * saved_operand_bytes + this_lane() * 16);
  a[0] = transposed(v.x);
  a[1] = transposed(v.z);
  a[2] = transposed(v.y);
  a[3] = transposed(v.w);
}

}  // namespace longstride::kernels::cuda::distance::hopper
