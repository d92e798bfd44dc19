// The kernel for a cluster of blocks: its arguments, its layout of shared memory, and the order in which weights are
// read.
//
// A block has the same heads, and the same rows of every matrix, in all layers. The order of its weights is known in
// advance, so one warp copies them, position after position, through a ring in shared memory, as far ahead as the ring
// allows.
#pragma once
#include "framework/models/decoder/generate/problem.cuh"
#include "kernels/gpu/ring.cuh"

namespace longstride::generation {

constexpr int cluster_warps = 16, cluster_consumers = 32 * cluster_warps;  // without the warp that fetches weights
constexpr int cluster_threads = cluster_consumers + 32;
constexpr int most_cluster_sequences = 4;  // half the columns of a matrix instruction (multiply_block)
constexpr int stage_blocks = 32;           // blocks of 512 bytes (product.cuh) in one stage of the ring
constexpr int stage_bytes = 512 * stage_blocks;
constexpr int blocks_at_once = 4;                       // per warp
constexpr int most_slot_keys = 64;                      // two per lane
constexpr int most_cluster_width = 32 * cluster_warps;  // one element per thread
enum Message { mixed_message, middle_message, inner_message, outer_message, logits_message, messages };

// A thread block's share of a product: tiles of 8 rows, each cut into 2^part_shift parts of `blocks` neighbouring
// blocks; a part is the work of one warp and is within one stage. The share consists of pieces of `piece_tiles` tiles
// (`piece_blocks` blocks), each of which begins a stage.
struct TileWork {
  int tiles = 0, part_shift = 0, blocks = 0, piece_tiles = 0, piece_blocks = 0, stages = 0;
  int input = 0, pitch = 0;  // the vectors: byte offset of the first, bytes from one to the next
  int bias = 0;              // offset in the layer's biases, in floats
  int first_part = 0;        // in the block's list of WorkPart

  __host__ __device__ int block_of(int tile, int part) const {
    const int piece = (tile >= piece_tiles ? 1 : 0) + (tile >= 2 * piece_tiles ? 1 : 0);
    return piece * piece_blocks + ((((tile - piece * piece_tiles) << part_shift) + part)) * blocks;
  }
};
// Location of one part: its stage, counted from the product's first stage (`stage`) and from the first stage that the
// warps read in this turn (`of_turn`); byte offsets of its weights in the stage and of its columns in the first vector.
struct alignas(16) WorkPart {
  int stage, of_turn, weights, vectors;
};
// A layer has two products in which each row belongs to one warp, each followed by one in which several warps share a
// row. The logits are of the first kind.
enum Kind { qkv_kind, inner_kind, logits_kind, kinds };

// Offsets of the biases of a layer's products in a slot of the ring of biases, in floats. (The norms' elements are in
// registers, one per thread.)
struct Biases {
  int qkv = 0, output = 0, inner = 0, outer = 0, count = 0;
};

// Layout of keys in shared memory that puts neighbouring rows of one column into different banks: the 16-byte packs of
// a row are permuted or, where their number does not allow that, a gap follows each row.
struct KeyLayout {
  int pitch = 0;            // from one row to the next, in elements
  int shift = 0, mask = 0;  // pack i of row r is stored as pack i ^ (r >> shift & mask)

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
  int size = 0;                      // blocks per cluster; 0: no clusters, the grid kernel is used
  int count = 0;                     // clusters
  int sequences = 0;                 // per cluster, at most
  int heads = 0;                     // per block
  int unit_warps = 0;                // warps that share the keys of a (sequence, head)
  int key_slots = 0, slot_keys = 0;  // chunks of keys that a warp holds at once; keys per chunk
  int stages = 0;                    // stages in the ring
  // Byte offsets in shared memory.
  int ring = 0, biases = 0, stream = 0, normed = 0, mixed = 0, inner = 0, deltas = 0, logits = 0, partials = 0,
      norm_parts = 0, parts = 0, query = 0, fresh = 0, keys = 0, sums = 0, plans = 0, key_shares = 0, entries = 0,
      geometry = 0, head_entries = 0, barriers = 0, bytes = 0;
  Biases biases_at;
  KeyLayout key_layout;
  TileWork own[kinds], shared[2];
  float share_of_width = 0;  // 1 / width

  __host__ __device__ int query_rows(const GenerationProblem& p) const { return heads * p.heads.key_size; }
  __host__ __device__ int value_rows(const GenerationProblem& p) const { return heads * p.heads.value_size; }
  __host__ __device__ int qkv_rows(const GenerationProblem& p) const { return 2 * query_rows(p) + value_rows(p); }
  __host__ __device__ int rows(const PackedMatrix& m) const { return m.tiles / size * tile_rows; }
  // Barriers are numbered in this order: the ring's stages, two layers' biases, the hand-overs, the warps' keys.
  __host__ __device__ int message_barrier(int m) const { return 2 * stages + 4 + m; }
  __host__ __device__ int keys_barrier(int warp) const { return message_barrier(messages) + warp * key_slots; }
  __host__ __device__ int barrier_count() const { return keys_barrier(cluster_warps); }

  void lay_out_biases(const GenerationProblem& p) {
    Biases& at = biases_at;
    at.qkv = 0;
    at.output = at.qkv + qkv_rows(p);
    at.inner = at.output + rows(p.output);
    at.outer = at.inner + rows(p.feed_inner);
    at.count = at.outer + rows(p.feed_outer);
  }
};

// A warp's share of the keys of a unit (sequence, head), and its number of chunks.
struct alignas(16) KeyShare {
  int begin, end, chunks;
};

// Neighbouring tiles of one matrix: byte offset in the weights, and number of 512-byte blocks.
struct Piece {
  std::int64_t at;
  int blocks;
};
constexpr int layer_pieces = 6;

// The pieces of layer k that block `rank` reads, in order: queries, keys, values, output, inner, outer. Layer p.layers
// is the head, which has one piece.
__host__ __device__ inline Piece piece_of(const GenerationProblem& p, const Cluster& c, int rank, int k, int index) {
  const auto tiles = [&](const PackedMatrix& m, int first, int count) {
    return Piece{k * p.layer_bytes + m.blocks + static_cast<std::int64_t>(first) * m.depth * 512, count * m.depth};
  };
  const auto share = [&](const PackedMatrix& m) { return tiles(m, rank * (m.tiles / c.size), m.tiles / c.size); };
  if (k == p.layers) return share(p.logits);
  const int of_keys = c.query_rows(p) / tile_rows, of_values = c.value_rows(p) / tile_rows;
  if (index == 0) return tiles(p.qkv, rank * of_keys, of_keys);
  if (index == 1) return tiles(p.qkv, (c.size + rank) * of_keys, of_keys);
  if (index == 2) return tiles(p.qkv, 2 * c.size * of_keys + rank * of_values, of_values);
  if (index == 3) return share(p.output);
  return share(index == 4 ? p.feed_inner : p.feed_outer);
}

__host__ __device__ inline int stages_of(int blocks) { return (blocks + stage_blocks - 1) / stage_blocks; }

// Iterates over the stages of one block in the order in which they are read, position after position.
class Stages {
 public:
  __host__ __device__ Stages(const GenerationProblem& p, const Cluster& c, int rank) : p_(p), c_(c), rank_(rank) {
    enter();
  }

  __host__ __device__ int layer() const { return layer_; }
  __host__ __device__ bool begins_layer() const { return index_ == 0 && stage_ == 0; }
  __host__ __device__ std::int64_t at() const { return piece_.at + static_cast<std::int64_t>(stage_) * stage_bytes; }
  __host__ __device__ std::uint32_t bytes() const {
    const int left = piece_.blocks - stage_ * stage_blocks;
    return static_cast<std::uint32_t>((left < stage_blocks ? left : stage_blocks) * 512);
  }
  // Moves to the next stage; returns whether it is the first of the next position.
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

  const GenerationProblem& p_;
  const Cluster& c_;
  int rank_, layer_ = 0, index_ = 0, stage_ = 0;
  Piece piece_;
};

// The layout for this GPU; its size is 0 if clusters cannot run this problem or are slower. `most_keys`: per query.
Cluster plan_cluster(const GenerationProblem&, Dtype, std::int64_t most_keys, std::int64_t shared_bytes);
void launch_clusters(const GenerationProblem&, const Cluster&, const PositionSpan&, Dtype, const Launch&);

}  // namespace longstride::generation
