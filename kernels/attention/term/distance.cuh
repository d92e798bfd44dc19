// The term of attention with distances (distance_attention.h) in the portable kernels: rows of the table in scores,
// weights of exponentials, dropped probabilities, and sums for the gradients of parameters. A block has one class of a
// dilated head.
#pragma once
#include "kernels/attention/portable/tiles.cuh"
#include "kernels/distance_attention/gpu/head.cuh"

namespace longstride::kernels::cuda::portable {

using distance::Head;

struct DistanceTerm {
  using Call = distance::PortableCall;
  static constexpr bool given = true, weighs = true, few_sizes = false;
  // Strips share what they read from shared memory, which limits the forward kernel, but there are registers for two
  // only with small heads.
  static constexpr int strips(int key, int value) { return key + value <= 128 ? 2 : 1; }
  static constexpr int queries_of_keys(int, int) { return distance::tile_rows; }

  // The keys of a class.
  struct Seen {
    RowSet keys;
    ResidueClass in;
    Reach reach;
    std::int32_t before;  // position of query row 0
    BoundsOfHead bounds;

    __device__ Seen(const Call& call, const Head& head, const ResidueClass& in_)
        : keys(rows_of(in_.first, in_.step, in_.entries)),
          in(in_),
          reach(head.reach),
          before(call.n_k - call.n_q),
          bounds(call.bounds.of(head.sequence, head.head)) {}
    __device__ Interval interval(std::int32_t query) const {
      const std::int32_t entry = (query + before - in.first) / in.step;
      return bounds.clamp({max(in.first_key, entry - reach.end + 1), entry - reach.begin + 1}, keys, query);
    }
  };

  const Call& call;
  Head head;
  std::int32_t number;  // counts the tiles of all classes of a head: neighbours are of different classes
  ResidueClass in;
  WorkUnit unit;
  RowSet queries;

  // The last tiles of queries come first: they have the most keys.
  __device__ DistanceTerm(const Call& c, Side side, std::int32_t)
      : call(c),
        head(c.of, static_cast<std::int32_t>(blockIdx.z), static_cast<std::int32_t>(blockIdx.y)),
        number(static_cast<std::int32_t>(side == Side::queries ? gridDim.x - 1 - blockIdx.x : blockIdx.x)),
        in(residue_class(number % head.step, head.step, c.n_q, c.n_k, head.first_key)),
        unit{head.sequence, head.head, number / head.step, head.head},
        queries(rows_of(in.position(in.first_query) - (c.n_k - c.n_q), in.step, in.entries - in.first_query)) {}
  static dim3 grid(const Call& call, Side side, std::int32_t rows) {
    std::int32_t most = 0;
    for (std::int32_t h = 0; h < call.heads; ++h) {
      const std::int32_t step = call.of.step[h], n = side == Side::queries ? call.n_q : call.n_k;
      most = std::max(most, step * tiles_in(tiles_in(n, step), rows));
    }
    // dq writes sums of every tile that there is room for.
    if (side == Side::queries && rows <= distance::tile_rows) most = call.of.query_tiles;
    return {static_cast<unsigned>(most), static_cast<unsigned>(call.heads), static_cast<unsigned>(call.batch)};
  }

  __device__ std::int32_t parts() const { return 1; }
  __device__ bool adds() const { return false; }
  __device__ Seen seen(std::int32_t) const { return {call, head, in}; }
  __device__ BlockList listed(std::int32_t) const { return {}; }

  // The sums over this tile's queries of the gradients of the biases and the span.
  __device__ float* sums() const {
    const std::int64_t of_head = static_cast<std::int64_t>(head.sequence) * call.heads + head.head;
    return call.of.bias_sums + (of_head * call.of.query_tiles + number) * (2 * call.key_size + 1);
  }
  __device__ void clear_sums() const {
    if (number >= call.of.query_tiles) return;
    for (int x = this_thread(); x < 2 * call.key_size + 1; x += block_threads) sums()[x] = 0;
  }

 private:
  // Entries of a class that begin at a position.
  __device__ static RowSet rows_of(std::int32_t first, std::int32_t step, std::int32_t length) {
    const std::int32_t count = max(length, 0), run = step == 1 ? max(count, 1) : 1;
    return {first, run, step == 1 ? run : step, count};
  }
};

}  // namespace longstride::kernels::cuda::portable
