// Who sees whom in a band, and what room there is for it.
#pragma once
#include <cstdint>

namespace longstride::kernels::cuda::sm90 {

inline constexpr int band_rows = 64;  // of a tile
// Query tiles of a key tile, and key tiles of a query tile, up to which a plan is a band: they are in shared memory
// together, and for more the general kernels are as fast.
inline constexpr std::int32_t most_reach = 5;
inline constexpr int shared_of_block = 227 * 1024, shared_of_multiprocessor = 228 * 1024, shared_reserved = 1024;

// Which queries see a key where queries and keys are one stream, in its entries: key t is seen by [t, beyond(t)).
struct BandShape {
  std::int32_t window = 0, block = 0;  // block > 0: up to the end of t's block; else the window from t on

  constexpr std::int32_t beyond(std::int32_t t) const { return block > 0 ? (t / block + 1) * block : t + window; }
  // The first key that query t sees.
  constexpr std::int32_t low(std::int32_t t) const {
    if (block > 0) return t / block * block;
    return t >= window ? t - window + 1 : 0;
  }
  // Past the last query tile of key tile `tile` in a stream of this length.
  constexpr std::int32_t end_tile(std::int32_t tile, std::int32_t length) const {
    const std::int32_t last = tile * band_rows + band_rows < length ? tile * band_rows + band_rows : length;
    const std::int32_t end = beyond(last - 1) < length ? beyond(last - 1) : length;
    return (end + band_rows - 1) / band_rows;
  }
};

}  // namespace longstride::kernels::cuda::sm90
