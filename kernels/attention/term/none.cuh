// The term of the portable kernels that adds nothing to a score. A term is one struct of a block's work: which queries
// and keys it has, which of its keys a query sees, and, where it adds to scores, its Tiles: what a block reads besides,
// what that adds to a tile of scores, how probabilities change, and its own gradients.
#pragma once
#include "kernels/attention/portable/tiles.cuh"

namespace longstride::kernels::cuda::portable {

// A block of the grid (classes x tiles, heads of the group, batch). The last tiles of queries come first: causal rows
// have the most keys at the end of a sequence, causal keys the most rows at its beginning.
struct NoTerm {
  using Call = PlanCall;
  static constexpr bool given = false, weighs = false;  // it adds to scores; their exponentials have weights
  static constexpr bool few_sizes = false;              // kernels are made for few sizes of heads
  static constexpr int strips(int, int) { return 1; }   // 16 queries of a warp each, by the sizes of keys and values
  // Both gradients and both score tiles are in registers, so with 128 and 128 columns there is room for half a tile of
  // queries.
  static constexpr int queries_of_keys(int key, int value) { return key + value > 192 ? 32 : 64; }

  // A part's keys of the block's class; their intervals are clamped by the call's bounds.
  struct Seen {
    const Part& part;
    RowSet keys;
    BoundsOfHead bounds;

    __device__ Interval interval(std::int32_t query) const {
      return bounds.clamp(part.interval(keys, query), keys, query);
    }
  };

  const Call& call;
  const PortablePass& pass;
  std::int32_t residue;
  WorkUnit unit;
  RowSet queries;

  // rows: of a tile.
  __device__ NoTerm(const Call& c, Side side, std::int32_t rows)
      : call(c), pass(c.group.pass[c.group.pass_of[blockIdx.y]]) {
    const auto x = static_cast<std::int32_t>(blockIdx.x);
    const std::int32_t tile = x / pass.classes;
    residue = x % pass.classes;
    unit = {static_cast<std::int32_t>(blockIdx.z), c.group.head[blockIdx.y],
            side == Side::queries ? tiles_in(pass.queries.length, rows) - 1 - tile : tile,
            c.group.key_head[blockIdx.y]};
    queries = rows_within(pass.queries, residue, c.n_q);
  }
  static dim3 grid(const Call& call, Side side, std::int32_t rows) {  // large enough for the head with the most tiles
    std::int32_t most = 0;
    for (std::int32_t j = 0; j < call.group.passes; ++j) {
      const PortablePass& pass = call.group.pass[j];
      const std::int32_t length = side == Side::queries ? pass.queries.length : pass.part[0].keys.length;
      most = std::max(most, pass.classes * tiles_in(length, rows));
    }
    return {static_cast<unsigned>(most), static_cast<unsigned>(call.group.heads), static_cast<unsigned>(call.batch)};
  }

  __device__ std::int32_t parts() const { return pass.parts; }
  __device__ bool adds() const { return pass.adds; }  // to what earlier launches wrote
  __device__ Seen seen(std::int32_t part) const {
    return {pass.part[part], rows_within(pass.part[part].keys, residue, call.n_k),
            call.bounds.of(unit.batch, unit.head)};
  }
  // The list of what the block's tile of `rows` may see.
  __device__ BlockList listed(std::int32_t) const { return {}; }
};

// The same with the call's lists, whose walk takes registers that calls without them need.
struct ListedTerm : NoTerm {
  using NoTerm::NoTerm;

  __device__ BlockList listed(std::int32_t rows) const {
    return call.lists.of(unit.batch, unit.head).of_row(unit.tile * rows);
  }
};

struct NoTiles {
  static constexpr int elements = 0;  // in shared memory

  __device__ NoTiles(const NoTerm&, void*) {}
  __device__ void load_queries(std::int32_t, int) const {}
  __device__ void load_piece(std::int32_t, std::int32_t, int) const {}
  __device__ bool reads_ends() const { return false; }  // also where no pair is masked
};
template <class T, int Key, int Queries, int Stages, bool Skew>
struct TilesOf<NoTerm, T, Key, Queries, Stages, Skew> {
  using Type = NoTiles;
};
template <class T, int Key, int Queries, int Stages, bool Skew>
struct TilesOf<ListedTerm, T, Key, Queries, Stages, Skew> {
  using Type = NoTiles;
};

template <>
struct PairsOf<NoTerm> {
  __device__ explicit PairsOf(const NoTerm&) {}
};
template <>
struct PairsOf<ListedTerm> : PairsOf<NoTerm> {
  using PairsOf<NoTerm>::PairsOf;
};

}  // namespace longstride::kernels::cuda::portable
