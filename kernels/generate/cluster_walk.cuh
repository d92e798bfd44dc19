// The kernel for clusters: each of a few clusters of blocks draws sequences of its own, and no cluster knows of
// another. The values of a hand-over go straight into the shared memory of all blocks of the cluster and count towards
// a barrier there. A layer has four:
//   mixed    the block that found a head's query, key and value also attends with them, so only its output travels
//   middle   the attention branch's rows; every block adds them to its own copy of the residual stream
//   inner    the activated rows of the first product
//   outer    the feed-forward branch's rows
// One more, at a position's end, is the logits. Nobody asks whether a receiver is ready: who sends a hand-over has
// received the one before, so everybody has read what the same hand-over brought a layer ago.
#pragma once
#include "kernels/generate/cluster_attend.cuh"
#include "kernels/generate/cluster_weights.cuh"

namespace longstride::kernels::cuda::generation {

template <class T>
class ClusterWalk {
 public:
  __device__ ClusterWalk(const Problem& problem, const Cluster& cluster, const Positions& positions, char* shared)
      : p_(problem),
        c_(cluster),
        at_(positions),
        shared_(shared),
        barriers_(shared, cluster),
        keys_(
            shared + c_.keys + warp() * c_.key_slots * KeyRing<T>::chunk_bytes(p_.heads.key_size, p_.heads.value_size),
            barriers_.keys(warp()), c_.key_slots, p_.heads) {
    rank_ = cluster_rank();
    number_ = static_cast<int>(blockIdx.x) / c_.size;
    first_ = number_ * c_.sequences;
    count_ = min(c_.sequences, p_.batch - first_);
    unit_ = warp() / c_.unit_warps;
    slice_ = warp() % c_.unit_warps;
  }

  // All threads of the block.
  __device__ void run() {
    copy_all(at<LayerEntry>(c_.entries), p_.entries, p_.layers);
    copy_all(at<HeadGeometry>(c_.geometry), p_.heads.geometry, p_.geometries);
    copy_all(at<HeadEntry>(c_.head_entries), p_.heads.entries, p_.plans * p_.heads.count);
    if (threadIdx.x == 0) {
      barriers_.init();
      for (int m = 0; m < messages; ++m) expect(m);
    }
    cluster_sync();
    if (warp() == cluster_warps) {
      if (lane() == 0) WeightFetch(p_, c_, barriers_, shared_, rank_).run(number_, at_.count);
      __syncwarp();
    } else {
      consume();
    }
    cluster_sync();  // a block that is gone can receive nothing
  }

 private:
  static __device__ int warp() { return static_cast<int>(threadIdx.x) / 32; }
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ int thread() { return static_cast<int>(threadIdx.x); }
  // All warps but the one that fetches weights.
  static __device__ void sync() { named_barrier_sync(1, cluster_consumers); }
  static __device__ float rounded(float x) { return to_float(from_float<T>(x)); }

  template <class U>
  __device__ U* at(int offset) const {
    return reinterpret_cast<U*>(shared_ + offset);
  }
  template <class U>
  static __device__ void copy_all(U* to, const U* from, int count) {
    for (int i = thread(); i < count; i += cluster_threads) to[i] = from[i];
  }

  // ---- Barriers ----

  __device__ std::uint64_t* message(int m) const { return barriers_.message(m); }

  // What all blocks together will send. By one thread, after the former time.
  __device__ void expect(int m) const {
    const int element = m == logits_message ? 4 : static_cast<int>(sizeof(T));
    const int columns = m == logits_message  ? p_.vocabulary
                        : m == mixed_message ? p_.heads.count * p_.heads.value_size
                        : m == inner_message ? p_.inner
                                             : p_.width;
    barrier_arrive_expect(message(m), static_cast<std::uint32_t>(count_ * columns * element));
  }
  __device__ void receive(int m, std::uint32_t parity) const {
    await(message(m), parity);
    if (threadIdx.x == 0) expect(m);
  }

  // This block's rows, (sequence, row), which lie in `outgoing`: to all blocks, each row of `pitch` bytes there.
  // After a sync().
  __device__ void send_all(int m, int row_bytes, int to, int pitch) const {
    const int packs = row_bytes / 16, destination = warp() % c_.size;
    const std::uint32_t base = address_in(shared_address(shared_ + to + rank_ * row_bytes), destination);
    const std::uint32_t barrier = address_in(shared_address(message(m)), destination);
    const uint4* from = at<uint4>(c_.outgoing);
    for (int i = lane() + warp() / c_.size * 32; i < count_ * packs; i += cluster_warps / c_.size * 32) {
      const int s = count_ == 1 ? 0 : i / packs;
      send(base + static_cast<std::uint32_t>(s * pitch + (i - s * packs) * 16), from[i], barrier);
    }
  }

  // ---- Products ----

  // The input of a product, for this warp: of each of the four blocks it takes of a stage. The upper 8 of the 16 warps
  // take every other stage; where a tile is two stages, they have its second half.
  __device__ void load_input(const T* vectors, int pitch, int turns, uint2 (&input)[4]) const {
    const T* from = vectors + min(lane() / 8, count_ - 1) * pitch + lane() % 4 * 8;  // what is beyond is not stored
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int turn = turns == 8 ? warp() / warps * 4 + i : i & (turns - 1);
      const uint4 x = *reinterpret_cast<const uint4*>(from + (warp() % warps + turn * warps) * block_columns<T>);
      input[i] = lane() / 4 % 2 == 0 ? make_uint2(x.x, x.z) : make_uint2(x.y, x.w);
    }
  }

  // How many sums of a row there are, and from one tile's sums to the next.
  static __device__ int parts(int turns) { return turns == 8 ? cluster_warps : warps; }
  __device__ int tile_sums(int turns) const { return (parts(turns) * count_ + 1) * tile_rows; }

  // This warp's sums over `tiles` tiles of 8 turns' blocks, as they come out of the ring. turns: a power of two.
  __device__ void multiply(int tiles, int turns, const uint2 (&input)[4], float* sums) {
    const int shift = 31 - __clz(turns), units = tiles << shift, last = (turns < 4 ? turns : 4) - 1;
    const int half = warp() / warps;
    const int part = turns == 8 ? warp() : warp() % warps, pitch = tile_sums(turns);
    for (int stage = 0; stage * 4 < units; ++stage, slot_ = slot_ + 1 == c_.stages ? 0 : slot_ + 1) {
      if (stage % 2 != half) continue;
      await(barriers_.full(half, slot_), filled_ >> slot_ & 1);
      filled_ ^= 1u << slot_;
      const uint4* from = at<uint4>(c_.ring + slot_ * stage_bytes) + warp() % warps * 32 + lane();
      uint4 w[4];  // a last stage that is not full ends with something, which is not stored
#pragma unroll
      for (int i = 0; i < 4; ++i) w[i] = from[i * 32 * warps];
      __syncwarp();
      if (lane() == 0) barrier_arrive(barriers_.empty(slot_));
      float x[4], sum = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = multiply_block<T>(w[i], input[i]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sum += x[i];
        if ((i & last) != last) continue;
        const int tile = (stage * 4 + i) >> shift;
        if (stage * 4 + i < units && lane() % 4 < count_)
          sums[tile * pitch + (part * count_ + lane() % 4) * tile_rows + lane() / 4] = sum;
        sum = 0;
      }
    }
  }

  static __device__ int turns_of(const Packed& m) { return m.depth / warps; }

  // f(s, r, x) for every local row r of `rows`, with x its sum, after the warps' sums and a sync().
  template <class F>
  __device__ void finish(int rows, int turns, const float* bias, F&& f) const {
    const int pitch = tile_sums(turns), part = count_ * tile_rows;
    for (int i = thread(); i < rows * count_; i += cluster_consumers) {
      const int s = count_ == 1 ? 0 : i / rows, r = i - s * rows;
      const float* from = at<float>(c_.partials) + r / tile_rows * pitch + s * tile_rows + r % tile_rows;
      float x[warps], sum = bias != nullptr ? bias[r] : 0.0f;
#pragma unroll
      for (int w = 0; w < warps; ++w) x[w] = from[w * part];
#pragma unroll
      for (int w = 0; w < warps; ++w) sum += x[w];
      if (turns == 8)
#pragma unroll
        for (int w = warps; w < cluster_warps; ++w) sum += from[w * part];
      f(s, r, sum);
    }
  }

  // A whole product of this block's share of m, but for the sums' use.
  __device__ void product(const Packed& m, const T* vectors, int pitch) {
    uint2 input[4];
    load_input(vectors, pitch, turns_of(m), input);
    multiply(m.tiles / c_.size, turns_of(m), input, at<float>(c_.partials));
    sync();
  }

  // ---- The residual stream ----

  __device__ const float* constants(int offset) const {
    return at<float>(c_.constants) + constants_turn_.slot * c_.constants_at.count + offset;
  }
  __device__ T* normed() const { return at<T>(c_.normed); }

  // stream += delta, if there is one, and normed = norm(stream), by one warp.
  __device__ void normalise(int s, const T* delta, const float* norm) const {
    constexpr int most = most_cluster_width / 256;
    float* stream = at<float>(c_.stream) + s * p_.width;
    // One pass finds both sums, which are of distances from the first value: its square would else swallow the
    // variance.
    const float origin = stream[0] + (delta != nullptr ? to_float(delta[s * p_.width]) : 0.0f);
    float x[most][8], more[most][8], gain[most][8], bias[most][8], sum = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < most; ++i) {
      const int d = min(i * 256, p_.width - 256) + lane() * 8;  // the last once more rather than none
      load<8>(stream + d, x[i]);
      if (delta != nullptr) load<8>(delta + s * p_.width + d, more[i]);
      load<8>(norm + d, gain[i]);
      load<8>(norm + p_.width + d, bias[i]);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < most; ++i) {
      const bool given = i * 256 < p_.width;
      if (delta != nullptr) {
#pragma unroll
        for (int e = 0; e < 8; ++e) x[i][e] += more[i][e];
        if (given) store<8>(stream + i * 256 + lane() * 8, x[i]);
      }
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const float distance = given ? x[i][e] - origin : 0.0f;
        sum += distance;
        squares += distance * distance;
      }
    }
    const float offset = warp_sum(sum) * c_.share_of_width, mean = origin + offset;
    const float variance = warp_sum(squares) * c_.share_of_width - offset * offset;
    const float rstd = rsqrtf(fmaxf(variance, 0.0f) + 1e-5f);
#pragma unroll
    for (int i = 0; i < most; ++i) {
      if (i * 256 >= p_.width) break;
#pragma unroll
      for (int e = 0; e < 8; ++e) x[i][e] = (x[i][e] - mean) * rstd * gain[i][e] + bias[i][e];
      store<8>(normed() + s * pitch_of<T>(p_.width) + i * 256 + lane() * 8, x[i]);
    }
  }

  // By one warp.
  __device__ void embed(int s, std::int32_t position, int token) const {
    float* stream = at<float>(c_.stream) + s * p_.width;
    const float* rows[EmbeddingArgs::max_tables + 1];
    rows[0] = position == 0 ? p_.start : p_.token + static_cast<std::int64_t>(token) * p_.width;
#pragma unroll
    for (int i = 0; i < EmbeddingArgs::max_tables; ++i)
      rows[i + 1] = i < p_.table_count
                        ? p_.tables[i].rows + position / p_.tables[i].divisor % p_.tables[i].size * p_.width
                        : nullptr;
#pragma unroll 4
    for (int d = lane(); d < p_.width; d += 32) {
      float x = rows[0][d];
#pragma unroll
      for (int i = 1; i <= EmbeddingArgs::max_tables; ++i)
        if (rows[i] != nullptr) x += rows[i][d];
      stream[d] = x;
    }
    __syncwarp();
  }

  // ---- A position ----

  __device__ void consume() {
    int token = 0;
    if (warp() < count_ && at_.first > 0) token = at_.bytes[(first_ + warp()) * at_.length + at_.first - 1];
    for (std::int32_t i = 0; i < at_.count; ++i) position(at_.first + i, token);
  }

  __device__ int units() const { return count_ * c_.heads; }
  // Which keys a unit reads in layers of this kind, and what of them is for this warp.
  __device__ const KeyPlan& plan_of(int kind, int unit) const { return at<KeyPlan>(c_.plans)[unit * p_.plans + kind]; }
  __device__ KeyShare share_of(int kind, int unit, int slice) const {
    return at<KeyShare>(c_.key_shares)[(unit * p_.plans + kind) * c_.unit_warps + slice];
  }
  __device__ Cache<T> cache_of(const LayerEntry& e, int unit) const {
    const std::int64_t row = (first_ + (c_.heads == 1 ? unit : unit / c_.heads)) * e.rows;
    return {reinterpret_cast<T*>(p_.cache + e.keys) + row * p_.heads.key_size,
            reinterpret_cast<T*>(p_.cache + e.values) + row * p_.heads.value_size};
  }

  // Which keys this block's units read at a position, in every kind of layer.
  __device__ void plan_position(std::int32_t position) const {
    Heads heads = p_.heads;
    heads.geometry = at<HeadGeometry>(c_.geometry);
    heads.entries = at<HeadEntry>(c_.head_entries);
    for (int i = warp(); i < units() * p_.plans; i += cluster_warps) {
      const int unit = i / p_.plans, head = rank_ * c_.heads + unit % c_.heads;
      KeyPlan& plan = at<KeyPlan>(c_.plans)[i];
      plan_keys(heads, i % p_.plans, Unit((first_ + unit / c_.heads) * p_.heads.count + head, p_.heads), position,
                plan);
      __syncwarp();
      if (lane() < c_.unit_warps)
        at<KeyShare>(c_.key_shares)[i * c_.unit_warps + lane()] = {plan.end * lane() / c_.unit_warps,
                                                                   plan.end * (lane() + 1) / c_.unit_warps};
    }
  }

  // This warp's first keys of a layer.
  __device__ void fetch_keys(const LayerEntry& e) {
    if (unit_ >= units()) return;
    const KeyPlan& plan = plan_of(e.plan, unit_);
    const KeyShare share = share_of(e.plan, unit_, slice_);
    const Cache<T> cache = cache_of(e, unit_);
    for (int chunk = 0; chunk < min(share.chunks(), c_.key_slots); ++chunk) keys_.fetch(plan, share, chunk, cache);
  }

  // `token`: of this warp's sequence, the byte before the position, and then that at it.
  __device__ void position(std::int32_t position, int& token) {
    plan_position(position);
    if (warp() < count_) embed(warp(), position, token);
    sync();
    fetch_keys(at<LayerEntry>(c_.entries)[0]);
    for (int k = 0; k < p_.layers; ++k) {
      await(barriers_.constants_full(constants_turn_.slot), constants_turn_.parity);
      if (warp() < count_) {
        if (k > 0) receive(outer_message, parity_ ^ 1);
        normalise(warp(), k > 0 ? at<T>(c_.deltas) + c_.sequences * p_.width : nullptr,
                  constants(c_.constants_at.attention_norm));
      }
      sync();
      attention(k);
      feed_forward();
      if (threadIdx.x == 0) barrier_arrive(barriers_.constants_empty(constants_turn_.slot));
      constants_turn_.next(2);
      parity_ ^= 1;
    }
    head(position, token);
  }

  // The position's query, key and value, from the sums.
  __device__ void finish_query() const {
    const int keys = c_.query_rows(p_), dk = p_.heads.key_size, dv = p_.heads.value_size;
    float* query = at<float>(c_.query);
    T* fresh = at<T>(c_.fresh);
    finish(c_.qkv_rows(p_), turns_of(p_.qkv), constants(c_.constants_at.qkv), [&](int s, int r, float x) {
      if (r < keys) {
        query[s * keys + r] = p_.heads.scale * x;
        return;
      }
      const bool of_key = r < 2 * keys;
      const int size = of_key ? dk : dv, of_kind = r - (of_key ? keys : 2 * keys);
      const int head = c_.heads == 1 ? 0 : of_kind / size;
      fresh[(s * c_.heads + head) * (dk + dv) + (of_key ? 0 : dk) + of_kind - head * size] = from_float<T>(x);
    });
  }

  // The position's keys and values to the cache.
  __device__ void keep(const LayerEntry& e) const {
    const int key_packs = p_.heads.key_size / 8, packs = key_packs + p_.heads.value_size / 8;
    if (lane() >= packs) return;
    for (int unit = warp(); unit < units(); unit += cluster_warps) {
      const KeyPlan& plan = plan_of(e.plan, unit);
      const Cache<T> cache = cache_of(e, unit);
      const bool of_key = lane() < key_packs;
      uint4* rows = reinterpret_cast<uint4*>(of_key ? cache.keys : cache.values);
      const int size = of_key ? key_packs : packs - key_packs, pack = of_key ? lane() : lane() - key_packs;
      const uint4 value = at<uint4>(c_.fresh)[unit * packs + lane()];
#pragma unroll
      for (int i = 0; i < HeadGeometry::most_parts; ++i)
        if (plan.ring_row[i] >= 0) rows[static_cast<std::int64_t>(plan.ring_row[i]) * size + pack] = value;
    }
  }

  // What a warp leaves for the merge: the sums of its columns, the top score, the total.
  __device__ int found_pitch() const { return p_.heads.value_size + 4; }
  __device__ void attend(const LayerEntry& e) {
    if (unit_ >= units()) return;
    const T* fresh = at<T>(c_.fresh) + unit_ * (p_.heads.key_size + p_.heads.value_size);
    const Found found =
        attend_share<T>(p_.heads, plan_of(e.plan, unit_), share_of(e.plan, unit_, slice_), cache_of(e, unit_), keys_,
                        at<float>(c_.query) + unit_ * p_.heads.key_size, fresh, fresh + p_.heads.key_size);
    float* to = at<float>(c_.sums) + warp() * found_pitch();
#pragma unroll
    for (int e = 0; e < 8; ++e)
      if (e < found.width) to[found.column + e] = found.sum[e];
    if (lane() == 0) to[p_.heads.value_size] = found.top, to[p_.heads.value_size + 1] = found.total;
  }
  __device__ void merge() const {
    const int dv = p_.heads.value_size, pitch = found_pitch();
    for (int i = thread(); i < units() * dv; i += cluster_consumers) {
      const float* from = at<float>(c_.sums) + i / dv * c_.unit_warps * pitch;
      float top = -INFINITY, total = 0, sum = 0;
      for (int w = 0; w < c_.unit_warps; ++w) top = fmaxf(top, from[w * pitch + dv]);
#pragma unroll 4
      for (int w = 0; w < c_.unit_warps; ++w) {
        const float of_warp = from[w * pitch + dv + 1], share = of_warp > 0 ? expf(from[w * pitch + dv] - top) : 0.0f;
        total += share * of_warp;
        sum += share * from[w * pitch + i % dv];
      }
      at<T>(c_.outgoing)[i] = from_float<T>(total > 0 ? sum / total : 0.0f);
    }
  }

  __device__ void attention(int k) {
    const LayerEntry e = at<LayerEntry>(c_.entries)[k];
    const int turns = turns_of(p_.qkv), of_keys = c_.query_rows(p_) / tile_rows;
    float* sums = at<float>(c_.partials);
    uint2 input[4];
    load_input(normed(), pitch_of<T>(p_.width), turns, input);
    multiply(of_keys, turns, input, sums);
    multiply(of_keys, turns, input, sums + of_keys * tile_sums(turns));
    multiply(c_.value_rows(p_) / tile_rows, turns, input, sums + 2 * of_keys * tile_sums(turns));
    sync();
    finish_query();
    sync();
    attend(e);
    sync();
    merge();
    sync();
    const int mixed = p_.heads.count * p_.heads.value_size, pitch = pitch_of<T>(mixed),
              size = static_cast<int>(sizeof(T));
    send_all(mixed_message, c_.value_rows(p_) * size, c_.mixed, pitch * size);
    keep(e);
    if (k + 1 < p_.layers) fetch_keys(at<LayerEntry>(c_.entries)[k + 1]);
    receive(mixed_message, parity_);
    product(p_.output, at<T>(c_.mixed), pitch);
    finish_branch(p_.output, c_.constants_at.output, middle_message, c_.deltas);
  }

  // A branch's output is rounded before it joins the stream, as everywhere in training.
  __device__ void finish_branch(const Packed& m, int bias, int message, int to) const {
    const int rows = c_.rows(m), size = static_cast<int>(sizeof(T));
    finish(rows, turns_of(m), constants(bias),
           [&](int s, int r, float x) { at<T>(c_.outgoing)[s * rows + r] = from_float<T>(x); });
    sync();
    send_all(message, rows * size, to, p_.width * size);
  }

  __device__ void feed_forward() {
    const int rows = c_.rows(p_.feed_inner), pitch = pitch_of<T>(p_.inner), size = static_cast<int>(sizeof(T));
    if (warp() < count_) {
      receive(middle_message, parity_);
      normalise(warp(), at<T>(c_.deltas), constants(c_.constants_at.feed_forward_norm));
    }
    sync();
    product(p_.feed_inner, normed(), pitch_of<T>(p_.width));
    finish(rows, turns_of(p_.feed_inner), constants(c_.constants_at.inner), [&](int s, int r, float x) {
      const float z = rounded(x);
      at<T>(c_.outgoing)[s * rows + r] = from_float<T>(z / (1.0f + expf(-1.702f * z)));  // gelu
    });
    sync();
    send_all(inner_message, rows * size, c_.inner, pitch * size);
    receive(inner_message, parity_);
    product(p_.feed_outer, at<T>(c_.inner), pitch);
    finish_branch(p_.feed_outer, c_.constants_at.outer, outer_message,
                  c_.deltas + c_.sequences * p_.width * static_cast<int>(sizeof(T)));
  }

  // The last norm, the logits, and the draw, which every block does for itself.
  __device__ void head(std::int32_t position, int& token) {
    const int rows = c_.rows(p_.logits);
    await(barriers_.constants_full(constants_turn_.slot), constants_turn_.parity);
    if (warp() < count_) {
      receive(outer_message, parity_ ^ 1);
      normalise(warp(), at<T>(c_.deltas) + c_.sequences * p_.width, constants(c_.constants_at.attention_norm));
    }
    sync();
    if (threadIdx.x == 0) barrier_arrive(barriers_.constants_empty(constants_turn_.slot));
    constants_turn_.next(2);
    product(p_.logits, normed(), pitch_of<T>(p_.width));
    finish(rows, turns_of(p_.logits), nullptr,
           [&](int s, int r, float x) { at<float>(c_.outgoing)[s * rows + r] = x; });
    sync();
    send_all(logits_message, rows * 4, c_.logits, p_.vocabulary * 4);
    if (warp() < count_) {
      receive(logits_message, positions_parity_);
      token = draw(warp(), position);
    }
    positions_parity_ ^= 1;
  }

  __device__ int draw(int s, std::int32_t position) const {
    const std::int64_t sequence = first_ + s, place = sequence * at_.length + position;
    const int given = position < at_.prompted ? at_.bytes[place] : -1;
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
      at_.bytes[place] = static_cast<std::uint8_t>(drawn.byte);
      if (log) at_.log_probabilities[place] = drawn.log_probability;
    }
    return drawn.byte;
  }

  const Problem& p_;
  const Cluster& c_;
  const Positions& at_;
  char* const shared_;
  const ClusterBarriers barriers_;
  KeyRing<T> keys_;
  Turn constants_turn_;
  int slot_ = 0;                                     // the ring's next stage
  std::uint32_t filled_ = 0;                         // a bit for each slot: the parity of this half's next use of it
  std::uint32_t parity_ = 0, positions_parity_ = 0;  // of the layers' messages, and the logits'
  int rank_, number_, first_, count_;
  int unit_, slice_;  // whose keys this warp attends with: of a (sequence, head) of the block, which share
};

}  // namespace longstride::kernels::cuda::generation
