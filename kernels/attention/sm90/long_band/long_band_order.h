// The pairs of tiles of a band that is too wide for its key tiles to share their queries' gradients in shared memory
// (band_shape.h: most_reach), and the order in which blocks sum dQ over it in turns, as host code.
//
// A task is a tile of 128 or 192 keys, strips of 64, and all tiles of 64 queries that see it, from the last to the
// diagonal. Its contributions to dQ are added to sums in global memory, which have a slot per query tile. A counter in
// the slot says whose turn it is: key tiles take turns in ascending order. The first one stores, and the one that
// contains the queries' own keys comes last and takes the sum away. Then the slot is free for the next query tile. A
// contribution waits for those of earlier tasks alone, so blocks that take tasks in their order never wait for each
// other in a circle.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/attention/sm90/band/band_shape.h"

namespace longstride::kernels::cuda::sm90 {

// The strips of a key tile, one per warpgroup that has keys, for heads padded to this: a third warpgroup has registers
// only where dK and dV are narrow.
constexpr std::int32_t key_strips(std::int32_t head) { return head <= 32 ? 3 : 2; }

// The pairs of tiles of one class of `length` entries.
struct LongBandOrder {
  BandShape shape;
  std::int32_t length = 0;
  std::int32_t strips = 2;  // per key tile

  constexpr std::int32_t key_rows() const { return strips * band_rows; }
  constexpr std::int32_t key_tiles() const { return (length + key_rows() - 1) / key_rows(); }
  // The query tiles that see a strip of a key tile, or none. Strips beyond the end of the class begin and end there.
  constexpr std::int32_t begin_of(std::int32_t key, std::int32_t strip) const {
    return std::min(strips * key + strip, (length + band_rows - 1) / band_rows);
  }
  constexpr std::int32_t end_of(std::int32_t key, std::int32_t strip) const {
    const std::int32_t tile = strips * key + strip;
    return tile * band_rows < length ? shape.end_tile(tile, length) : begin_of(key, strip);
  }
  // The query tiles that see a key tile: from its first strip on, until those of its last strip end.
  constexpr std::int32_t end_of(std::int32_t key) const { return end_of(key, strips - 1); }
  // The key tiles that a query tile sees.
  constexpr std::int32_t first_key(std::int32_t query) const { return shape.low(query * band_rows) / key_rows(); }
  constexpr std::int32_t last_key(std::int32_t query) const { return query / strips; }
  // Tasks are key tiles. The turns of those that a query tile sees, from 0.
  constexpr std::int32_t tasks() const { return key_tiles(); }
  constexpr std::int32_t begin_of(std::int32_t key) const { return strips * key; }
  constexpr std::int32_t turn(std::int32_t key, std::int32_t query) const { return key - first_key(query); }
  constexpr bool is_last(std::int32_t key, std::int32_t query) const { return last_key(query) == key; }
};

// The slots of the sums of query tiles: `lanes` classes side by side, each with a ring of `ring` slots. Groups of as
// many classes follow one another.
struct TurnRing {
  std::int32_t lanes = 1, ring = 1;
  std::int32_t tiles = 0;        // query tiles in every class
  std::uint32_t most_turns = 1;  // per query tile

  constexpr std::int32_t slot(std::int32_t lane, std::int32_t query) const { return lane * ring + query % ring; }
  // Initial value of the slot's counter. Every turn but the last adds one, which gives the value that the slot's next
  // tile waits for.
  constexpr std::uint32_t first_turn(std::int32_t group, std::int32_t query) const {
    const std::int32_t at = query % ring, occupants = tiles / ring + (at < tiles % ring ? 1 : 0);
    return (static_cast<std::uint32_t>(group) * static_cast<std::uint32_t>(occupants) +
            static_cast<std::uint32_t>(query / ring)) *
           most_turns;
  }
};

}  // namespace longstride::kernels::cuda::sm90
