// The arguments of the CUDA kernels of attention with a distance term, passed by value. Three kernels compute
// gradients, each of which recomputes scores (on Hopper the others read what dq has saved) and alone writes its
// results, so no sum depends on the order of blocks: dq of a tile of queries, dk and dv of a tile of keys, and T's
// gradient of some distances. What blocks add to gradients of parameters is kept apart and then added in order.
#pragma once
#include <cstdint>

#include "kernels/attention/portable/portable.h"
#include "kernels/distance_attention/distance_attention.h"
#include "kernels/distance_attention/visible.h"

namespace longstride::kernels::cuda::distance {

inline constexpr std::int32_t tile_rows = 64;  // queries or keys of a tile
inline constexpr std::int32_t most_heads = most_distance_on_gpu;

struct Call {
  HeadMatrix q, k, v, o, dout, dq, dk, dv;
  HeadMatrix content, position;                // q + u and q + v; q itself without a bias, or for hopper::forward
  const void* table = nullptr;                 // rows of `distances`; null without a distance term
  std::int64_t table_row = 0, table_head = 0;  // strides
  const float *content_bias = nullptr, *position_bias = nullptr, *span = nullptr;
  const std::int32_t* first_key = nullptr;
  float* lse = nullptr;
  const float* delta = nullptr;
  float* bias_sums = nullptr;  // (batch, heads, query tiles, 2 size + 1): of u, v and the span
  // (chunks, heads, bands, band_rows, size); on Hopper (chunks, heads, pieces, tile_rows, size)
  float* table_sums = nullptr;
  // Saved by dq on Hopper, for saved_units at a time: the gradients of T, keys and values read it (saved.cuh).
  void *score_gradients = nullptr, *probabilities = nullptr;
  float scale = 1, longest_span = 0, ramp = 0, keep_scale = 1;
  std::int32_t batch = 0, heads = 0, n_q = 0, n_k = 0, size = 0, value_size = 0, distances = 0, window = 0;
  std::int32_t query_tiles = 0;  // each tile_rows long, in f32 portable::plain_rows
  std::int32_t chunks = 0, bands = 0, saved_units = 0;
  bool self = true;
  bool aligned = true;  // every row of every matrix is aligned to 16 bytes and a multiple of 16 bytes long
  KeptProbabilities kept;
  std::int32_t step[most_heads];  // dilations

  // Band b is the pieces b and b + 1, of tile_rows of m each.
  LONGSTRIDE_HOST_DEVICE std::int32_t pieces() const { return bands + 1; }
};

// The same for the portable kernels (kernels/attention/portable), with bounds. Their q is `content`.
struct PortableCall : portable::Call {
  distance::Call of;

  PortableCall(const distance::Call& c, const BoundsView& clamp) : of(c) {
    q = c.content, k = c.k, v = c.v, o = c.o, dout = c.dout, dq = c.dq, dk = c.dk, dv = c.dv;
    lse = c.lse, delta = c.delta, scale = c.scale;
    n_q = c.n_q, n_k = c.n_k, key_size = c.size, value_size = c.value_size, heads = c.heads, batch = c.batch;
    bounds = clamp;
    aligned = c.aligned;
  }
};

// Queries of a class in tiles, from the entry at or just before its first query, so that the distance between a tile of
// queries and a tile of keys is the same in every class of a head.
inline LONGSTRIDE_HOST_DEVICE std::int32_t origin_of(std::int32_t n_q, std::int32_t n_k, std::int32_t step) {
  return (n_k - n_q) / step;
}
// Tiles of all classes of a head, numbered so that neighbours are of different classes. Queries of a class: at most
// (n_q + step - 1) / step, and one entry before them.
inline LONGSTRIDE_HOST_DEVICE std::int32_t query_tiles_of(std::int32_t n_q, std::int32_t step,
                                                          std::int32_t rows = tile_rows) {
  return step * (((n_q + step - 1) / step + (step > 1 ? 1 : 0) + rows - 1) / rows);
}
inline LONGSTRIDE_HOST_DEVICE std::int32_t key_tiles_of(std::int32_t n_k, std::int32_t step) {
  return step * (((n_k + step - 1) / step + tile_rows - 1) / tile_rows);
}

// A band is the distances of all pairs of tiles that are equally far apart: band_rows of m from band_begin on, the last
// of which no pair has. Neighbouring bands overlap by half: m is row x of one band and x + tile_rows of the band
// before.
inline constexpr std::int32_t band_rows = 2 * tile_rows;
// The number of tiles between the queries and keys of band 0, the first that has an m that is not negative.
inline LONGSTRIDE_HOST_DEVICE std::int32_t first_band(std::int32_t origin) {
  return -((origin + tile_rows - 1) / tile_rows);
}
inline LONGSTRIDE_HOST_DEVICE std::int32_t band_begin(std::int32_t origin, std::int32_t band) {
  return origin + (first_band(origin) + band) * tile_rows - (tile_rows - 1);
}
// Bands that hold every m below `reach`.
inline LONGSTRIDE_HOST_DEVICE std::int32_t bands_of(std::int32_t reach) {
  return (reach - 1 + 2 * (tile_rows - 1)) / tile_rows + 1;
}

// The kernels; T is __nv_bfloat16, __half or float. forward, dq and dkdv are in kernels/attention/portable.
template <class T>
void biased_queries(const Call&, const Launch&);
template <class T>
void dtable(const PortableCall&, const Launch&);

// Adds bias_sums and table_sums to the gradients that are given.
void add_bias_sums(const Call&, float* dcontent_bias, float* dposition_bias, float* dspan, const Launch&);
void add_table_sums(const Call&, const Tensor& dtable, const Launch&);

}  // namespace longstride::kernels::cuda::distance

namespace longstride::kernels::cuda::portable {

template <class T>
void forward(const distance::PortableCall&, const Launch&);
template <class T>
void dq(const distance::PortableCall&, const Launch&);
template <class T>
void dkdv(const distance::PortableCall&, const Launch&);

}  // namespace longstride::kernels::cuda::portable
