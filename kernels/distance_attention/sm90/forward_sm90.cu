// o and lse on Hopper. A warpgroup has 64 queries, adds the biases to them, and visits their key tiles in turn: an
// online softmax as in attention/sm90/general. The products with a piece of the table serve two key tiles, so there is
// one per step, which is computed while the softmax of the step before runs; the scores' accumulator begins with the
// distance term. `Table`: whether there is one.
#include "kernels/attention/sm90/general/softmax.cuh"
#include "kernels/distance_attention/sm90/launch.cuh"
#include "kernels/distance_attention/sm90/skew.cuh"

namespace longstride::kernels::cuda::distance::sm90 {
namespace {

constexpr int step_slots = 4, piece_slots = 4, queries_bytes = warpgroups * tile_bytes;
constexpr int steps_at = queries_bytes, pieces_at = steps_at + step_slots * 2 * tile_bytes,
              skews_at = pieces_at + piece_slots * tile_bytes,
              control_at = skews_at + warpgroups * warpgroup_warps * Skew::warp_bytes;

struct Control {
  RingBarriers<1> queries;
  Group groups[1];
  RingBarriers<step_slots> steps;
  RingBarriers<piece_slots> pieces;
};
constexpr std::size_t shared_bytes = control_at + sizeof(Control) + tile_alignment;

template <bool Table>
__device__ void produce(const Problem& problem, char* shared, Control& control) {
  Filling<1> queries{control.queries};
  Filling<step_slots> steps{control.steps};
  Filling<piece_slots> pieces{control.pieces};
  const std::int32_t groups = groups_of(problem, tiles_of_queries(problem));
  for (auto index = static_cast<std::int32_t>(blockIdx.x); index < groups; index += gridDim.x) {
    const Group group = query_group(problem, index);
    queries.wait();
    control.groups[0] = group;
    std::uint64_t* const full = queries.announce(group.steps() > 0 ? queries_bytes : 0);
    queries.advance();
    if (group.steps() == 0) continue;
    const Loader load(problem, group.p);
    for (int w = 0; w < warpgroups; ++w)
      load.tile(shared + w * tile_bytes, problem.content, (group.first + w) * tile_rows, full);
    const std::int32_t farthest = group.first + warpgroups - group.all.begin;
    in_order<Table>(
        group.steps(),
        [&](std::int32_t i) {
          std::uint64_t* const barrier = pieces.begin(tile_bytes);
          load.piece(shared + pieces_at + pieces.slot.index * tile_bytes, group.p.head.origin, farthest - i, barrier);
          pieces.advance();
        },
        [&](std::int32_t k) {
          std::uint64_t* const barrier = steps.begin(2 * tile_bytes);
          char* const to = shared + steps_at + steps.slot.index * 2 * tile_bytes;
          load.tile(to, problem.k, (group.all.begin + k) * tile_rows, barrier);
          load.tile(to + tile_bytes, problem.v, (group.all.begin + k) * tile_rows, barrier);
          steps.advance();
        });
  }
}

template <class T, bool Table, bool Span>
class Consumer {
 public:
  __device__ Consumer(const Problem& problem, char* shared, Control& control)
      : problem_(problem),
        call_(problem.call),
        shared_(shared),
        control_(control),
        queries_{control.queries},
        reader_{{control.steps}, {control.pieces}},
        own_(uniform(this_warpgroup())),
        warp_(warp_of_group()),
        keys_(descriptor<row_bytes>(shared + steps_at)),
        values_(descriptor<row_bytes>(shared + steps_at + tile_bytes)),
        table_(descriptor<row_bytes>(shared + pieces_at)),
        skew_(shared + skews_at + this_warp() * Skew::warp_bytes, warp_) {}

  __device__ void run() {
    const std::int32_t groups = groups_of(problem_, tiles_of_queries(problem_));
    for (auto index = static_cast<std::int32_t>(blockIdx.x); index < groups; index += gridDim.x) {
      const int taken = queries_.take();
      const Group group = control_.groups[taken];
      cuda::sm90::Softmax softmax(call_.scale * log2_e);
      clear(o_);
      if (group.steps() > 0)
        visit(group, taken, softmax);
      else
        queries_.release(taken);
      store(group, softmax);
    }
  }

 private:
  __device__ void visit(const Group& group, int taken, cuda::sm90::Softmax& softmax) {
    load_operand(content_, shared_ + own_ * tile_bytes);
    proxy_fence();  // ldmatrix may read after the release otherwise, when the next queries come
    queries_.release(taken);
    if constexpr (Table) {
      copy_operand(position_, content_);
      add_bias(position_, call_.position_bias, group.p.head);
    }
    add_bias(content_, call_.content_bias, group.p.head);
    reader_.reset();
    const TileRange own = group.own_of(own_);
    const std::int32_t begin = uniform(own.begin), end = uniform(own.end);
    if (begin < end) {
      const std::int32_t before = begin - group.all.begin;
      reader_.template skip<Table>(before, warpgroups - own_ - 1 + before);
      if constexpr (Table) first_products();
      if (begin + 1 < end) {
        step<false, true>(group, begin, softmax);
        for (std::int32_t s = begin + 1; s + 1 < end; ++s) step<true, true>(group, s, softmax);
        step<true, false>(group, end - 1, softmax);
      } else {
        step<false, false>(group, begin, softmax);
      }
      wgmma_fence();
      multiply_rows<T>(o_, p_, advanced(values_, held_ * 2 * tile_bytes));
      wgmma_commit();
      wgmma_wait<0>();
      wgmma_hold(o_);
      reader_.steps.release(held_);
    }
    reader_.template skip<Table>(group.steps(), warpgroups + group.steps());
  }

  // queries += bias, unless it is null.
  __device__ void add_bias(Operand& queries, const float* bias, const Head& head) const {
    if (bias == nullptr) return;
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::int32_t column = 16 * k + 8 * half + lane_column();
        const float* const at = bias + head.head * call_.size + column;
        const float b[2] = {column < call_.size ? at[0] : 0.0f, column < call_.size ? at[1] : 0.0f};
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          const float2 q = unpack<T>(queries[k][i]);
          queries[k][i] = pack<T>(q.x + b[0], q.y + b[1]);
        }
      }
  }

  // The scores of the first tile begin with the products of two pieces, of which s_ has the farther one's at first.
  __device__ void first_products() {
    const int a = reader_.take_piece(), b = reader_.take_piece();
    wgmma_fence();
    multiply<T>(s_, position_, advanced(table_, a * tile_bytes), false);
    multiply<T>(near_, position_, advanced(table_, b * tile_bytes), false);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(s_);
    wgmma_hold(near_);
    reader_.pieces.release(a);
    reader_.pieces.release(b);
    skew_.begin();
    skew_.put(s_);
    move_on();
  }
  __device__ void move_on() {
    skew_.put(near_);
    skew_.get(s_);
  }

  // The values of the step before (`Holds`), the scores of this one, for which it waits, and the products with the
  // table of the next (`More`), whose piece it returns.
  template <bool Holds, bool More>
  __device__ int begin_with_table(int slot) {
    wgmma_fence();
    if constexpr (Holds) multiply_rows<T>(o_, p_, advanced(values_, held_ * 2 * tile_bytes));
    wgmma_fence();
    multiply<T>(s_, content_, advanced(keys_, slot * 2 * tile_bytes), true);
    wgmma_commit();
    int piece = 0;
    if constexpr (More) {
      piece = reader_.take_piece();
      wgmma_fence();
      multiply<T>(near_, position_, advanced(table_, piece * tile_bytes), false);
      wgmma_commit();
    }
    wgmma_wait<More ? 1 : 0>();
    wgmma_hold(s_);
    let_go<Holds>(slot);
    return piece;
  }
  // The scores of this step, for which it waits, and the values of the step before, which are multiplied during the
  // softmax.
  template <bool Holds>
  __device__ void begin(int slot) {
    wgmma_fence();
    multiply<T>(s_, content_, advanced(keys_, slot * 2 * tile_bytes), false);
    wgmma_commit();
    if constexpr (Holds) multiply_rows<T>(o_, p_, advanced(values_, held_ * 2 * tile_bytes));
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_hold(s_);
  }
  // The values of the step before are multiplied; those of `slot` will be.
  template <bool Holds>
  __device__ void let_go(int slot) {
    wgmma_hold(o_);
    if constexpr (Holds) reader_.steps.release(held_);
    held_ = slot;
  }

  template <bool Holds, bool More>
  __device__ void step(const Group& group, std::int32_t s, cuda::sm90::Softmax& softmax) {
    const int slot = reader_.take_step();
    int piece = 0;
    if constexpr (Table)
      piece = begin_with_table<Holds, More>(slot);
    else
      begin<Holds>(slot);
    const TilePairs pairs(group.p, group.first + own_, s);
    if (pairs.masked) {
      const Interval allowed[2] = {visible_columns(group.p, pairs, lane_row()),
                                   visible_columns(group.p, pairs, lane_row() + 8)};
      cuda::sm90::Softmax::mask(s_, allowed);
    }
    if (Span && pairs.ramped) add_log_weights(s_, call_.scale * log2_e, group.p.head, pairs);
    const bool grown = softmax.weigh(s_);
    if constexpr (!Table) {
      wgmma_wait<0>();
      let_go<Holds>(slot);
    }
    if (grown) {
#pragma unroll
      for (int i = 0; i < 32; ++i) o_[i] *= softmax.shrink(i / 2 % 2);
    }
    pack_all<T>(p_, s_);
    if constexpr (Table && More) {
      wgmma_wait<0>();
      wgmma_hold(near_);
      reader_.pieces.release(piece);
      move_on();
    }
  }

  __device__ void store(const Group& group, const cuda::sm90::Softmax& softmax) const {
    const std::int32_t begin = group.p.first_query(group.first + own_) + lane_row();  // entry
    const auto there = [&](int h) { return begin + 8 * h < group.p.in.entries; };
    const auto query = [&](int h) { return group.p.query(call_, begin + 8 * h); };
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const cuda::sm90::Softmax::Result result = softmax.finish(h);
      factor[h] = result.factor;
      if (this_lane() % 4 == 0 && there(h)) call_.lse[group.p.head.row(call_, query(h))] = result.lse;
    }
    store_rows<T>(o_, factor, call_.value_size,
                  [&](int h) -> T* { return there(h) ? row_of<T>(call_.o, group.p.head, query(h)) : nullptr; });
  }

  const Problem& problem_;
  const Call& call_;
  char* const shared_;
  const Control& control_;
  Emptying<1> queries_;
  Reader<step_slots, piece_slots> reader_;
  const int own_, warp_;
  const std::uint64_t keys_, values_, table_;  // the rings' first tiles
  int held_ = 0;                               // the slot of the step whose values are not multiplied yet
  Skew skew_;
  Operand content_, position_, p_;
  Accumulator o_, s_, near_;  // near: products with the nearer piece of this step, or of the next
};

template <class T, bool Table, bool Span>
__global__ void __launch_bounds__(threads, 1) forward_kernel(const __grid_constant__ Problem problem) {
  extern __shared__ char memory[];
  char* const shared = memory + bytes_to_tile(memory);
  auto& control = *reinterpret_cast<Control*>(shared + control_at);
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
void forward(const Call& call, const Launch& launch) {
  with_form(call, [&](auto form) {
    using F = decltype(form);
    for (const Problem& problem : problems_of(call, DtypeOf<T>::value))
      run_groups("distance attention forward", forward_kernel<T, F::Table, F::Span>, shared_bytes, problem,
                 tiles_of_queries(problem), launch);
  });
}
template void forward<__nv_bfloat16>(const Call&, const Launch&);
template void forward<__half>(const Call&, const Launch&);

}  // namespace longstride::kernels::cuda::distance::sm90
