// The warp that copies a block's weights: through the ring of stages, and the biases one layer at a time.
#pragma once
#include "framework/models/decoder/generate/cluster.cuh"
#include "framework/models/decoder/generate/cluster_memory.cuh"
#include "kernels/gpu/barrier.cuh"
#include "kernels/gpu/tma.cuh"

namespace longstride::generation {

// The barriers of a block: for the ring's stages, two layers' biases, the hand-overs and the warps' keys.
class ClusterBarriers {
 public:
  __device__ explicit ClusterBarriers(const Cluster& c) : c_(c) {}

  __device__ std::uint64_t* full(int slot) const { return at(slot); }
  __device__ std::uint64_t* empty(int slot) const { return at(c_.stages + slot); }
  __device__ std::uint64_t* biases_full(int slot) const { return at(2 * c_.stages + slot); }
  __device__ std::uint64_t* biases_empty(int slot) const { return at(2 * c_.stages + 2 + slot); }
  __device__ std::uint64_t* message(int m) const { return at(c_.message_barrier(m)); }
  __device__ std::uint64_t* keys(int warp) const { return at(c_.keys_barrier(warp)); }

  // Called by one thread.
  __device__ void init() const {
    for (int i = 0; i < c_.stages; ++i) {
      barrier_init(full(i), 1);
      barrier_init(empty(i), stage_blocks);
    }
    for (int i = 0; i < 2; ++i) {
      barrier_init(biases_full(i), 1);
      barrier_init(biases_empty(i), 1);
    }
    for (int m = 0; m < messages; ++m) barrier_init(message(m), 1);
    for (int i = 0; i < cluster_warps * c_.key_slots; ++i) barrier_init(keys(0) + i, 32);
    barrier_init_fence();
  }

 private:
  __device__ std::uint64_t* at(int i) const {
    return reinterpret_cast<std::uint64_t*>(block_memory() + c_.barriers) + i;
  }

  const Cluster& c_;
};

// Run by one thread of a block.
class WeightFetch {
 public:
  __device__ WeightFetch(const GenerationProblem& problem, const Cluster& cluster, const ClusterBarriers& barriers,
                         int rank)
      : p_(problem), c_(cluster), barriers_(barriers), rank_(rank) {}

  // Copies the weights of `positions` positions. They are not prefetched into the second-level cache: a block copies 42
  // GB/s from there or from memory alike, and prefetches would only compete with its copies.
  __device__ void run(std::int32_t positions) const {
    Stages stage(p_, c_, rank_);
    RingSlot turn, biases;
    for (std::int32_t position = 0; position < positions;) {
      if (stage.begins_layer() && stage.layer() < p_.layers) {
        barrier_wait_or_trap(barriers_.biases_empty(biases.index), biases.parity ^ 1);
        fetch_biases(stage.layer(), biases.index);
        biases.advance(2);
      }
      barrier_wait_or_trap(barriers_.empty(turn.index), turn.parity ^ 1);
      barrier_arrive_expect(barriers_.full(turn.index), stage.bytes());
      bulk_load(block_memory() + c_.ring + turn.index * stage_bytes, p_.weights + stage.at(), stage.bytes(),
                barriers_.full(turn.index));
      if (stage.bytes() < stage_bytes)  // releases the blocks beyond the stage's end, which are never read
        barrier_arrive(barriers_.empty(turn.index), (stage_bytes - stage.bytes()) / 512);
      turn.advance(c_.stages);
      if (stage.step()) ++position;
    }
  }

 private:
  __device__ void fetch_biases(int k, int slot) const {
    const char* layer = p_.weights + k * p_.layer_bytes;
    float* to = reinterpret_cast<float*>(block_memory() + c_.biases) + slot * c_.biases_at.count;
    const auto fetch = [&](int offset, std::int64_t from, int first, int count) {
      bulk_load(to + offset, layer + from + std::int64_t{first} * 4, static_cast<std::uint32_t>(count * 4),
                barriers_.biases_full(slot));
    };
    const auto fetch_share = [&](int offset, const PackedMatrix& m) {
      fetch(offset, m.bias, rank_ * c_.rows(m), c_.rows(m));
    };
    barrier_arrive_expect(barriers_.biases_full(slot), static_cast<std::uint32_t>(4 * c_.biases_at.count));
    const int keys = c_.query_rows(p_), values = c_.value_rows(p_);
    fetch(c_.biases_at.qkv, p_.qkv.bias, rank_ * keys, keys);
    fetch(c_.biases_at.qkv + keys, p_.qkv.bias, (c_.size + rank_) * keys, keys);
    fetch(c_.biases_at.qkv + 2 * keys, p_.qkv.bias, 2 * c_.size * keys + rank_ * values, values);
    fetch_share(c_.biases_at.output, p_.output);
    fetch_share(c_.biases_at.inner, p_.feed_inner);
    fetch_share(c_.biases_at.outer, p_.feed_outer);
  }

  const GenerationProblem& p_;
  const Cluster& c_;
  const ClusterBarriers& barriers_;
  const int rank_;
};

}  // namespace longstride::generation
