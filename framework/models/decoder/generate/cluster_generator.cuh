// The kernel for clusters: each of a few clusters of blocks draws its own sequences, independently of the others. The
// values of a hand-over are stored directly in the shared memory of all blocks of the cluster and complete on a barrier
// there. A layer has four hand-overs:
//   mixed    the heads' outputs: the block that computes a head's query, key and value also attends with them
//   middle   the attention branch's rows; every block adds them to its own copy of the residual stream
//   inner    the activated rows of the first feed-forward product
//   outer    the feed-forward branch's rows
// A fifth, at the end of a position, is the logits. No ready flag is needed: a block sends message k only after
// receiving all of k - 1, and every block sends k - 1 only after reading k - 2. So k may overwrite k - 2's buffer.
#pragma once
#include "framework/models/decoder/generate/cluster_attend.cuh"
#include "framework/models/decoder/generate/cluster_norm.cuh"
#include "framework/models/decoder/generate/cluster_weights.cuh"
#include "kernels/gpu/cluster.cuh"

namespace longstride::generation {

template <class T>
class ClusterGenerator {
 public:
  __device__ ClusterGenerator(const GenerationProblem& problem, const Cluster& cluster, const PositionSpan& span)
      : p_(problem), c_(cluster), at_(span), barriers_(cluster), keys_(reader(), cluster, p_.heads) {
    rank_ = cluster_rank();
    first_ = static_cast<int>(blockIdx.x) / c_.size * c_.sequences;
    count_ = min(c_.sequences, p_.batch - first_);
    peers_[0] = address_in(shared_address(block_memory()), min(lane() / 4, c_.size - 1));
    peers_[1] = address_in(shared_address(block_memory()), min(lane() / 4 + 8, c_.size - 1));
    unit_ = reader() / c_.unit_warps;
    slice_ = reader() % c_.unit_warps;
  }

  // Called by all threads of the block.
  __device__ void run() {
    copy_all(at<LayerEntry>(c_.entries), p_.entries, p_.layers);
    copy_all(at<HeadGeometry>(c_.geometry), p_.heads.geometry, p_.geometries);
    copy_all(at<HeadEntry>(c_.head_entries), p_.heads.entries, p_.plans * p_.heads.count);
    for (const TileWork& work : c_.own) list_parts(work);
    for (const TileWork& work : c_.shared) list_parts(work);
    if (threadIdx.x == 0) {
      barriers_.init();
      for (int m = 0; m < messages; ++m) expect(m);
    }
    cluster_sync();
    if (warp() == cluster_warps) {
      if (lane() == 0) WeightFetch(p_, c_, barriers_, rank_).run(at_.count);
      __syncwarp();
    } else {
      consume();
    }
    cluster_sync();  // a block that has exited cannot receive
  }

 private:
  static __device__ int warp() { return static_cast<int>(threadIdx.x) / 32; }
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ int thread() { return static_cast<int>(threadIdx.x); }
  // The order of the warps for attention: the first warps, which merge and draw, come last.
  static __device__ int reader() { return cluster_warps - 1 - warp(); }
  // All warps but the one that fetches weights.
  static __device__ void sync() { named_barrier_sync(1, cluster_consumers); }
  static __device__ float rounded(float x) { return to_float(from_float<T>(x)); }

  template <class U>
  __device__ U* at(int offset) const {
    return reinterpret_cast<U*>(block_memory() + offset);
  }
  template <class U>
  static __device__ void copy_all(U* to, const U* from, int count) {
    for (int i = thread(); i < count; i += cluster_threads) to[i] = from[i];
  }

  // ---- Barriers ----

  // Arms the barrier for the bytes that all blocks together will send. Called by one thread, after the previous phase.
  __device__ void expect(int m) const {
    const int element = m == logits_message ? 4 : static_cast<int>(sizeof(T));
    const int columns = m == logits_message  ? p_.vocabulary
                        : m == mixed_message ? p_.heads.count * p_.heads.value_size
                        : m == inner_message ? p_.inner
                                             : p_.width;
    barrier_arrive_expect(barriers_.message(m), static_cast<std::uint32_t>(count_ * columns * element));
  }
  __device__ void receive(int m, std::uint32_t parity) const {
    barrier_wait_or_trap(barriers_.message(m), parity);
    if (threadIdx.x == 0) expect(m);
  }

  // Byte offset of a message's barrier in a block's shared memory.
  __device__ std::uint32_t barrier_at(int m) const {
    return static_cast<std::uint32_t>(c_.barriers + 8 * c_.message_barrier(m));
  }

  // Turns eight rows of up to four sequences, one value per lane (multiply_block), into packs of 16 bytes: this lane's
  // pack belongs to sequence lane % 4. `paired`: in the order in which products read vectors.
  static __device__ uint4 packed(float x, bool paired) {
    const std::uint32_t mine = bits_of(from_float<T>(x));
    const std::uint32_t two = mine | __shfl_down_sync(0xFFFFFFFFu, mine, 4) << 16;
    const int s = lane() % 4, second = paired ? 16 : 8;
    uint4 out;
    out.x = __shfl_sync(0xFFFFFFFFu, two, s);
    out.y = __shfl_sync(0xFFFFFFFFu, two, s + second);
    out.z = __shfl_sync(0xFFFFFFFFu, two, s + 24 - second);
    out.w = __shfl_sync(0xFFFFFFFFu, two, s + 24);
    return out;
  }
  static __device__ std::uint32_t bits_of(T x) { return *reinterpret_cast<const std::uint16_t*>(&x); }

  // Sends a tile's packs to all blocks: each lane to the blocks lane / 4 and lane / 4 + 8. `to`: offset of the pack of
  // sequence 0.
  __device__ void send_tile(const uint4& x, int to, int pitch, int m) const {
    if (lane() % 4 >= count_) return;
    const std::uint32_t address = static_cast<std::uint32_t>(to + lane() % 4 * pitch), barrier = barrier_at(m);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (lane() / 4 + 8 * i < c_.size) send_16(peers_[i] + address, x, peers_[i] + barrier);
  }

  // ---- Products ----

  __device__ void list_parts(const TileWork& work) const {
    for (int i = thread(); i < work.tiles << work.part_shift; i += cluster_threads) {
      const int part = i & ((1 << work.part_shift) - 1), of_turn = i / cluster_warps * cluster_warps;
      const int block = work.block_of(i >> work.part_shift, part);
      const int before = work.block_of(of_turn >> work.part_shift, 0) / stage_blocks;
      at<WorkPart>(c_.parts)[work.first_part + i] = {block / stage_blocks, block / stage_blocks - before,
                                                     block % stage_blocks * 512, work.input + part * work.blocks * 64};
    }
  }

  // A part of a tile: the product of row lane / 4 and vector lane % 4. If the ring wraps within one turn of the warps,
  // a warp first waits until the slot's earlier use is over: the parity of a barrier only tells neighbouring phases
  // apart.
  __device__ float multiply(const TileWork& work, int number) const {
    const WorkPart part = at<WorkPart>(c_.parts)[work.first_part + number];
    RingSlot slot = ring_;
    slot.advance(part.stage, c_.stages);
    if (part.of_turn >= c_.stages) barrier_wait_or_trap(barriers_.empty(slot.index), slot.parity ^ 1);
    barrier_wait_or_trap(barriers_.full(slot.index), slot.parity);
    const char* weights = block_memory() + c_.ring + slot.index * stage_bytes + part.weights + lane() * 16;
    const char* vectors = block_memory() + part.vectors + min(lane() / 8, count_ - 1) * work.pitch +  // beyond: unused
                          lane() % 4 * 16 + (lane() / 4 & 1) * 8;
    float d[blocks_at_once][4] = {};
#pragma unroll 1
    for (int i = 0; i < work.blocks;
         i += blocks_at_once, weights += 512 * blocks_at_once, vectors += 64 * blocks_at_once) {
      uint4 w[blocks_at_once];
      uint2 x[blocks_at_once];
#pragma unroll
      for (int j = 0; j < blocks_at_once; ++j) {
        w[j] = *reinterpret_cast<const uint4*>(weights + 512 * j);
        x[j] = *reinterpret_cast<const uint2*>(vectors + 64 * j);
      }
#pragma unroll
      for (int j = 0; j < blocks_at_once; ++j) multiply_block<T>(d[j], w[j], x[j]);
    }
    __syncwarp();
    if (lane() == 0) barrier_arrive(barriers_.empty(slot.index), static_cast<std::uint32_t>(work.blocks));
    float sum = 0;
#pragma unroll
    for (int j = 0; j < blocks_at_once; ++j) sum += d[j][0] + d[j][3];
    return sum;
  }
  __device__ void pass(int stages) { ring_.advance(stages, c_.stages); }

  // A product in which each tile belongs to one warp: calls f(tile, sum).
  template <class F>
  __device__ void multiply_tiles(const TileWork& work, F&& f) {
    for (int first = 0; first < work.tiles; first += cluster_warps) {
      if (first > 0) sync();
      const int tile = first + warp();
      if (tile < work.tiles) f(tile, multiply(work, tile));
    }
    pass(work.stages);
  }

  // A product in which several warps share a tile. Each of them adds up all parts of the tile's rows and sends the rows
  // to some of the blocks.
  __device__ void multiply_shared(const TileWork& work, int m, int to) {
    const int parts = 1 << work.part_shift;
    float* sums = at<float>(c_.partials);
    if (warp() < work.tiles << work.part_shift) {
      const float x = multiply(work, warp());
      sums[warp() * 32 + lane()] = x;
    }
    pass(work.stages);
    const int tile_shift = 31 - __clz(work.tiles), tile = warp() & (work.tiles - 1);  // tiles: a power of two
    const float bias = biases(work.bias)[tile * tile_rows + lane() / 4];
    sync();
    float x = bias;
#pragma unroll 4
    for (int p = 0; p < parts; ++p) x += sums[(tile * parts + p) * 32 + lane()];
    const uint4 pack = packed(x, false);  // rounded before it is added to the stream, as in training
    const int size = static_cast<int>(sizeof(T)), turn = warp() >> tile_shift, turns = cluster_warps >> tile_shift;
    to += (rank_ * work.tiles + tile) * tile_rows * size;
    // To the blocks whose number is `turn` modulo `turns`.
    if (lane() % 4 < count_) {
      const std::uint32_t address = static_cast<std::uint32_t>(to + lane() % 4 * p_.width * size),
                          barrier = barrier_at(m);
      for (int d = turn + lane() / 4 * turns; d < c_.size; d += 8 * turns) {
        const std::uint32_t peer = address_in(shared_address(block_memory()), d);
        send_16(peer + address, pack, peer + barrier);
      }
    }
  }

  // ---- The residual stream ----

  __device__ const float* biases(int offset) const {
    return at<float>(c_.biases) + biases_turn_.index * c_.biases_at.count + offset;
  }

  // Positions have 32 bits, so larger divisors and sizes can be clamped.
  static __device__ std::int64_t row_of(std::int32_t position, const PositionTable& table) {
    const auto narrow = [](std::int64_t x) { return static_cast<std::uint32_t>(x < 0xFFFFFFFFll ? x : 0xFFFFFFFFll); };
    return static_cast<std::uint32_t>(position) / narrow(table.divisor) % narrow(table.size);
  }

  // Called by one warp.
  __device__ void embed(int s, std::int32_t position, int token) const {
    float* stream = at<float>(c_.stream) + s * p_.width;
    const EmbeddingRows rows(p_, position, token, [&](const PositionTable& table) { return row_of(position, table); });
#pragma unroll 8
    for (int d = lane(); d < p_.width; d += 32) stream[d] = rows.sum(d);
    __syncwarp();
  }

  // ---- A position ----

  __device__ void consume() {
    int token = 0;
    if (warp() < count_ && at_.first > 0) token = at_.bytes[(first_ + warp()) * at_.length + at_.first - 1];
    plan_position(at_.first, 0);
    for (std::int32_t i = 0; i < at_.count; ++i) position(at_.first + i, i + 1 < at_.count, token);
  }

  __device__ int units() const { return count_ * c_.heads; }
  // The keys that a unit reads in layers of this kind, and a warp's share of them.
  __device__ const KeyPlan& plan_of(int kind, int unit) const { return at<KeyPlan>(c_.plans)[unit * p_.plans + kind]; }
  __device__ KeyShare share_of(int kind, int unit, int slice) const {
    return at<KeyShare>(c_.key_shares)[(unit * p_.plans + kind) * c_.unit_warps + slice];
  }
  __device__ HeadCache<T> cache_of(const LayerEntry& e, int unit) const {
    const std::int64_t row = (first_ + (c_.heads == 1 ? unit : unit / c_.heads)) * e.rows;
    return {reinterpret_cast<T*>(p_.cache + e.keys) + row * p_.heads.key_size,
            reinterpret_cast<T*>(p_.cache + e.values) + row * p_.heads.value_size};
  }

  // The keys that this block's units read at a position, for every kind of layer. Called by the warps from
  // `warps_before` on.
  __device__ void plan_position(std::int32_t position, int warps_before) const {
    GenerationHeads heads = p_.heads;
    heads.geometry = at<HeadGeometry>(c_.geometry);
    heads.entries = at<HeadEntry>(c_.head_entries);
    for (int i = warp() - warps_before; i < units() * p_.plans; i += cluster_warps - warps_before) {
      const int unit = i / p_.plans, head = rank_ * c_.heads + unit % c_.heads;
      KeyPlan& plan = at<KeyPlan>(c_.plans)[i];
      plan_keys(heads, i % p_.plans, AttendUnit((first_ + unit / c_.heads) * p_.heads.count + head, p_.heads), position,
                plan);
      __syncwarp();
      if (lane() < c_.unit_warps) {
        const int begin = plan.end * lane() / c_.unit_warps, end = plan.end * (lane() + 1) / c_.unit_warps;
        at<KeyShare>(c_.key_shares)[i * c_.unit_warps + lane()] = {begin, end,
                                                                   (end - begin + c_.slot_keys - 1) / c_.slot_keys};
      }
    }
  }

  // Starts to copy this warp's first keys of a layer.
  __device__ void fetch_keys(const LayerEntry& e) {
    if (unit_ >= units()) return;
    const KeyPlan& plan = plan_of(e.plan, unit_);
    const KeyShare share = share_of(e.plan, unit_, slice_);
    const HeadCache<T> cache = cache_of(e, unit_);
    for (int chunk = 0; chunk < min(share.chunks, c_.key_slots); ++chunk) keys_.fetch(plan, share, chunk, cache);
  }

  // `token`: the byte of this warp's sequence, on entry before the position, on return at it. The code of a layer
  // appears only once: duplicated, it would not fit the instruction cache.
  __device__ void position(std::int32_t position, bool more, int& token) {
    NormElement norm = norm_of(0, 0);
    if (warp() < count_) embed(warp(), position, token);
    sync();
    fetch_keys(at<LayerEntry>(c_.entries)[0]);
    for (int k = 0;; ++k) {
      if (k < p_.layers) barrier_wait_or_trap(barriers_.biases_full(biases_turn_.index), biases_turn_.parity);
#pragma unroll 1
      for (int half = 0; half < 2; ++half) {
        begin_half(k, half, norm);
        if (k == p_.layers) break;
        if (half == 0)
          attention(k);
        else if (k + 1 < p_.layers)
          fetch_keys(at<LayerEntry>(c_.entries)[k + 1]);  // while the other blocks' rows are on their way
        norm = norm_of(k + half, 1 - half);
        receive(half == 0 ? mixed_message : inner_message, parity_);
        multiply_shared(c_.shared[half], half == 0 ? middle_message : outer_message, c_.deltas);
      }
      if (k == p_.layers) break;
      biases_turn_.advance(2);
      parity_ ^= 1;
    }
    if (warp() < count_) {
      receive(logits_message, positions_parity_);
      token = draw(warp(), position);
    } else if (more) {
      plan_position(position + 1, count_);  // this position's plan is not needed any more
    }
    positions_parity_ ^= 1;
  }

  // This thread's element of the norm before a half of layer k, or before the logits.
  __device__ NormElement norm_of(int k, int half) const {
    const Norm& norm = k == p_.layers ? p_.final_norm : half == 0 ? p_.attention_norm : p_.feed_forward_norm;
    return Normaliser::element_of(norm, p_.weights + k * p_.layer_bytes, p_.width);
  }

  // The norm before the first or the second half of layer k, or before the logits, and the product that follows it.
  __device__ void begin_half(int k, int half, const NormElement& norm) {
    float* stream = at<float>(c_.stream);
    NormPart* parts = at<NormPart>(c_.norm_parts);
    Normaliser normaliser(norm, p_.width);
    const bool more = half == 1 || k > 0;
    if (more) receive(half == 1 ? middle_message : outer_message, half == 1 ? parity_ : parity_ ^ 1);
    normaliser.add(stream, more ? at<T>(c_.deltas) : nullptr, count_, parts);
    sync();
    normaliser.finish(stream, c_.share_of_width, parts, count_, at<T>(c_.normed), pitch_of<T>(p_.width));
    sync();
    if (half == 0 && k > 0 && threadIdx.x == 0)  // the previous layer's biases have been read
      barrier_arrive(barriers_.biases_empty(biases_turn_.index ^ 1), 1);
    const Kind kind = k == p_.layers ? logits_kind : half == 0 ? qkv_kind : inner_kind;
    const TileWork& work = c_.own[kind];
    multiply_tiles(work, [&](int tile, float x) {
      const int row = tile * tile_rows + lane() / 4;
      if (kind == logits_kind) {
        send_logits(tile, x);
        return;
      }
      x += biases(work.bias)[row];
      if (kind == qkv_kind) {
        if (lane() % 4 < count_) keep_query(lane() % 4, row, x);
        return;
      }
      const float z = rounded(x);
      const uint4 pack = packed(__fdividef(z, 1.0f + expf(-1.702f * z)), true);  // gelu
      constexpr int size = static_cast<int>(sizeof(T));
      send_tile(pack, c_.inner + (rank_ * work.tiles + tile) * tile_rows * size, pitch_of<T>(p_.inner) * size,
                inner_message);
    });
  }

  __device__ void send_logits(int tile, float x) const {
    const int s = lane() % 4, bits = static_cast<int>(__float_as_uint(x));
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const auto word = [&](int i) {
        return static_cast<std::uint32_t>(__shfl_sync(0xFFFFFFFFu, bits, s + part * 16 + i * 4));
      };
      const uint4 pack = make_uint4(word(0), word(1), word(2), word(3));
      send_tile(pack, c_.logits + ((rank_ * c_.own[logits_kind].tiles + tile) * tile_rows + part * 4) * 4,
                p_.vocabulary * 4, logits_message);
    }
  }

  // Keeps row r of the position's query, key and value in shared memory.
  __device__ void keep_query(int s, int r, float x) const {
    const int keys = c_.query_rows(p_), dk = p_.heads.key_size, dv = p_.heads.value_size;
    if (r < keys) {
      at<float>(c_.query)[s * keys + r] = p_.heads.scale * x;
      return;
    }
    const bool of_key = r < 2 * keys;
    const int size = of_key ? dk : dv, of_kind = r - (of_key ? keys : 2 * keys);
    const int head = c_.heads == 1 ? 0 : of_kind / size;
    at<T>(c_.fresh)[(s * c_.heads + head) * (dk + dv) + (of_key ? 0 : dk) + of_kind - head * size] = from_float<T>(x);
  }

  // Stores the position's keys and values in the cache.
  __device__ void keep(const LayerEntry& e) const {
    const int key_packs = p_.heads.key_size / 8, packs = key_packs + p_.heads.value_size / 8;
    if (lane() >= packs) return;
    for (int unit = reader(); unit < units(); unit += cluster_warps) {
      const KeyPlan& plan = plan_of(e.plan, unit);
      const HeadCache<T> cache = cache_of(e, unit);
      const bool of_key = lane() < key_packs;
      uint4* rows = reinterpret_cast<uint4*>(of_key ? cache.keys : cache.values);
      const int size = of_key ? key_packs : packs - key_packs, pack = of_key ? lane() : lane() - key_packs;
      const uint4 value = at<uint4>(c_.fresh)[unit * packs + lane()];
#pragma unroll
      for (int i = 0; i < HeadGeometry::most_parts; ++i)
        if (plan.ring_row[i] >= 0) rows[static_cast<std::int64_t>(plan.ring_row[i]) * size + pack] = value;
    }
  }

  // A warp's result for the merge: the sums of the columns, the top score, the total.
  __device__ int found_pitch() const { return p_.heads.value_size + 4; }
  __device__ void attend(const LayerEntry& e) {
    const bool wanted = unit_ < units();
    const KeyPlan& plan = plan_of(e.plan, wanted ? unit_ : 0);
    const KeyShare share = share_of(e.plan, wanted ? unit_ : 0, slice_);
    const int self = plan.self;
    if (wanted && share.begin < share.end) keys_.receive();
    sync();  // the query, key and value have been stored
    if (!wanted) return;
    const T* fresh = at<T>(c_.fresh) + unit_ * (p_.heads.key_size + p_.heads.value_size);
    const auto further = [&] {
      int unit = unit_;
      asm volatile("" : "+r"(unit));  // keeps the address computation from being hoisted out of the loop
      return cache_of(e, unit);
    };
    const AttendedShare found =
        attend_share<T>(p_.heads, c_, plan, self, share, further, keys_,
                        at<float>(c_.query) + unit_ * p_.heads.key_size, fresh, fresh + p_.heads.key_size);
    float* to = at<float>(c_.sums) + reader() * found_pitch();
#pragma unroll
    for (int e = 0; e < 8; ++e)
      if (e < found.width) to[found.column + e] = found.sum[e];
    if (lane() == 0) to[p_.heads.value_size] = found.top, to[p_.heads.value_size + 1] = found.total;
  }
  // Merges the warps' results and sends them to all blocks: one warp per unit and 8 blocks.
  __device__ void merge() const {
    constexpr int size = static_cast<int>(sizeof(T));
    const int dv = p_.heads.value_size, pitch = found_pitch(), groups = c_.size / 8;
    for (int i = warp(); i < units() * groups; i += cluster_warps) {
      const int unit = groups == 1 ? i : i / 2, s = c_.heads == 1 ? unit : unit / c_.heads;
      const float* from = at<float>(c_.sums) + unit * c_.unit_warps * pitch;
      const float* mine = from + min(lane(), c_.unit_warps - 1) * pitch + dv;  // one warp's result per lane
      const float top = lane() < c_.unit_warps ? mine[0] : -INFINITY, total = mine[1];
      const float most = largest_of_warp(top);
      const float share = top > -INFINITY ? expf(top - most) : 0.0f;
      const float all = warp_sum(share * total);
      const float scale = all > 0 ? __fdividef(1.0f, all) : 0.0f;
      const int to = c_.mixed + s * pitch_of<T>(p_.heads.count * dv) * size +
                     ((rank_ * c_.heads + unit - s * c_.heads) * dv) * size;
      for (int first = 0; first < dv; first += 32) {
        const float* column = from + min(first + lane(), dv - 1);
        float x = 0;
#pragma unroll 4
        for (int w = 0; w < c_.unit_warps; ++w) x += __shfl_sync(0xFFFFFFFFu, share, w) * column[w * pitch];
        const std::uint32_t bits = bits_of(from_float<T>(x * scale));
        const std::uint32_t two = bits | __shfl_down_sync(0xFFFFFFFFu, bits, 1) << 16;
        const int pack = lane() % 4;
        uint4 packs;  // in the order in which products read them
        packs.x = __shfl_sync(0xFFFFFFFFu, two, pack * 8);
        packs.y = __shfl_sync(0xFFFFFFFFu, two, pack * 8 + 4);
        packs.z = __shfl_sync(0xFFFFFFFFu, two, pack * 8 + 2);
        packs.w = __shfl_sync(0xFFFFFFFFu, two, pack * 8 + 6);
        const std::uint32_t peer = groups == 2 && i % 2 == 1 ? peers_[1] : peers_[0];
        if (first + pack * 8 < dv)
          send_16(peer + static_cast<std::uint32_t>(to + (first + pack * 8) * size), packs,
                  peer + barrier_at(mixed_message));
      }
    }
  }

  __device__ void attention(int k) {
    const LayerEntry e = at<LayerEntry>(c_.entries)[k];
    attend(e);
    sync();
    merge();
    keep(e);
  }

  __device__ int draw(int s, std::int32_t position) const {
    const std::int64_t sequence = first_ + s, index = sequence * at_.length + position;
    const int given = position < at_.prompted ? at_.bytes[index] : -1;
    const float* logits = at<float>(c_.logits) + s * p_.vocabulary;
    float x[Draw::each];
#pragma unroll
    for (int e = 0; e < Draw::each; ++e)
      x[e] = lane() * Draw::each < p_.vocabulary ? logits[lane() * Draw::each + e] : -INFINITY;
    __syncwarp();
    const bool log = at_.log_probabilities != nullptr && rank_ == 0;
    const Draw drawn =
        draw_by_warp(x, at_.sampling, uniform_for(at_.sampling, at_.first_sequence + sequence, position), given, log);
    if (rank_ == 0 && lane() == 0) {
      at_.bytes[index] = static_cast<std::uint8_t>(drawn.byte);
      if (log) at_.log_probabilities[index] = drawn.log_probability;
    }
    return drawn.byte;
  }

  const GenerationProblem& p_;
  const Cluster& c_;
  const PositionSpan& at_;
  const ClusterBarriers barriers_;
  KeyRing<T> keys_;
  RingSlot biases_turn_;
  std::uint32_t peers_[2];                           // shared memory of blocks lane / 4 and lane / 4 + 8
  RingSlot ring_;                                    // the ring's next stage
  std::uint32_t parity_ = 0, positions_parity_ = 0;  // parities of the layers' messages, and of the logits
  int rank_, first_, count_;
  int unit_, slice_;  // the (sequence, head) of the block whose keys this warp attends to, and its share of them
};

}  // namespace longstride::generation
