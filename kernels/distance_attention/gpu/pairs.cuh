// The geometry of tiles: which tiles a block visits, and which pairs of a tile are visible. Query tile t of a class
// holds the entries origin + 64 t + r and key tile s the entries 64 s + c, so their pairs are m = base + r - c entries
// apart, with base = origin + 64 (t - s).
#pragma once
#include "kernels/distance_attention/gpu/head.cuh"

namespace longstride::kernels::cuda::distance {

// A tile of queries or of keys of one class of a head.
struct Place {
  Head head;
  ResidueClass in;
  std::int32_t tile;

  // `number` counts the tiles of all classes.
  __device__ Place(const Call& call, std::int32_t sequence, std::int32_t head_, std::int32_t number)
      : head(call, sequence, head_),
        in(residue_class(number % head.step, head.step, call.n_q, call.n_k, head.first_key)),
        tile(number / head.step) {}

  __device__ std::int32_t first_query(std::int32_t t) const { return head.origin + t * tile_rows; }  // entry
  __device__ bool is_query(std::int32_t entry) const { return entry >= in.first_query && entry < in.entries; }
  __device__ std::int32_t query(const Call& call, std::int32_t entry) const {
    return in.position(entry) - (call.n_k - call.n_q);
  }
};

struct TileRange {
  std::int32_t begin, end;
};

__device__ inline TileRange joined(TileRange a, TileRange b) {
  if (a.begin >= a.end) return b;
  if (b.begin >= b.end) return a;
  return {min(a.begin, b.begin), max(a.end, b.end)};
}

// The key tiles with a pair that is visible from query tile t.
__device__ inline TileRange key_tiles(const Place& p, std::int32_t t) {
  const std::int32_t low = max(p.first_query(t), p.in.first_query);
  const std::int32_t high = min(p.first_query(t) + tile_rows, p.in.entries);
  const std::int32_t first = max(max(p.in.first_key, 0), low - p.head.reach.end + 1);
  const std::int32_t last = high - 1 - p.head.reach.begin;
  if (low >= high || first > last || p.head.reach.begin >= p.head.reach.end) return {0, 0};
  return {first / tile_rows, last / tile_rows + 1};
}

// The query tiles with a pair that is visible from key tile s.
__device__ inline TileRange query_tiles(const Place& p, std::int32_t s) {
  const std::int32_t low = max(s * tile_rows, p.in.first_key), high = min((s + 1) * tile_rows, p.in.entries);
  const std::int32_t first = max(p.in.first_query, low + p.head.reach.begin);
  const std::int32_t last = min(p.in.entries - 1, high - 1 + p.head.reach.end - 1);
  if (low >= high || first > last || p.head.reach.begin >= p.head.reach.end) return {0, 0};
  return {(first - p.head.origin) / tile_rows, (last - p.head.origin) / tile_rows + 1};
}

// The pairs of `rows` queries from query tile t on and key tile s.
struct TilePairs {
  std::int32_t base, first_key;  // m of (0, 0); columns before first_key are hidden
  bool masked, ramped;           // some pairs are not visible, or have a weight below 1

  __device__ TilePairs(const Place& p, std::int32_t t, std::int32_t s, std::int32_t rows = tile_rows)
      : base(p.first_query(t) - s * tile_rows), first_key(p.in.first_key - s * tile_rows) {
    const std::int32_t nearest = base - (tile_rows - 1), farthest = base + rows - 1;
    masked = nearest < p.head.reach.begin || farthest >= p.head.reach.end || first_key > 0;
    ramped = p.head.ramp.slope != 0 && p.head.ramp.weight(farthest * p.head.step) < 1;
  }
  __device__ bool visible(const Head& head, std::int32_t r, std::int32_t c) const {
    const std::int32_t m = base + r - c;
    return m >= head.reach.begin && m < head.reach.end && c >= first_key;
  }
};

}  // namespace longstride::kernels::cuda::distance
