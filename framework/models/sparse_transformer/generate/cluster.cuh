// The kernel for a cluster of blocks: what it is given, where it keeps things, and in which order weights are read.
//
// A block has the same heads, and the same rows of every matrix, in all layers. Its weights do not depend on anything,
// so one warp has them copied, position after position, through a ring in shared memory, as far ahead as the ring goes.
#pragma once
#include "framework/models/sparse_transformer/generate/problem.cuh"

namespace longstride::generation {

constexpr int cluster_warps = 16, cluster_consumers = 32 * cluster_warps;  // beside the warp that fetches weights
constexpr int cluster_threads = cluster_consumers + 32;
constexpr int most_cluster_sequences = 4;  // half the columns of a matrix instruction (multiply_block)
constexpr int stage_blocks = 32;           // blocks of 512 bytes (product.cuh) in one stage of the ring
constexpr int stage_bytes = 512 * stage_blocks;
constexpr int blocks_at_once = 4;                       // of a warp
constexpr int most_slot_keys = 64;                      // two a lane
constexpr int most_cluster_width = 32 * cluster_warps;  // a thread has an element of it
enum Message { mixed_message, middle_message, inner_message, outer_message, logits_message, messages };

// A block's share of a product: tiles of 8 rows, each in 2^part_shift parts, which are `blocks` neighbouring blocks for
// one warp. A part lies in one stage. Pieces that begin a stage each: `piece_tiles` tiles in `piece_blocks` blocks.
struct Work {
  int tiles = 0, part_shift = 0, blocks = 0, piece_tiles = 0, piece_blocks = 0, stages = 0;
  int input = 0, pitch = 0;  // the vectors, in bytes: the first one's place, and from one to the next
  int bias = 0;              // among the layer's biases, in floats
  int first_part = 0;        // in the block's list of WorkPart

  __host__ __device__ int block_of(int tile, int part) const {
    const int piece = (tile >= piece_tiles ? 1 : 0) + (tile >= 2 * piece_tiles ? 1 : 0);
    return piece * piece_blocks + ((((tile - piece * piece_tiles) << part_shift) + part)) * blocks;
  }
};
// Where one part lies: its stage, counted from the product's first, and from the first that warps read at this time; in
// bytes, its place in the stage, and its columns of the first vector.
struct alignas(16) WorkPart {
  int stage, of_turn, weights, vectors;
};
// A layer has two products whose rows warps have to themselves, and after each of them one whose rows they share. The
// logits are of the first kind.
enum Kind { qkv_kind, inner_kind, logits_kind, kinds };

// Where the biases of a layer's products lie in its slot of their ring, in floats. (Of a norm a thread has its element
// in registers.)
struct Biases {
  int qkv = 0, output = 0, inner = 0, outer = 0, count = 0;
};

// How keys lie in shared memory, so that neighbouring rows of one column are in different banks: of every row the packs
// of 16 bytes change places, or where their number does not allow that, a row is followed by a gap.
struct KeyLayout {
  int pitch = 0;            // from a row to the next, in elements
  int shift = 0, mask = 0;  // pack i of row r is where pack i ^ (r >> shift & mask) would be

  KeyLayout() = default;
  explicit KeyLayout(int key_size) {
    const int packs = key_size / 8;
    const bool power = (packs & (packs - 1)) == 0;
    pitch = power || packs % 2 == 1 ? key_size : key_size + 8;
    mask = !power ? 0 : packs < 8 ? packs - 1 : 7;
    while (power && packs << shift < 8) ++shift;
  }
  __device__ int turn(int row) const { return row >> shift & mask; }
};

struct Cluster {
  int size = 0;                      // blocks; 0: there are no clusters, a grid does it
  int count = 0;                     // clusters
  int sequences = 0;                 // of a cluster, at most
  int heads = 0;                     // of a block
  int unit_warps = 0;                // that share the keys of a (sequence, head)
  int key_slots = 0, slot_keys = 0;  // chunks of its share that a warp has at hand; the keys of one
  int stages = 0;                    // of the ring
  // In shared memory, in bytes from its beginning.
  int ring = 0, biases = 0, stream = 0, normed = 0, mixed = 0, inner = 0, deltas = 0, logits = 0, partials = 0,
      norm_parts = 0, parts = 0, query = 0, fresh = 0, keys = 0, sums = 0, plans = 0, key_shares = 0, entries = 0,
      geometry = 0, head_entries = 0, barriers = 0, bytes = 0;
  Biases biases_at;
  KeyLayout key_layout;
  Work own[kinds], shared[2];
  float share_of_width = 0;  // 1 / width

  __host__ __device__ int query_rows(const Problem& p) const { return heads * p.heads.key_size; }
  __host__ __device__ int value_rows(const Problem& p) const { return heads * p.heads.value_size; }
  __host__ __device__ int qkv_rows(const Problem& p) const { return 2 * query_rows(p) + value_rows(p); }
  __host__ __device__ int rows(const Packed& m) const { return m.tiles / size * tile_rows; }
  // The barriers' numbers: of the ring's stages, of two layers' biases, of the hand-overs, of the warps' keys.
  __host__ __device__ int message_barrier(int m) const { return 2 * stages + 4 + m; }
  __host__ __device__ int keys_barrier(int warp) const { return message_barrier(messages) + warp * key_slots; }
  __host__ __device__ int barrier_count() const { return keys_barrier(cluster_warps); }

  void place_biases(const Problem& p) {
    Biases& at = biases_at;
    at.qkv = 0;
    at.output = at.qkv + qkv_rows(p);
    at.inner = at.output + rows(p.output);
    at.outer = at.inner + rows(p.feed_inner);
    at.count = at.outer + rows(p.feed_outer);
  }
};

// A warp's share of the keys of a unit (sequence, head), and in how many chunks it is.
struct alignas(16) KeyShare {
  int begin, end, chunks;
};

// Neighbouring tiles of one matrix: bytes from the beginning of all weights, and blocks of 512 bytes.
struct Piece {
  std::int64_t at;
  int blocks;
};
constexpr int layer_pieces = 6;

// What block `rank` reads of layer k, in order: queries, keys, values, output, inner, outer. Layer p.layers is the
// head, of one piece.
__host__ __device__ inline Piece piece_of(const Problem& p, const Cluster& c, int rank, int k, int index) {
  const auto tiles = [&](const Packed& m, int first, int count) {
    return Piece{k * p.layer_bytes + m.blocks + static_cast<std::int64_t>(first) * m.depth * 512, count * m.depth};
  };
  const auto share = [&](const Packed& m) { return tiles(m, rank * (m.tiles / c.size), m.tiles / c.size); };
  if (k == p.layers) return share(p.logits);
  const int of_keys = c.query_rows(p) / tile_rows, of_values = c.value_rows(p) / tile_rows;
  if (index == 0) return tiles(p.qkv, rank * of_keys, of_keys);
  if (index == 1) return tiles(p.qkv, (c.size + rank) * of_keys, of_keys);
  if (index == 2) return tiles(p.qkv, 2 * c.size * of_keys + rank * of_values, of_values);
  if (index == 3) return share(p.output);
  return share(index == 4 ? p.feed_inner : p.feed_outer);
}

__host__ __device__ inline int stages_of(int blocks) { return (blocks + stage_blocks - 1) / stage_blocks; }

// The stages of one block in the order in which they are read, position after position.
class Stages {
 public:
  __host__ __device__ Stages(const Problem& p, const Cluster& c, int rank) : p_(p), c_(c), rank_(rank) { enter(); }

  __host__ __device__ int layer() const { return layer_; }
  __host__ __device__ bool begins_layer() const { return index_ == 0 && stage_ == 0; }
  __host__ __device__ std::int64_t at() const { return piece_.at + static_cast<std::int64_t>(stage_) * stage_bytes; }
  __host__ __device__ std::uint32_t bytes() const {
    const int left = piece_.blocks - stage_ * stage_blocks;
    return static_cast<std::uint32_t>((left < stage_blocks ? left : stage_blocks) * 512);
  }
  // To the next; whether it is the next position's first.
  __host__ __device__ bool step() {
    if (++stage_ < stages_of(piece_.blocks)) return false;
    stage_ = 0;
    if (++index_ == (layer_ == p_.layers ? 1 : layer_pieces)) {
      index_ = 0;
      layer_ = layer_ == p_.layers ? 0 : layer_ + 1;
    }
    enter();
    return layer_ == 0 && index_ == 0;
  }

 private:
  __host__ __device__ void enter() { piece_ = piece_of(p_, c_, rank_, layer_, index_); }

  const Problem& p_;
  const Cluster& c_;
  int rank_, layer_ = 0, index_ = 0, stage_ = 0;
  Piece piece_;
};

// A place in a ring whose slots are used in turn, and the parity of its present use.
struct RingSlot {
  int slot = 0;
  std::uint32_t parity = 0;

  __host__ __device__ void next(int slots) {
    if (++slot == slots) slot = 0, parity ^= 1;
  }
};

// A plan for this GPU, or one without blocks where clusters cannot do it or are not worth it. `most_keys`: of one
// query.
Cluster plan_cluster(const Problem&, Dtype, std::int64_t most_keys, std::int64_t shared_bytes);
void launch_clusters(const Problem&, const Cluster&, const Span&, Dtype, const Launch&);

}  // namespace longstride::generation
