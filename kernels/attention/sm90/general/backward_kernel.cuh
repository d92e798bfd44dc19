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

#include "kernels/attention/sm90/general/backward_problem.h"
#include "kernels/attention/sm90/general/backward_store.cuh"
#include "kernels/attention/sm90/general/backward_tiles.cuh"
#include "kernels/attention/sm90/general/load_pieces.cuh"
#include "kernels/attention/sm90/general/own_rows.cuh"
#include "kernels/base/approximate.cuh"
#include "kernels/gpu/barrier.cuh"
#include "kernels/gpu/fragment.cuh"
#include "kernels/gpu/lane.cuh"
#include "kernels/gpu/ring.cuh"
#include "kernels/gpu/shared.cuh"
#include "kernels/gpu/tma.cuh"
#include "kernels/gpu/wgmma.cuh"

namespace longstride::kernels::cuda::sm90 {

// `Pieces`: tiles of summary rows are read in pieces (tile_pieces.h).
template <class T, int KeySize, int ValueSize, Side side, bool Pieces>
struct Backward {
  using Problem = std::conditional_t<Pieces, BackwardProblemInPieces, BackwardProblem>;
  static constexpr BackwardTiling published = backward_tiling(side, KeySize, ValueSize);
  static constexpr BackwardTiling tiling = Pieces ? for_pieces(published) : published;
  static constexpr int rows = tiling.rows(), step = tiling.step, stages = tiling.stages, warpgroups = tiling.warpgroups;
  static_assert(stages >= 2, "a warpgroup waits for a tile with the one before in hand");
  static_assert(tiling.has_registers());
  static_assert(!Pieces || (KeySize >= 64 && ValueSize >= 64), "rows of 128 bytes");
  static constexpr int key_row = std::min(KeySize, 64) * 2, value_row = std::min(ValueSize, 64) * 2;
  static constexpr int key_boxes = (KeySize + 63) / 64, value_boxes = (ValueSize + 63) / 64;

  // Shared memory, from a multiple of 1024 bytes: own rows of each warpgroup, the ring, and this.
  struct Shared {
    // Side::keys: of the streamed queries, in the order of statistics_slot; lse is -log2(e) lse.
    alignas(16) float lse[stages][step], delta[stages][step];
    std::uint64_t own, full[stages], empty[stages];
    MeetingRows<side, rows> meeting;
  };
  static constexpr int own_key_bytes = 64 * KeySize * 2, own_value_bytes = 64 * ValueSize * 2,
                       own_bytes = own_key_bytes + own_value_bytes;
  static constexpr int key_bytes = step * KeySize * 2, value_bytes = step * ValueSize * 2,
                       tile_bytes = key_bytes + value_bytes;
  static constexpr int ring_at = warpgroups * own_bytes, control_at = ring_at + stages * tile_bytes;
  static constexpr std::size_t shared_bytes = control_at + sizeof(Shared) + 1024;
  // Every thread that writes or reads lse and delta arrives itself; otherwise one thread arrives for its warp.
  // racecheck does not accept an arrival on behalf of another thread, and the extra arrivals cost nothing measurable.
  static constexpr int full_arrivals = side == Side::keys ? 33 : 1,
                       empty_arrivals = warpgroups * (side == Side::keys ? 128 : 4);
  // A thread has four of every sixteen columns, two of each half. They are stored together, 16 bytes at 4 (column / 2).
  __device__ static int statistics_slot(int column) {
    return column / 16 * 16 + column % 8 / 2 * 4 + column / 8 % 2 * 2 + column % 2;
  }
  __device__ static Shared& shared_of(char* shared) { return *reinterpret_cast<Shared*>(shared + control_at); }

  using Tiles = TileIterator<MeetingRows<side, rows>, rows, step>;
  static constexpr bool own_by_warp = Pieces && side == Side::keys;

  // One warp. Side::keys: its lanes also load lse and delta of the queries, one tile ahead, in registers.
  class Producer {
   public:
    __device__ Producer(const Problem& problem, const BackwardTask& task, char* shared)
        : problem_(problem), task_(task), shared_(shared), control_(shared_of(shared)), tiles_(control_.meeting) {}

    __device__ void run() {
      if constexpr (Pieces && side == Side::queries) return run_in_pieces();
      bool more = find_next();
      while (more) {
        const Source source = next_;
        float lse[step / 32], delta[step / 32];
#pragma unroll
        for (int i = 0; i < step / 32; ++i) {
          lse[i] = lse_[i];
          delta[i] = delta_[i];
        }
        more = find_next();
        barrier_wait(&control_.empty[slot_.index], slot_.parity ^ 1);
        if (lane_ == 0) load(source);  // before lse and delta have come
        if constexpr (side == Side::keys) {
#pragma unroll
          for (int i = 0; i < step / 32; ++i) {
            const int slot = statistics_slot(lane_) + 32 * i;
            control_.lse[slot_.index][slot] = lse[i] * -log2_e;
            control_.delta[slot_.index][slot] = delta[i];
          }
          barrier_arrive(&control_.full[slot_.index]);
        }
        slot_.advance(stages);
      }
    }

    // Called by one thread, or by the warp if its rows are pieces, before the other threads use any barrier.
    __device__ void load_own() const {
      const int kind = side == Side::queries ? problem_.query_kind[task_.pass_index]
                                             : problem_.key_kind[task_.pass_index][problem_.part];
      if (!own_by_warp || lane_ == 0) barrier_arrive_expect(&control_.own, warpgroups * own_bytes);
      if constexpr (own_by_warp) __syncwarp();
      for (int w = 0; w < warpgroups; ++w) {
        char* const to = shared_ + w * own_bytes;
        if constexpr (own_by_warp) {
          if (is_summary(task_.own)) {
            load_pieces(pieces_of(task_.own, kind, task_.begin + w * 64, 64), task_.head, task_.sequence, lane_, 32,
                        PieceCopy<key_boxes, 64 * key_row>{&problem_.own_key_sized[kind].complete, problem_.k_pieces,
                                                           to, &control_.own},
                        PieceCopy<value_boxes, 64 * value_row>{&problem_.own_value_sized[kind].complete,
                                                               problem_.v_pieces, to + own_key_bytes, &control_.own});
            continue;
          }
          if (lane_ > 0) continue;
        }
        const TileCorner corner = corner_of(task_.own, task_.begin + w * 64);
        load_boxes(to, problem_.own_key_sized[kind], key_boxes, 64 * key_row, corner, &control_.own);
        load_boxes(to + own_key_bytes, problem_.own_value_sized[kind], value_boxes, 64 * value_row, corner,
                   &control_.own);
      }
    }

   private:
    __device__ void run_in_pieces() {
      while (find_next()) load_next_by_warp();
    }

    __device__ TilePieces pieces_of(const RowSet& set, int kind, std::int32_t entry, std::int32_t rows_of_tile) const {
      return {set.base, set.run,      set.period,
              entry,    rows_of_tile, [&](std::int32_t x) { return problem_.run[kind].quotient(x); }};
    }

    struct Source {
      TileCorner corner;
      int kind;
    };

    __device__ void load_boxes(char* to, const RowMaps& maps, int boxes, int box_bytes, const TileCorner& corner,
                               std::uint64_t* barrier) const {
      const CUtensorMap* map = corner.offset < maps.rest ? &maps.longer : &maps.complete;
      for (int i = 0; i < boxes; ++i)
        tma_load(to + i * box_bytes, map, {{i * 64, task_.head, corner.offset, corner.period, task_.sequence}},
                 barrier);
    }

    __device__ bool find_next() {
      if (!tiles_.next()) return false;
      if (tiles_.entered()) {
        const std::int32_t n = problem_.geometry.n;
        if (side == Side::queries) {
          set_ = task_.class_of(task_.pass->part[tiles_.part()].keys, n);
          next_.kind = problem_.key_kind[task_.pass_index][tiles_.part()];
        } else {
          set_ = task_.class_of(task_.pass->queries, n);
          next_.kind = problem_.query_kind[task_.pass_index];
        }
      }
      if (!Pieces || !is_summary(set_)) next_.corner = corner_of(set_, tiles_.begin());
      if constexpr (side == Side::keys) {
        const std::int64_t row =
            (static_cast<std::int64_t>(task_.sequence) * problem_.geometry.heads + task_.head) * problem_.geometry.n;
#pragma unroll
        for (int i = 0; i < step / 32; ++i) {
          const std::int32_t entry = tiles_.begin() + lane_ + 32 * i;
          const bool there = entry < set_.length;
          const std::int64_t at = row + (there ? position_at(set_, entry) : 0);
          lse_[i] = there ? problem_.lse[at] : 0.0f;
          delta_[i] = there ? problem_.delta[at] : 0.0f;
        }
      }
      return true;
    }

    __device__ void load(const Source& source) const {
      char* const to = shared_ + ring_at + slot_.index * tile_bytes;
      std::uint64_t* const full = &control_.full[slot_.index];
      barrier_arrive_expect(full, tile_bytes);
      load_boxes(to, problem_.key_sized[source.kind], key_boxes, step * key_row, source.corner, full);
      load_boxes(to + key_bytes, problem_.value_sized[source.kind], value_boxes, step * value_row, source.corner, full);
    }

    // Waits for room and loads the next tile; the warp's lanes share its pieces.
    __device__ void load_next_by_warp() {
      const TilePieces pieces = pieces_of(set_, next_.kind, tiles_.begin(), step);
      char* const to = shared_ + ring_at + slot_.index * tile_bytes;
      std::uint64_t* const full = &control_.full[slot_.index];
      barrier_wait(&control_.empty[slot_.index], slot_.parity ^ 1);
      if (is_summary(set_)) {
        if (lane_ == 0) barrier_arrive_expect(full, tile_bytes);
        __syncwarp();
        load_pieces(
            pieces, task_.head, task_.sequence, lane_, 32,
            PieceCopy<key_boxes, step * key_row>{&problem_.key_sized[next_.kind].complete, problem_.k_pieces, to, full},
            PieceCopy<value_boxes, step * value_row>{&problem_.value_sized[next_.kind].complete, problem_.v_pieces,
                                                     to + key_bytes, full});
      } else if (lane_ == 0) {
        load(next_);
      }
      slot_.advance(stages);
    }

    const Problem& problem_;
    const BackwardTask& task_;
    char* shared_;
    Shared& control_;
    Tiles tiles_;
    RowSet set_;
    Source next_;
    float lse_[step / 32], delta_[step / 32];
    RingSlot slot_;
    const int lane_ = threadIdx.x % 32;
  };

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

  // lse (times -log2(e)) and delta of the query of a tile's element: one of the thread's two rows, or a column.
  struct Statistics {
    float lse[2], delta[2];

    __device__ void load(const BackwardProblem& problem, const BackwardTask& task) {
      const std::int64_t row =
          (static_cast<std::int64_t>(task.sequence) * problem.geometry.heads + task.head) * problem.geometry.n;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const std::int32_t entry = task.begin + own_row(r);
        const bool there = entry < task.own.length;
        const std::int64_t at = row + (there ? position_at(task.own, entry) : 0);
        lse[r] = there ? problem.lse[at] * -log2_e : 0.0f;
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
          value_columns_(descriptor<value_row>(ring_ + key_bytes, step * value_row)) {
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

    // The first products of a tile, after the last ones of the current tile, then its exponentials.
    template <bool Holds>
    __device__ void turn(std::int32_t tile, const TileRange<rows, step>& range, const Interval (&meets)[2]) {
      const int stage = slot_.index;
      wait();
      slot_.advance(stages);
      wgmma_fence();
      if constexpr (Holds) add_products();
      own_key_.multiply(s_, advanced(key_rows_, stage * tile_bytes));
      own_value_.multiply(dp_, advanced(value_rows_, stage * tile_bytes));
      wgmma_wait<1>();
      wgmma_hold(s_);
      wgmma_hold(key_gradient_);
      wgmma_hold(value_gradient_);
      if constexpr (Holds) release(held_);
      held_ = stage;
      const float* const lse = control_.lse[stage];
      if (tile >= range.full_begin && tile < range.full_end) {
        weigh<true>(s_, rate_, statistics_, lse, column_, {});
      } else {
        const std::int32_t begin = tile * step + column_;
        weigh<false>(s_, rate_, statistics_, lse, column_,
                     {{meets[0].begin - begin, meets[0].end - begin}, {meets[1].begin - begin, meets[1].end - begin}});
      }
      if constexpr (side == Side::keys) pack_weights(p_operand_, s_);
      wgmma_wait<0>();
      wgmma_hold(dp_);
      differentiate(dp_, s_, statistics_, control_.delta[stage], column_);
      pack_weights(ds_operand_, dp_);
    }

    __device__ void store() const {
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
    RingSlot slot_;
    int held_ = 0;  // the stage of the tile whose last products have not been issued
    Statistics statistics_ = {};
    OwnRows<T, step, KeySize, tiling.key_sized_in_registers> own_key_;
    OwnRows<T, step, ValueSize, tiling.value_sized_in_registers> own_value_;
    float key_gradient_[KeySize / 2], value_gradient_[side == Side::keys ? ValueSize / 2 : 1];
    float s_[step / 2], dp_[step / 2];
    std::uint32_t p_operand_[side == Side::keys ? step / 16 : 1][4], ds_operand_[step / 16][4];
  };
};

template <class T, int KeySize, int ValueSize, Side side, bool Pieces>
__global__ void __launch_bounds__(Backward<T, KeySize, ValueSize, side, Pieces>::tiling.threads(),
                                  Backward<T, KeySize, ValueSize, side, Pieces>::tiling.blocks)
    backward(const __grid_constant__ typename Backward<T, KeySize, ValueSize, side, Pieces>::Problem problem) {
  using B = Backward<T, KeySize, ValueSize, side, Pieces>;
  extern __shared__ char memory[];
  BackwardTask task;
  if (!task.find<side>(problem, B::rows)) return;
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
