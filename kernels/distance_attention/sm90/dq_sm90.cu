// dq and what it adds to the gradients of the biases and spans, on Hopper. A warpgroup has 64 queries and visits their
// key tiles in turn. Gradients of scores go from their accumulator to left operands in registers: as they are for the
// product with the keys, and skewed for the one with the table. A piece of the table belongs to the pairs of two
// neighbouring key tiles, whose gradients are collected first, so there is one such product per step; these gradients
// are also saved, where T's gradient is wanted. `Table`: whether there is a table.
#include "kernels/base/vector.cuh"
#include "kernels/distance_attention/sm90/gradients.cuh"
#include "kernels/distance_attention/sm90/launch.cuh"
#include "kernels/distance_attention/sm90/saved.cuh"
#include "kernels/distance_attention/sm90/skew.cuh"

namespace longstride::kernels::cuda::distance::sm90 {
namespace {

constexpr int tiles_of_block = 3 * warpgroups, step_slots = 4, piece_slots = 5;

// Layout of shared memory. A table takes the room of a second slot of queries.
template <bool Table>
struct Layout {
  static constexpr int query_slots = Table ? 1 : 2;
  static constexpr int steps_at = query_slots * tiles_of_block * tile_bytes,
                       pieces_at = steps_at + step_slots * 2 * tile_bytes,
                       skews_at = pieces_at + (Table ? piece_slots * tile_bytes : 0),
                       control_at = skews_at + (Table ? warpgroups * warpgroup_warps * Skew::warp_bytes : 0);
};

template <bool Table>
struct Control {
  RingBarriers<Layout<Table>::query_slots> queries;
  Group groups[Layout<Table>::query_slots];
  RingBarriers<step_slots> steps;
  RingBarriers<piece_slots> pieces;
  float sums[warpgroups][warpgroup_warps][2 * tile_rows + 1];  // gradients of u, v and the span
};
template <bool Table>
constexpr std::size_t shared_bytes = Layout<Table>::control_at + sizeof(Control<Table>) + tile_alignment;

template <bool Table>
__device__ void produce(const Problem& problem, char* shared, Control<Table>& control) {
  using Memory = Layout<Table>;
  Filling<Memory::query_slots> queries{control.queries};
  Filling<step_slots> steps{control.steps};
  Filling<piece_slots> pieces{control.pieces};
  const std::int32_t groups = groups_of(problem, tiles_of_queries(problem));
  for (auto index = static_cast<std::int32_t>(blockIdx.x); index < groups; index += gridDim.x) {
    const Group group = query_group(problem, index);
    queries.wait();
    control.groups[queries.slot.index] = group;
    std::uint64_t* const full =
        queries.announce(group.steps() > 0 ? (tiles_of_block - (Table ? 0 : warpgroups)) * tile_bytes : 0);
    char* const queries_to = shared + queries.slot.index * tiles_of_block * tile_bytes;
    queries.advance();
    if (group.steps() == 0) continue;
    const Loader load(problem, group.p);
    for (int w = 0; w < warpgroups; ++w) {
      const std::int32_t row = (group.first + w) * tile_rows;
      char* const to = queries_to + 3 * w * tile_bytes;
      load.tile(to, problem.content, row, full);
      if constexpr (Table) load.tile(to + tile_bytes, problem.position, row, full);
      load.tile(to + 2 * tile_bytes, problem.dout, row, full);
    }
    const std::int32_t farthest = group.first + warpgroups - group.all.begin;
    in_order<Table>(
        group.steps(),
        [&](std::int32_t i) {
          std::uint64_t* const barrier = pieces.begin(tile_bytes);
          load.piece(shared + Memory::pieces_at + pieces.slot.index * tile_bytes, group.p.head.origin, farthest - i,
                     barrier);
          pieces.advance();
        },
        [&](std::int32_t k) {
          std::uint64_t* const barrier = steps.begin(2 * tile_bytes);
          char* const to = shared + Memory::steps_at + steps.slot.index * 2 * tile_bytes;
          load.tile(to, problem.k, (group.all.begin + k) * tile_rows, barrier);
          load.tile(to + tile_bytes, problem.v, (group.all.begin + k) * tile_rows, barrier);
          steps.advance();
        });
  }
}

template <class T, bool Table, bool Span>
class Consumer {
  using Memory = Layout<Table>;

 public:
  __device__ Consumer(const Problem& problem, char* shared, Control<Table>& control)
      : problem_(problem),
        call_(problem.call),
        control_(control),
        shared_(shared),
        queries_{control.queries},
        reader_{{control.steps}, {control.pieces}},
        own_(uniform(this_warpgroup())),
        warp_(warp_of_group()),
        content_(descriptor<row_bytes>(shared + 3 * own_ * tile_bytes)),
        position_(descriptor<row_bytes>(shared + (3 * own_ + 1) * tile_bytes)),
        dout_(descriptor<row_bytes>(shared + (3 * own_ + 2) * tile_bytes)),
        keys_(descriptor<row_bytes>(shared + Memory::steps_at)),
        values_(descriptor<row_bytes>(shared + Memory::steps_at + tile_bytes)),
        table_(descriptor<row_bytes>(shared + Memory::pieces_at)),
        skew_(shared + Memory::skews_at + this_warp() * Skew::warp_bytes, warp_) {}

  __device__ void run() {
    const std::int32_t tiles = tiles_of_queries(problem_), groups = groups_of(problem_, tiles);
    for (auto index = static_cast<std::int32_t>(blockIdx.x); index < groups; index += gridDim.x) {
      const int taken = queries_.take();
      const Group group = control_.groups[taken];
      clear(by_content_);
      if constexpr (Table) clear(by_position_);
      span_ = 0;
      if (group.steps() > 0)
        visit(group, taken);
      else
        queries_.release(taken);
      if (group.first + own_ < tiles) store(group);
    }
  }

 private:
  __device__ void visit(const Group& group, int taken) {
    const std::int32_t t = group.first + own_;
    const Statistics statistics(call_, group.p, t);
    queries_slot_ = taken;
    reader_.reset();
    const TileRange own = group.own_of(own_);
    const std::int32_t begin = uniform(own.begin), end = uniform(own.end);
    if constexpr (Table) {
      const std::int32_t number = number_of_first_keys(group.p, t);
      gradients_ = SavedTiles(saved_gradients(problem_, group.p, t, group.unit), number + 1);
      probabilities_ = SavedTiles(saved_probabilities(problem_, group.p, t, group.unit), number);
    }
    if (begin < end) {
      const std::int32_t before = begin - group.all.begin;
      reader_.template skip<Table>(before, warpgroups - own_ - 1 + before);
      if constexpr (Table) {
        load_operand(content_operand_, shared_ + queries_at() + 3 * own_ * tile_bytes);
        first_products();
        for (std::int32_t s = begin; s + 1 < end; ++s) step_with_table<true>(group, s, statistics);
        step_with_table<false>(group, end - 1, statistics);
      } else {
        begin_products();
        take_probabilities(group, begin, statistics);
        for (std::int32_t s = begin; s + 1 < end; ++s) step<true>(group, s, statistics);
        step<false>(group, end - 1, statistics);
      }
    }
    if (!Table || begin >= end) queries_.release(taken);
    reader_.template skip<Table>(group.steps(), warpgroups + group.steps());
  }

  // Bytes from slot 0 to that of the own queries.
  __device__ int queries_at() const { return queries_slot_ * tiles_of_block * tile_bytes; }

  __device__ void first_products() {
    far_piece_ = reader_.take_piece();
    near_piece_ = reader_.take_piece();
    wgmma_fence();
    multiply<T>(s_, advanced(position_, queries_at()), advanced(table_, far_piece_ * tile_bytes), false);
    multiply<T>(near_, advanced(position_, queries_at()), advanced(table_, near_piece_ * tile_bytes), false);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(s_);
    wgmma_hold(near_);
    skew_.begin();
    skew_.put(s_);
#pragma unroll
    for (auto& k : near_gradients_)
#pragma unroll
      for (std::uint32_t& word : k) word = 0;
    move_on();
  }
  __device__ void move_on() {
    skew_.put(near_);
    skew_.get(s_);
  }

  template <bool More>
  __device__ void step_with_table(const Group& group, std::int32_t s, const Statistics& statistics) {
    const int slot = reader_.take_step();
    wgmma_fence();
    multiply<T>(s_, content_operand_, advanced(keys_, slot * 2 * tile_bytes), true);
    wgmma_commit();
    multiply<T>(dp_, advanced(dout_, queries_at()), advanced(values_, slot * 2 * tile_bytes), false);
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_hold(s_);
    const TilePairs pairs(group.p, group.first + own_, s);
    to_probabilities<Span>(s_, call_.scale * log2_e, group.p, pairs, statistics);
    Operand packed;
    pack_all<T>(packed, s_);
    probabilities_.store(s, packed);
    wgmma_wait<0>();
    wgmma_hold(dp_);
    if constexpr (!More) queries_.release(queries_slot_);  // the next ones come while this group ends
    to_gradients(dp_, s_, statistics);
    if (Span && pairs.ramped) span_ += along_ramp(dp_, group.p.head, pairs);
    Operand ds, far_gradients;
    pack_all<T>(ds, dp_);
    skew_.scatter(ds, near_gradients_, far_gradients);
    if constexpr (!More) skew_.end(near_gradients_);
    if (call_.score_gradients != nullptr) {
      gradients_.store(s, far_gradients);
      if constexpr (!More) gradients_.store(s + 1, near_gradients_);
    }
    const int piece = More ? reader_.take_piece() : 0;
    wgmma_fence();
    if constexpr (More) {
      multiply<T>(near_, advanced(position_, queries_at()), advanced(table_, piece * tile_bytes), false);
      wgmma_commit();
    }
    multiply_rows<T>(by_content_, ds, advanced(keys_, slot * 2 * tile_bytes));
    multiply_rows<T>(by_position_, far_gradients, advanced(table_, far_piece_ * tile_bytes));
    if constexpr (!More) multiply_rows<T>(by_position_, near_gradients_, advanced(table_, near_piece_ * tile_bytes));
    wgmma_commit();
    if constexpr (More) {  // the next scores begin during the products of gradients
      wgmma_wait<1>();
      wgmma_hold(near_);
      move_on();
    }
    wgmma_wait<0>();
    wgmma_hold(by_content_);
    wgmma_hold(by_position_);
    reader_.steps.release(slot);
    reader_.pieces.release(far_piece_);
    if constexpr (More) {
      far_piece_ = near_piece_;
      near_piece_ = piece;
    } else {
      reader_.pieces.release(near_piece_);
    }
  }

  // Without a table nothing depends on the step before, so that the products of the next step, and its probabilities,
  // are computed while this one's gradient is multiplied.
  __device__ void begin_products() {
    slot_ = reader_.take_step();
    wgmma_fence();
    multiply<T>(s_, advanced(content_, queries_at()), advanced(keys_, slot_ * 2 * tile_bytes), false);
    wgmma_commit();
    multiply<T>(dp_, advanced(dout_, queries_at()), advanced(values_, slot_ * 2 * tile_bytes), false);
  }
  __device__ void take_probabilities(const Group& group, std::int32_t s, const Statistics& statistics) {
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_hold(s_);
    to_probabilities<Span>(s_, call_.scale * log2_e, group.p, {group.p, group.first + own_, s}, statistics);
    wgmma_wait<0>();
    wgmma_hold(dp_);
  }
  template <bool More>
  __device__ void step(const Group& group, std::int32_t s, const Statistics& statistics) {
    const TilePairs pairs(group.p, group.first + own_, s);
    const int slot = slot_;
    to_gradients(dp_, s_, statistics);
    if (Span && pairs.ramped) span_ += along_ramp(dp_, group.p.head, pairs);
    Operand ds;
    pack_all<T>(ds, dp_);
    if constexpr (More) begin_products();
    wgmma_fence();
    multiply_rows<T>(by_content_, ds, advanced(keys_, slot * 2 * tile_bytes));
    if constexpr (More) {
      take_probabilities(group, s + 1, statistics);
    } else {
      wgmma_commit();
      wgmma_wait<0>();
    }
    wgmma_hold(by_content_);
    reader_.steps.release(slot);
  }

  // Two lanes with the same 2 Kept columns exchange halves: either keeps one and sends the other.
  template <int Kept>
  __device__ static void halve(float (&x)[16], int& block) {
    constexpr int offset = 32 / Kept;
    const bool upper = (this_lane() & offset) != 0;
    block = 2 * block + (upper ? 1 : 0);
#pragma unroll
    for (int i = 0; i < Kept; ++i) {
      const float sent = __shfl_xor_sync(~0u, upper ? x[i] : x[i + Kept], offset);
      x[i] = (upper ? x[i + Kept] : x[i]) + sent;
    }
  }
  // The sums over a warp's rows of an accumulator; a lane ends with one block of 8 columns.
  __device__ void sum_rows(const Accumulator& d, float* to) const {
    float x[16];
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) x[2 * j + e] = d[element_at(j, 0, e)] + d[element_at(j, 1, e)];
    int block = 0;
    halve<8>(x, block);
    halve<4>(x, block);
    halve<2>(x, block);
    to[8 * block + lane_column()] = x[0];
    to[8 * block + lane_column() + 1] = x[1];
  }

  __device__ void store(const Group& group) {
    store_sums(group);
    if constexpr (Table) {
#pragma unroll
      for (int i = 0; i < 32; ++i) by_content_[i] += by_position_[i];
    }
    const std::int32_t begin = group.p.first_query(group.first + own_) + lane_row();  // entry
    store_rows<T>(by_content_, {call_.scale, call_.scale}, call_.size, [&](int h) -> T* {
      const std::int32_t entry = begin + 8 * h;
      return entry < group.p.in.entries ? row_of<T>(call_.dq, group.p.head, group.p.query(call_, entry)) : nullptr;
    });
  }

  // Stores the tile's share of the gradients of u, v and the span.
  __device__ void store_sums(const Group& group) {
    auto& sums = control_.sums[own_];
    sum_rows(by_content_, sums[warp_]);
    if constexpr (Table) sum_rows(by_position_, sums[warp_] + tile_rows);
    const float span = warp_sum(span_);
    if (this_lane() == 0) sums[warp_][2 * tile_rows] = span;
    named_barrier_sync(1 + own_, warpgroup_threads);
    const Place& p = group.p;
    const std::int64_t unit = static_cast<std::int64_t>(p.head.sequence) * call_.heads + p.head.head;
    const std::int32_t number = p.in.first + problem_.step * (group.first + own_);
    float* const to = call_.bias_sums + (unit * call_.query_tiles + number) * (2 * call_.size + 1);
    const int x = this_thread() % warpgroup_threads, column = x % tile_rows;
    const auto total = [&](int at) { return sums[0][at] + sums[1][at] + sums[2][at] + sums[3][at]; };
    if (column < call_.size)
      to[x / tile_rows * call_.size + column] = Table || x < tile_rows ? call_.scale * total(x) : 0.0f;
    if (x == 0)
      to[2 * call_.size] = call_.span != nullptr ? total(2 * tile_rows) * call_.longest_span * p.head.ramp.slope : 0.0f;
    named_barrier_sync(1 + own_, warpgroup_threads);
  }

  const Problem& problem_;
  const Call& call_;
  Control<Table>& control_;
  char* const shared_;
  Emptying<Memory::query_slots> queries_;
  Reader<step_slots, piece_slots> reader_;
  const int own_, warp_;
  const std::uint64_t content_, position_, dout_, keys_, values_, table_;  // own tiles and the rings' first ones
  int queries_slot_ = 0;
  int far_piece_ = 0, near_piece_ = 0;  // slots of the two pieces of this step
  Skew skew_;
  int slot_ = 0;             // without a table: of the step whose products are begun
  Operand content_operand_;  // with a table: the own queries for the keys, as otherwise shared memory is read more
  Operand near_gradients_;   // by distance, of the nearer piece of the step before
  SavedTiles gradients_, probabilities_;
  float span_ = 0;  // this lane's share of the span's gradient, but for its factor
  Accumulator by_content_, by_position_, s_, dp_, near_;
};

template <class T, bool Table, bool Span>
__global__ void __launch_bounds__(threads, 1) dq_kernel(const __grid_constant__ Problem problem) {
  extern __shared__ char memory[];
  char* const shared = memory + bytes_to_tile(memory);
  auto& control = *reinterpret_cast<Control<Table>*>(shared + Layout<Table>::control_at);
  start_rings(control.queries, control.steps, control.pieces);
  if (threadIdx.x >= producer) {
    registers_give<producer_registers>();
    if (threadIdx.x == producer) produce<Table>(problem, shared, control);
  } else {
    registers_take<consumer_registers>();
    Consumer<T, Table, Span>(problem, shared, control).run();
  }
}

}  // namespace

template <class T>
void dq(const Problem& problem, const Launch& launch) {
  with_form(problem.call, [&](auto form) {
    using F = decltype(form);
    run_groups("distance attention dq", dq_kernel<T, F::Table, F::Span>, shared_bytes<F::Table>, problem,
               tiles_of_queries(problem), launch);
  });
}
template void dq<__nv_bfloat16>(const Problem&, const Launch&);
template void dq<__half>(const Problem&, const Launch&);

}  // namespace longstride::kernels::cuda::distance::sm90
