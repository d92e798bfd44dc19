// The skeleton of the backward kernels. With x the rows that a block owns (q and dO, or k and v) and y the streamed
// rows,
//     S = x_key y_key^T,  P = exp(scale S - lse),  dP = x_value y_value^T,  dS = P (dP - delta)
//     Side::queries: dQ += dS k            Side::keys, where S is transposed: dV += P dO,  dK += dS q
// S, dP and the gradients stay in registers; P and dS turn from accumulators into left operands in place. No row is
// written by two blocks, so the result does not depend on the order of blocks.
//
// A producer warp loads tiles by TMA through a ring in shared memory. A warpgroup issues the last products of one tile
// and the first of the next together. The queue of issued products is short, so its exponentials overlap with the
// products of other warpgroups rather than with its own.
#pragma once
#include <algorithm>

#include "kernels/attention/sm90/general/backward_layout.cuh"
#include "kernels/attention/sm90/general/backward_producer.cuh"
#include "kernels/attention/sm90/general/backward_store.cuh"
#include "kernels/attention/sm90/general/list_order.h"
#include "kernels/attention/sm90/general/own_rows.cuh"
#include "kernels/base/approximate.cuh"
#include "kernels/gpu/barrier.cuh"
#include "kernels/gpu/fragment.cuh"
#include "kernels/gpu/lane.cuh"
#include "kernels/gpu/ring.cuh"
#include "kernels/gpu/shared.cuh"
#include "kernels/gpu/wgmma.cuh"

namespace longstride::kernels::cuda::sm90 {

template <class T, int KeySize, int ValueSize, Side Of, TileSource Source, class OfTerm>
struct Backward : BackwardLayout<KeySize, ValueSize, Of, Source, OfTerm> {
  using Layout = BackwardLayout<KeySize, ValueSize, Of, Source, OfTerm>;
  using Layout::key_row, Layout::value_row, Layout::own_bytes, Layout::own_key_bytes, Layout::key_bytes;
  using Layout::shared_of, Layout::tile_bytes, Layout::ring_at;
  using Layout::tiling, Layout::side, Layout::rows, Layout::step, Layout::stages, Layout::listed;
  using typename Layout::Problem, typename Layout::Shared, typename Layout::Term;
  using Producer = BackwardProducer<Layout>;

  __device__ static std::uint32_t task_of_block(const Problem& problem) {
    if constexpr (!listed) return blockIdx.x;
    const auto block = static_cast<std::int32_t>(blockIdx.x), units = problem.geometry.heads * problem.batch;
    return static_cast<std::uint32_t>(listed_task(block, units, static_cast<std::int32_t>(gridDim.x) / units));
  }

  // gradient += weights tile
  template <int Size>
  __device__ static void add_product(float (&gradient)[Size / 2], const std::uint32_t (&weights)[step / 16][4],
                                     std::uint64_t b) {
    constexpr int row_bytes = std::min(Size, 64) * 2;
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < step / 16; ++i)
      wgmma<T, Size, true>(gradient, weights[i], advanced(b, i * 16 * row_bytes), true);
    wgmma_commit();
  }

  // -log2(e) lse of rows beyond the last: of their zeros, nothing must come of labels' numbers.
  static constexpr float nothing = Term::given ? -__builtin_huge_valf() : 0.0f;
  // lse (times -log2(e)) and delta of the query of a tile's element: one of the thread's two rows, or a column.
  struct Statistics {
    float lse[2], delta[2];

    __device__ void load(const Problem& problem, const BackwardTask& task) {
      const std::int64_t row =
          (static_cast<std::int64_t>(problem.sequence_of(task.sequence)) * problem.geometry.heads + task.head) *
          problem.queries();
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const std::int32_t entry = task.begin + own_row(r);
        const bool there = entry < task.own.length;
        const std::int64_t at = row + (there ? position_at(task.own, entry) : 0);
        lse[r] = there ? problem.lse[at] * -log2_e : nothing;
        delta[r] = there ? problem.delta[at] : 0.0f;
      }
    }
  };

  // lse or delta of a thread's four of sixteen columns.
  struct Columns {
    float value[4];
    __device__ void load(const float* from) {
      const float4 v = *reinterpret_cast<const float4*>(from);
      value[0] = v.x, value[1] = v.y, value[2] = v.z, value[3] = v.w;
    }
  };

  __device__ static std::int32_t own_row(int r) { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + 8 * r; }

  // Turns S into P. Rows without an allowed key have lse = -infinity, but are in no full tile. `allowed`: an interval
  // of the tile's columns, counted from `column`, the thread's first.
  template <bool Full>
  __device__ static void weigh(float (&s)[step / 2], float rate, const Statistics& statistics, const float* lse,
                               std::int32_t column, const Interval (&allowed)[2]) {
    Columns of_columns = {};
#pragma unroll
    for (int j = 0; j < step / 8; ++j) {
      if (side == Side::keys && j % 2 == 0) of_columns.load(lse + 8 * j + 2 * column);
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float shift = side == Side::queries ? statistics.lse[r] : of_columns.value[j % 2 * 2 + e];
          float x = fmaf(s[element_at(j, r, e)], rate, shift);
          if constexpr (!Full)
            if (8 * j + e < allowed[r].begin || 8 * j + e >= allowed[r].end) x = -__builtin_huge_valf();
          s[element_at(j, r, e)] = exp2_approx(x);
        }
    }
  }

  // The same of a tile of queries with labels, where they are mixed.
  template <class Labels>
  __device__ static void weigh_mixed(float (&s)[step / 2], float rate, const Shared& control, int stage,
                                     std::int32_t column, const Interval (&allowed)[2], const Labels& labels,
                                     const TileLabels& of_tile, std::int32_t first) {
    Columns shift[3] = {};
#pragma unroll
    for (int j = 0; j < step / 8; ++j) {
      if (j % 2 == 0) {
        shift[2].load(control.lse[stage] + 8 * j + 2 * column);
#pragma unroll
        for (int which = 0; which < 2; ++which)
          shift[which].load(control.labels.shift[which][stage] + 8 * j + 2 * column);
      }
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int i = element_at(j, r, e), at = j % 2 * 2 + e;
          const auto pair = labels.pair(of_tile, first, j, r, e, i);
          const float of_pair = pair.which == 0   ? shift[0].value[at]
                                : pair.which == 1 ? shift[1].value[at]
                                                  : shift[2].value[at];
          float x = fmaf(s[i] + pair.product, rate, of_pair);
          if (8 * j + e < allowed[r].begin || 8 * j + e >= allowed[r].end) x = -__builtin_huge_valf();
          s[i] = exp2_approx(x);
        }
    }
  }

  // Turns dP into dS.
  __device__ static void differentiate(float (&dp)[step / 2], const float (&p)[step / 2], const Statistics& statistics,
                                       const float* delta, std::int32_t column) {
    Columns of_columns = {};
#pragma unroll
    for (int j = 0; j < step / 8; ++j) {
      if (side == Side::keys && j % 2 == 0) of_columns.load(delta + 8 * j + 2 * column);
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int i = element_at(j, r, e);
          const float shift = side == Side::queries ? statistics.delta[r] : of_columns.value[j % 2 * 2 + e];
          dp[i] = p[i] * (dp[i] - shift);
        }
    }
  }

  __device__ static void pack_weights(std::uint32_t (&a)[step / 16][4], const float (&d)[step / 2]) {
#pragma unroll
    for (int i = 0; i < step / 16; ++i) pack_operand<T>(a[i], d, i);
  }

  using Labels =
      std::conditional_t<!Term::given, NoTerm,
                         std::conditional_t<side == Side::queries, LabelsOfQueries<step>, LabelsOfKeys<step>>>;
  __device__ static Labels labels_of(const Problem& problem, const BackwardTask& task) {
    if constexpr (Term::given)
      return {problem.labels, task.sequence, task.head, task.begin + own_row(0),
              task.begin + uniform(static_cast<std::int32_t>(threadIdx.x) / 32) * 16};
    else
      return {};
  }

  // A warpgroup's own rows and gradients.
  class Consumer {
   public:
    __device__ Consumer(const Problem& problem, const BackwardTask& task, char* shared)
        : problem_(problem),
          task_(task),
          control_(shared_of(shared)),
          ring_(shared + ring_at),
          rate_(problem.scale * log2_e),
          column_(static_cast<std::int32_t>(threadIdx.x % 4) * 2),
          key_rows_(descriptor<key_row>(ring_)),
          value_rows_(descriptor<value_row>(ring_ + key_bytes)),
          key_columns_(descriptor<key_row>(ring_, step * key_row)),
          value_columns_(descriptor<value_row>(ring_ + key_bytes, step * value_row)),
          labels_(labels_of(problem, task)) {
      if constexpr (side == Side::queries) statistics_.load(problem, task);
      const char* const own = shared + uniform(threadIdx.x / 128) * own_bytes;
      barrier_wait(&control_.own, 0);
      own_key_.load(own);
      own_value_.load(own + own_key_bytes);
    }

    __device__ void run() {
      clear(key_gradient_);
      clear(value_gradient_);
      const int warp = uniform(static_cast<std::int32_t>(threadIdx.x) / 32);
      const bool some = task_.begin + warp / 4 * 64 < task_.own.length;
      const std::int32_t parts = uniform(control_.meeting.parts);
      for (std::int32_t part = 0; part < parts; ++part) {
        const Interval(&row)[rows] = control_.meeting.row[part];
        const TileRange<rows, step> range(row, some, warp);
        const Interval* own = row + warp * 16 + threadIdx.x % 32 / 4;
        const Interval meets[2] = {own[0], own[8]};
        if constexpr (listed) {
          pass_list(range, meets);
          continue;
        }
        skip(range.needed_begin - range.begin);
        slot_ = {uniform(slot_.index), static_cast<std::uint32_t>(uniform(static_cast<std::int32_t>(slot_.parity)))};
        std::int32_t tile = range.needed_begin;
        if (tile < range.needed_end) {
          turn<false>(tile, range, meets);
          while (++tile < range.needed_end) turn<true>(tile, range, meets);
          finish();
        }
        skip(range.end - tile);
      }
      store();
    }

   private:
    // The rows need every tile of the block.
    __device__ void pass_list(const TileRange<rows, step>& range, const Interval (&meets)[2]) {
      if (!control_.list.some) return;
      turn<false>(0, range, meets);
      while (more_) turn<true>(0, range, meets);
      finish();
    }

    template <int Count>
    __device__ static void clear(float (&gradient)[Count]) {
#pragma unroll
      for (int i = 0; i < Count; ++i) gradient[i] = 0;
      wgmma_hold(gradient);
    }
    __device__ void wait() const { barrier_wait(&control_.full[slot_.index], slot_.parity); }
    // Lets the stage's memory be filled again.
    __device__ void release(int stage) const {
      __syncwarp();
      if (side == Side::keys || threadIdx.x % 32 == 0) barrier_arrive(&control_.empty[stage]);
    }
    __device__ void skip(std::int32_t tiles) {
#pragma unroll 1
      for (; tiles > 0; --tiles) {
        wait();
        release(slot_.index);
        slot_.advance(stages);
      }
    }

    // The gradients' products of the current tile.
    __device__ void add_products() {
      const int at = held_ * tile_bytes;
      if constexpr (side == Side::keys)
        add_product<ValueSize>(value_gradient_, p_operand_, advanced(value_columns_, at));
      add_product<KeySize>(key_gradient_, ds_operand_, advanced(key_columns_, at));
    }
    __device__ void finish() {
      add_products();
      wgmma_wait<0>();
      wgmma_hold(key_gradient_);
      wgmma_hold(value_gradient_);
      release(held_);
    }

    // The first products of a tile, after the last ones of the current tile, then its exponentials. Tiles of a list
    // tell their numbers.
    template <bool Holds>
    __device__ void turn(std::int32_t tile, const TileRange<rows, step>& range, const Interval (&meets)[2]) {
      const int stage = slot_.index;
      wait();
      slot_.advance(stages);
      wgmma_fence();
      if constexpr (Holds) add_products();
      own_key_.multiply(s_, advanced(key_rows_, stage * tile_bytes));
      own_value_.multiply(dp_, advanced(value_rows_, stage * tile_bytes));
      if constexpr (listed) tile = control_.list.read(stage, more_);
      [[maybe_unused]] const TileLabels of_tile = look(tile, stage);
      wgmma_wait<1>();
      wgmma_hold(s_);
      wgmma_hold(key_gradient_);
      wgmma_hold(value_gradient_);
      if constexpr (Holds) release(held_);
      held_ = stage;
      const float* const lse = control_.lse[stage];
      if constexpr (Term::given)
        weigh_labelled(tile, stage, range, meets, of_tile);
      else if (tile >= range.full_begin && tile < range.full_end)
        weigh<true>(s_, rate_, statistics_, lse, column_, {});
      else
        weigh<false>(s_, rate_, statistics_, lse, column_, allowed_in(tile, meets).row);
      if constexpr (side == Side::keys) pack_weights(p_operand_, s_);
      wgmma_wait<0>();
      wgmma_hold(dp_);
      differentiate(dp_, s_, statistics_, control_.delta[stage], column_);
      if constexpr (Term::given && side == Side::queries) labels_.add_gradients(dp_, of_tile);
      pack_weights(ds_operand_, dp_);
    }

    // While the products of a tile are computed.
    __device__ TileLabels look(std::int32_t tile, int stage) const {
      if constexpr (Term::given && side == Side::queries)
        return labels_.look(tile * step);
      else if constexpr (Term::given)
        return labels_.look(tile * step, control_.labels.group[stage]);
      return {};
    }
    // The columns of a tile that the thread's rows meet, counted from its first.
    struct Allowed {
      Interval row[2];
    };
    __device__ Allowed allowed_in(std::int32_t tile, const Interval (&meets)[2]) const {
      const std::int32_t begin = tile * step + column_;
      return {{{meets[0].begin - begin, meets[0].end - begin}, {meets[1].begin - begin, meets[1].end - begin}}};
    }
    // weigh, where scores have labels.
    __device__ void weigh_labelled(std::int32_t tile, int stage, const TileRange<rows, step>& range,
                                   const Interval (&meets)[2], const TileLabels& of_tile) {
      const float* lse = control_.lse[stage];
      Statistics statistics = statistics_;
      if constexpr (side == Side::queries) {
        labels_.template add<true>(s_, of_tile);
#pragma unroll
        for (int r = 0; r < 2; ++r)
          if (of_tile.which != TileLabels::mixed)
            statistics.lse[r] = fmaf(labels_.product(of_tile.which, r), rate_, statistics.lse[r]);
      } else {
        if (of_tile.which == TileLabels::mixed)
          return weigh_mixed(s_, rate_, control_, stage, column_, allowed_in(tile, meets).row, labels_, of_tile,
                             tile * step);
        lse = control_.labels.shift[of_tile.which][stage];
      }
      if (tile >= range.full_begin && tile < range.full_end)
        weigh<true>(s_, rate_, statistics, lse, column_, {});
      else
        weigh<false>(s_, rate_, statistics, lse, column_, allowed_in(tile, meets).row);
    }

    __device__ void store() {
      if constexpr (Term::given && side == Side::queries) labels_.template finish<T, KeySize>(key_gradient_);
      if constexpr (Term::given) {
        if (problem_.labels.shares.count > 1) {
          const auto store_part = [&]<int Size>(float* parts, const float(&gradient)[Size], float factor) {
            const std::int32_t rows = side == Side::queries ? problem_.labels.queries : task_.own.length;
            store_share<2 * Size>(parts, rows, problem_.geometry.heads, task_, gradient, factor);
          };
          store_part(problem_.key_sized_parts, key_gradient_, problem_.scale);
          if constexpr (side == Side::keys) store_part(problem_.value_sized_parts, value_gradient_, 1.0f);
          return;
        }
      }
      const bool adds = problem_.adds[task_.pass_index][problem_.part];
      store_gradient<T, KeySize>(problem_.key_sized_gradient, task_, key_gradient_, problem_.scale, adds);
      if constexpr (side == Side::keys)
        store_gradient<T, ValueSize>(problem_.value_sized_gradient, task_, value_gradient_, 1.0f, adds);
    }

    const Problem& problem_;
    const BackwardTask& task_;
    Shared& control_;
    const char* ring_;
    float rate_;
    const std::int32_t column_;                                                // the thread's first
    const std::uint64_t key_rows_, value_rows_, key_columns_, value_columns_;  // the ring's first tile
    [[no_unique_address]] Labels labels_;
    RingSlot slot_;
    int held_ = 0;       // the stage of the tile whose last products have not been issued
    bool more_ = false;  // tiles of a list follow
    Statistics statistics_ = {};
    OwnRows<T, step, KeySize, tiling.key_sized_in_registers> own_key_;
    OwnRows<T, step, ValueSize, tiling.value_sized_in_registers> own_value_;
    float key_gradient_[KeySize / 2], value_gradient_[side == Side::keys ? ValueSize / 2 : 1];
    float s_[step / 2], dp_[step / 2];
    std::uint32_t p_operand_[side == Side::keys ? step / 16 : 1][4], ds_operand_[step / 16][4];
  };
};

template <class T, int KeySize, int ValueSize, Side side, TileSource Source, class Term>
__global__ void __launch_bounds__(Backward<T, KeySize, ValueSize, side, Source, Term>::tiling.threads(),
                                  Backward<T, KeySize, ValueSize, side, Source, Term>::tiling.blocks)
    backward(const __grid_constant__ typename Backward<T, KeySize, ValueSize, side, Source, Term>::Problem problem) {
  using B = Backward<T, KeySize, ValueSize, side, Source, Term>;
  extern __shared__ char memory[];
  BackwardTask task;
  if (!task.find<side>(problem, B::rows, B::task_of_block(problem))) return;
  char* const shared = memory + bytes_to_tile(memory);
  auto& control = B::shared_of(shared);
  constexpr int producer = B::warpgroups * 128;
  if (B::own_by_warp ? threadIdx.x / 32 == producer / 32 : threadIdx.x == producer) {
    if (threadIdx.x == producer) {
      barrier_init(&control.own, 1);
      for (int i = 0; i < B::stages; ++i) {
        barrier_init(&control.full[i], B::full_arrivals);
        barrier_init(&control.empty[i], B::empty_arrivals);
      }
      barrier_init_fence();
      proxy_fence();
    }
    if constexpr (B::own_by_warp) __syncwarp();
    typename B::Producer(problem, task, shared).load_own();  // in flight while the intervals of the rows are computed
  }
  if constexpr (B::listed)
    if (threadIdx.x == producer) control.meeting.enter(control.list, problem, task, B::step);
  control.meeting.fill(problem, task);
  __syncthreads();
  constexpr int consumer_registers = B::tiling.consumer_registers;
  if (threadIdx.x >= B::warpgroups * 128) {
    if constexpr (consumer_registers > 0) registers_give<B::tiling.producer_registers>();
    if (threadIdx.x < B::warpgroups * 128 + 32) typename B::Producer(problem, task, shared).run();
  } else {
    if constexpr (consumer_registers > 0) registers_take<consumer_registers>();
    typename B::Consumer(problem, task, shared).run();
  }
}

}  // namespace longstride::kernels::cuda::sm90
