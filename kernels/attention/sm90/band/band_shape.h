// Which queries of a band see which keys, and the limit on tiles in shared memory.
#pragma once
#include <cstdint>

namespace longstride::kernels::cuda::sm90 {

inline constexpr int band_rows = 64;  // per tile
// A band is short if no key tile has more query tiles, and no query tile more key tiles, than this: they are in shared
// memory together. Long bands have kernels of their own (sm90/long_band).
inline constexpr std::int32_t most_reach = 5;
// The same forward, with keys or values of more than 64 columns, which leave less room.
inline constexpr std::int32_t most_large_reach = 4;
// The same forward, with heads of 40 to 64, where three warpgroups share one ring of keys.
inline constexpr std::int32_t most_shared_reach = 9;
// Backward, larger keys have no kernel for bands.
inline constexpr std::int32_t widest_band_key = 64;
inline constexpr int shared_of_block = 227 * 1024, shared_of_multiprocessor = 228 * 1024, shared_reserved = 1024;

// The queries that see a key where queries and keys are one row set, in its entries: key t is seen by [t, beyond(t)).
struct BandShape {
  std::int32_t window = 0, block = 0;  // block > 0: up to the end of t's block; else the window from t on

  constexpr std::int32_t beyond(std::int32_t t) const { return block > 0 ? (t / block + 1) * block : t + window; }
  // The first key that query t sees.
  constexpr std::int32_t low(std::int32_t t) const {
    if (block > 0) return t / block * block;
    return t >= window ? t - window + 1 : 0;
  }
  // The end of the query tiles of key tile `tile` in a row set of this length.
  constexpr std::int32_t end_tile(std::int32_t tile, std::int32_t length) const {
    const std::int32_t last = tile * band_rows + band_rows < length ? tile * band_rows + band_rows : length;
    const std::int32_t end = beyond(last - 1) < length ? beyond(last - 1) : length;
    return (end + band_rows - 1) / band_rows;
  }
};

}  // namespace longstride::kernels::cuda::sm90
