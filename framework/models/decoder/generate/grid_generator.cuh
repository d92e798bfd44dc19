// The kernel on the whole grid: one block per multiprocessor, all blocks in step through the model. A layer is five
// products or sums, each divided between all blocks, and between two of them every block needs the results of all
// others. This hand-over dominates the time of a position, not the arithmetic; so
//  - values travel with their tags (exchange.cuh): no barrier, no second round trip;
//  - loads that do not depend on the hand-over are in flight while a block waits for it: the next matrix's weights into
//    registers, the cached keys and values into shared memory, the next layer's weights into the second-level cache;
//  - every block computes the embedding, the norms and the draw itself instead of receiving them.
// The words of a few layers are reused in turn; a split barrier (arrive, later wait) separates two uses.
#pragma once
#include "framework/models/decoder/generate/problem.cuh"
#include "kernels/gpu/copy.cuh"
#include "kernels/gpu/global.cuh"

namespace longstride::generation {

__device__ __forceinline__ void prefetch_tiles(const MatrixTiles& m) {
  const MatrixShare share = m.share;
  const std::int64_t bytes = static_cast<std::int64_t>(share.depth) * 512;
  for (int i = 0; i < share.own; ++i)
    prefetch_bytes(
        reinterpret_cast<const char*>(m.blocks) + (share.first + static_cast<std::int64_t>(i) * gridDim.x) * bytes,
        static_cast<std::uint32_t>(bytes));
}

// `transforms`: whether queries and keys are normalised or rotated. A kernel without this code spills fewer registers
// and is 3.5 to 5% faster (docs/notes/2026-11/performance.md).
template <class T, bool transforms>
class GridGenerator {
 public:
  __device__ __forceinline__ GridGenerator(const GenerationProblem& problem, const PositionSpan& span, char* shared)
      : p_(problem),
        at_(span),
        s_(problem, shared),
        heads_(problem.heads),
        output_(static_cast<int>(threadIdx.x), problem.batch) {
    heads_.geometry = s_.geometry;
    heads_.entries = s_.heads;
    heads_.rotation = s_.rotation;
    const int grid = static_cast<int>(gridDim.x);
    units_ = p_.batch * heads_.count * heads_.splits;
    first_unit_ = (static_cast<int>(blockIdx.x) + grid - grid / 2) % grid;
    copiers_ = p_.batch <= warps / 2 ? threads / 2 : 0;
    copy_all(s_.entries, p_.entries, p_.layers);
    copy_all(s_.geometry, p_.heads.geometry, p_.geometries);
    copy_all(s_.heads, p_.heads.entries, p_.plans * heads_.count);
    const PackedMatrix packed[matrices] = {p_.qkv, p_.output, p_.feed_inner, p_.feed_outer, p_.logits};
#pragma unroll
    for (int m = 0; m < matrices; ++m)
      if (static_cast<int>(threadIdx.x) == 32 * m)
        s_.shares[m] = share_of(packed[m].tiles, packed[m].depth, packed[m].offset);
    __syncthreads();
  }

  __device__ void run() {
    fetch_ahead(qkv(0), output_, ahead_);
    fetch_norm(0, p_.attention_norm, s_.norms[0]);
    copies_wait_all();
    __syncthreads();
    int token[most_batch / warps] = {};
#pragma unroll
    for (int i = 0; i < most_batch / warps; ++i)
      if (sequence(i) < p_.batch && at_.first > 0) token[i] = at_.bytes[sequence(i) * at_.length + at_.first - 1];
    const auto turns = static_cast<unsigned>((p_.layers + p_.turn - 1) / p_.turn);
    turn_ = static_cast<unsigned>(at_.first) * turns;
    for (std::int32_t i = 0; i < at_.count; ++i) position(at_.first + i, token);
  }

 private:
  static __device__ int warp() { return static_cast<int>(threadIdx.x) / 32; }
  // The sequences for which this warp computes norms and draws.
  static __device__ int sequence(int i) { return warp() + i * warps; }
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }

  template <class U>
  static __device__ void copy_all(U* to, const U* from, int count) {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += threads) to[i] = from[i];
  }

  __device__ const char* layer(int k) const { return p_.weights + k * p_.layer_bytes; }
  __device__ MatrixTiles matrix(int k, const PackedMatrix& m, int share) const {
    return {reinterpret_cast<const uint4*>(layer(k) + m.blocks),
            m.bias < 0 ? nullptr : reinterpret_cast<const float*>(layer(k) + m.bias), s_.shares[share]};
  }
  __device__ MatrixTiles qkv(int k) const { return matrix(k, p_.qkv, 0); }
  __device__ MatrixTiles output(int k) const { return matrix(k, p_.output, 1); }
  __device__ MatrixTiles inner(int k) const { return matrix(k, p_.feed_inner, 2); }
  __device__ MatrixTiles outer(int k) const { return matrix(k, p_.feed_outer, 3); }
  __device__ MatrixTiles logits() const { return matrix(p_.layers, p_.logits, 4); }

  // Starts the copy, which is complete after copies_wait_all() and a __syncthreads.
  __device__ void fetch_norm(int k, const Norm& norm, float* to) const {
    for (int i = 4 * static_cast<int>(threadIdx.x); i < 2 * p_.width; i += 4 * threads) {
      const char* from = layer(k) + (i < p_.width ? norm.gain : norm.bias - 4 * p_.width) + 4 * i;
      copy_async_16(shared_address(to + i), from);
    }
  }

  __device__ HeadCache<T> cache_of(int k, int sequence) const {
    const LayerEntry& e = s_.entries[k];
    return {reinterpret_cast<T*>(p_.cache + e.keys) + sequence * e.rows * heads_.key_size,
            reinterpret_cast<T*>(p_.cache + e.values) + sequence * e.rows * heads_.value_size};
  }

  // The keys that every unit of this block reads at a position, for every kind of layer, and the rotation of queries
  // and keys.
  __device__ void plan_position(std::int32_t position) const {
    const int grid = static_cast<int>(gridDim.x), plans = p_.rounds * p_.plans;
    const int pair = static_cast<int>(threadIdx.x);
    if (transforms && pair < heads_.key_size / 2)
      sine_and_cosine(position * p_.turns.of[pair], &s_.rotation[pair].y, &s_.rotation[pair].x);
    for (int i = warp(); i < plans; i += warps) {
      const int unit = first_unit_ + i / p_.plans * grid;
      if (unit < units_) plan_keys(heads_, i % p_.plans, AttendUnit(unit, heads_), position, s_.key_plans[i]);
    }
    __syncthreads();
    for (int i = 0; i < plans; ++i) {
      if (first_unit_ + i / p_.plans * grid >= units_) break;
      const KeyPlan& plan = s_.key_plans[i];
      const int count = min(plan.end - plan.begin, s_.stage.most);
      for (int key = static_cast<int>(threadIdx.x); key < count; key += threads)
        s_.lists[i * s_.stage.most + key] = plan.row(plan.begin + key);
    }
    __syncthreads();
  }

  // Starts to copy the keys of one of this block's units in layer k, as many as fit.
  __device__ void fetch_keys_of(int k, int round, int from) const {
    const int number = first_unit_ + round * static_cast<int>(gridDim.x);
    if (number >= units_) return;
    const AttendUnit unit(number, heads_);
    const HeadCache<T> cache = cache_of(k, unit.sequence);
    const int i = round * p_.plans + s_.entries[k].plan;
    const KeyPlan& plan = s_.key_plans[i];
    fetch_keys<T>(heads_, {cache.keys, cache.values}, s_.lists + i * s_.stage.most,
                  min(plan.end - plan.begin, s_.stage.most), s_.stage, from);
  }

  __device__ void put(int s, int pitch, int d, float a, float b) const {
    *reinterpret_cast<Pack<T, 2>*>(s_.vectors + s * pitch + d) = {{from_float<T>(a), from_float<T>(b)}};
  }

  // vectors[s] = norm(stream[s]). Called by one warp.
  __device__ void normalise(int s, const float* norm) const {
    const int pitch = pitch_of<T>(p_.width);
    const float* x = s_.stream + s * p_.width;
    float sum = 0, squares = 0;
    for (int d = lane(); d < p_.width; d += 32) sum += x[d];
    const float mean = warp_sum(sum) / static_cast<float>(p_.width);
    for (int d = lane(); d < p_.width; d += 32) squares += (x[d] - mean) * (x[d] - mean);
    const float rstd = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(p_.width) + 1e-5f);
    for (int d = lane(); d < p_.width; d += 32)
      s_.vectors[s * pitch + d] = from_float<T>((x[d] - mean) * rstd * norm[d] + norm[p_.width + d]);
  }

  // Receives the stream, written by all blocks, and computes its norm.
  __device__ void receive_stream(const Word* words, std::uint32_t tag, const float* norm) const {
    for (int s = warp(); s < p_.batch; s += warps) receive_stream_of(s, words, tag, norm);
  }

  // Called by one warp, which keeps the stream in registers unless it is too wide.
  __device__ __forceinline__ void receive_stream_of(int s, const Word* words, std::uint32_t tag,
                                                    const float* norm) const {
    constexpr int pairs = 8;
    float* stream = s_.stream + s * p_.width;
    words += static_cast<std::int64_t>(s) * p_.width;
    if (p_.width > 64 * pairs) {
      receive<pairs>(words, p_.width, tag, lane(), 32, [&](int d, std::uint32_t x) { stream[d] = __uint_as_float(x); });
      __syncwarp();
      normalise(s, norm);
      return;
    }
    float x[pairs][2] = {}, sum = 0, squares = 0;
    receive_pairs<pairs>(words, p_.width, tag, lane(), 32, x);
#pragma unroll
    for (int i = 0; i < pairs; ++i) {
      const int d = 2 * (lane() + 32 * i);
      if (d < p_.width) *reinterpret_cast<float2*>(stream + d) = make_float2(x[i][0], x[i][1]);
      sum += x[i][0] + x[i][1];
    }
    const float mean = warp_sum(sum) / static_cast<float>(p_.width);
#pragma unroll
    for (int i = 0; i < pairs; ++i)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (2 * (lane() + 32 * i) < p_.width) squares += (x[i][e] - mean) * (x[i][e] - mean);
    const float rstd = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(p_.width) + 1e-5f);
    const int pitch = pitch_of<T>(p_.width);
#pragma unroll
    for (int i = 0; i < pairs; ++i) {
      const int d = 2 * (lane() + 32 * i);
      if (d >= p_.width) break;
      const float2 gain = *reinterpret_cast<const float2*>(norm + d);
      const float2 bias = *reinterpret_cast<const float2*>(norm + p_.width + d);
      put(s, pitch, d, (x[i][0] - mean) * rstd * gain.x + bias.x, (x[i][1] - mean) * rstd * gain.y + bias.y);
    }
  }

  // Called by one warp.
  __device__ void embed(int s, std::int32_t position, int token) const {
    float* stream = s_.stream + s * p_.width;
    const EmbeddingRows rows(p_, position, token,
                             [&](const PositionTable& table) { return position / table.divisor % table.size; });
    for (int d = lane(); d < p_.width; d += 32) stream[d] = rows.sum(d);
    __syncwarp();
  }

  __device__ Words words(int k) const {
    Words w;
    words_of<T>(p_, p_.words + k % p_.turn * p_.layer_words, w);
    return w;
  }

  // One position. `token` holds one byte for each of this warp's sequences: on entry the byte before the position, on
  // return the byte at it.
  __device__ void position(std::int32_t position, int (&token)[most_batch / warps]) {
    const Barrier barrier{p_.arrived};
    const Word* before = nullptr;
    Word* base = p_.words;
    Word* const end = p_.words + p_.turn * p_.layer_words;
    for (int k = 0; k < p_.layers; ++k) {
      Words w;
      words_of<T>(p_, base, w);
      if (k == 0) {
#pragma unroll
        for (int i = 0; i < most_batch / warps; ++i) {
          if (sequence(i) >= p_.batch) break;
          embed(sequence(i), position, token[i]);
          normalise(sequence(i), s_.norms[0]);
        }
      } else {
        fetch_keys_of(k, 0, copiers_);
        receive_stream(before, turn_, s_.norms[0]);
      }
      if (base == p_.words) {
        barrier.arrive();
        ++turn_;
        if (k == 0) plan_position(position);
        barrier.wait(turn_);
        // The previous position's rows in the cache of layer 0 are visible now.
        if (k == 0) fetch_keys_of(0, 0, 0);
      } else {
        __syncthreads();
      }
      fetch_norm(k, p_.feed_forward_norm, s_.norms[1]);
      if (k + 1 < p_.layers) prefetch_layer(k + 1);
      attention(k, w);
      feed_forward(k, w);
      before = w.out;
      base += p_.layer_words;
      if (base == end) base = p_.words;
    }
    head(position, before, token);
  }

  __device__ void prefetch_layer(int k) const {
    if (warp() == warps - 1) prefetch_tiles(qkv(k));
    if (warp() == warps - 2) prefetch_tiles(output(k));
    if (warp() == warps - 3) prefetch_tiles(inner(k));
    if (warp() == warps - 4) prefetch_tiles(outer(k));
    // Biases and norms are small, and every block reads them.
    if (warp() == warps - 5 && blockIdx.x == gridDim.x - 1)
      prefetch_bytes(layer(k) + p_.vectors, static_cast<std::uint32_t>(p_.layer_bytes - p_.vectors));
  }

  __device__ void attention(int k, const Words& w) {
    const int rows = p_.qkv.tiles * tile_rows, grid = static_cast<int>(gridDim.x);
    multiply<T>(qkv(k), s_.vectors, pitch_of<T>(p_.width), p_.batch, output_, s_.partials, ahead_, output(k),
                [&](int s, int row, float x) { send(w.qkv + s * rows + row, x, turn_); });
    int round = 0;
    for (int u = first_unit_; u < units_; u += grid, ++round) {
      const AttendUnit unit(u, heads_);
      if (round > 0) {
        __syncthreads();  // the previous unit's keys are still being read
        fetch_keys_of(k, round, 0);
      }
      attend<T, transforms>(heads_, s_.key_plans[round * p_.plans + s_.entries[k].plan], unit,
                            cache_of(k, unit.sequence), s_.stage, w.qkv + unit.sequence * rows,
                            w.mixed + static_cast<std::int64_t>(u) * heads_.unit_words(), turn_);
    }
    const int mixed = heads_.count * heads_.value_size;
    if (s_.shares[1].own > 0) {
      receive_mixed(w.mixed, turn_, pitch_of<T>(mixed));
      __syncthreads();
    }
    multiply<T>(output(k), s_.vectors, pitch_of<T>(mixed), p_.batch, output_, s_.partials, ahead_, inner(k),
                [&](int s, int row, float x) {
                  send(w.middle + s * p_.width + row, s_.stream[s * p_.width + row] + rounded(x), turn_);
                });
  }

  // As in training, where a branch's output is rounded before it is added to the stream.
  static __device__ float rounded(float x) { return to_float(from_float<T>(x)); }

  // Merges the splits of every head's output into the vectors of the next product.
  __device__ void receive_mixed(const Word* words, std::uint32_t tag, int pitch) const {
    const int dv = heads_.value_size, mixed = heads_.count * dv, unit = heads_.unit_words();
    for (int i = 2 * static_cast<int>(threadIdx.x); i < p_.batch * mixed; i += 2 * threads) {
      const Word* from = words + static_cast<std::int64_t>(i / dv) * heads_.splits * unit;
      float x[1][2];
      if (heads_.splits == 1) {
        receive_pairs<1>(from + i % dv, 2, tag, 0, 1, x);
        put(i / mixed, pitch, i % mixed, x[0][0], x[0][1]);
        continue;
      }
      float top = -INFINITY, total = 0, sum[2] = {};
      for (int split = 0; split < heads_.splits; ++split, from += unit) {
        float of_split[1][2];
        receive_pairs<1>(from + i % dv, 2, tag, 0, 1, x);
        receive_pairs<1>(from + dv, 2, tag, 0, 1, of_split);
        if (of_split[0][1] <= 0) continue;
        const float most = fmaxf(top, of_split[0][0]), old = expf(top - most), now = expf(of_split[0][0] - most);
        top = most;
        total = total * old + of_split[0][1] * now;
        for (int e = 0; e < 2; ++e) sum[e] = sum[e] * old + x[0][e] * now;
      }
      const float share = total > 0 ? 1.0f / total : 0.0f;
      put(i / mixed, pitch, i % mixed, sum[0] * share, sum[1] * share);
    }
  }

  __device__ void feed_forward(int k, const Words& w) {
    const bool last = k + 1 == p_.layers;
    copies_wait_all();
    __syncthreads();  // the norm's gain and bias have arrived
    receive_stream(w.middle, turn_, s_.norms[1]);
    __syncthreads();
    fetch_norm(k + 1, last ? p_.final_norm : p_.attention_norm, s_.norms[0]);
    multiply<T>(inner(k), s_.vectors, pitch_of<T>(p_.width), p_.batch, output_, s_.partials, ahead_, outer(k),
                [&](int s, int row, float x) { send_inner(w.inner, s, row, gelu(x), turn_); });
    if (s_.shares[3].own > 0) receive_inner(w.inner, turn_);
    copies_wait_all();
    __syncthreads();
    multiply<T>(outer(k), s_.vectors, pitch_of<T>(p_.inner), p_.batch, output_, s_.partials, ahead_,
                last ? logits() : qkv(k + 1), [&](int s, int row, float x) {
                  send(w.out + s * p_.width + row, s_.stream[s * p_.width + row] + rounded(x), turn_);
                });
  }

  static __device__ float gelu(float x) {
    const float z = rounded(x);
    return z / (1.0f + expf(-1.702f * z));
  }

  // Neighbouring rows belong to neighbouring threads: two 16-bit values share a word.
  __device__ void send_inner(Word* words, int s, int row, float x, std::uint32_t tag) const {
    if constexpr (sizeof(T) == 4) {
      send(words + static_cast<std::int64_t>(s) * p_.inner + row, x, tag);
    } else {
      const int lane = static_cast<int>(threadIdx.x) % 32;
      const float other = __shfl_down_sync(0xFFu << lane / tile_rows * tile_rows, x, 1, tile_rows);
      Pack<T, 2> pair{{from_float<T>(x), from_float<T>(other)}};
      if (row % 2 == 0)
        send(words + (static_cast<std::int64_t>(s) * p_.inner + row) / 2, *reinterpret_cast<std::uint32_t*>(&pair),
             tag);
    }
  }
  __device__ void receive_inner(const Word* words, std::uint32_t tag) const {
    const int each = p_.inner / values_in_word<T>(), pitch = pitch_of<T>(p_.inner);
    receive<4>(words, p_.batch * each, tag, static_cast<int>(threadIdx.x), threads, [&](int i, std::uint32_t x) {
      std::uint32_t* to = reinterpret_cast<std::uint32_t*>(s_.vectors + i / each * pitch);
      to[i % each] = x;
    });
  }

  // The last norm, the logits, and the draw, which every block repeats.
  __device__ void head(std::int32_t position, const Word* before, int (&token)[most_batch / warps]) {
    Word* words = p_.words + p_.turn * p_.layer_words;
    receive_stream(before, turn_, s_.norms[0]);
    __syncthreads();
    fetch_norm(0, p_.attention_norm, s_.norms[0]);
    prefetch_layer(0);
    multiply<T>(logits(), s_.vectors, pitch_of<T>(p_.width), p_.batch, output_, s_.partials, ahead_, qkv(0),
                [&](int s, int row, float x) { send(words + s * p_.vocabulary + row, x, turn_); });
    copies_wait_all();
#pragma unroll
    for (int i = 0; i < most_batch / warps; ++i)
      if (sequence(i) < p_.batch) token[i] = draw(sequence(i), position, words + sequence(i) * p_.vocabulary, turn_);
    __syncthreads();  // the norm has arrived
  }

  __device__ int draw(int s, std::int32_t position, const Word* words, std::uint32_t tag) const {
    const std::int64_t index = s * at_.length + position;
    const int given = position < at_.prompted ? at_.bytes[index] : -1;
    float x[Draw::each];
#pragma unroll
    for (int e = 0; e < Draw::each; ++e) x[e] = -INFINITY;
    float pairs[Draw::each / 2][2];
    if (lane() * Draw::each < p_.vocabulary) {  // a multiple of what a lane has
      receive_pairs<Draw::each / 2>(words + lane() * Draw::each, Draw::each, tag, 0, 1, pairs);
#pragma unroll
      for (int e = 0; e < Draw::each; ++e) x[e] = pairs[e / 2][e % 2];
    }
    __syncwarp();
    const bool log = at_.log_probabilities != nullptr && blockIdx.x == 0;
    const Draw drawn =
        draw_by_warp(x, at_.sampling, uniform_for(at_.sampling, at_.first_sequence + s, position), given, log);
    if (blockIdx.x == 0 && lane() == 0) {
      at_.bytes[index] = static_cast<std::uint8_t>(drawn.byte);
      if (log) at_.log_probabilities[index] = drawn.log_probability;
    }
    return drawn.byte;
  }

  const GenerationProblem& p_;
  const PositionSpan& at_;
  const SharedLayout<T> s_;
  GenerationHeads heads_;
  ProductOutput output_;
  Ahead ahead_;
  unsigned turn_ = 0;
  int units_, first_unit_, copiers_;
};

}  // namespace longstride::generation
