// The loads of a block's own rows and of the streamed tiles for a backward kernel.
#pragma once
#include <cstdint>
#include <type_traits>

#include "kernels/attention/sm90/general/backward_layout.cuh"
#include "kernels/attention/sm90/general/load_pieces.cuh"
#include "kernels/base/approximate.cuh"
#include "kernels/gpu/barrier.cuh"
#include "kernels/gpu/ring.cuh"
#include "kernels/gpu/tma.cuh"

namespace longstride::kernels::cuda::sm90 {

// One warp. Side::keys: its lanes also load lse and delta of the queries, one tile ahead, in registers.
template <class Layout>
class BackwardProducer : Layout {
  using Layout::key_boxes, Layout::value_boxes, Layout::key_row, Layout::value_row, Layout::own_bytes;
  using Layout::own_key_bytes, Layout::key_bytes, Layout::tile_bytes, Layout::ring_at, Layout::own_by_warp;
  using Layout::shared_of, Layout::statistics_slot;
  using typename Layout::Problem, typename Layout::Shared, typename Layout::Term;
  static constexpr Side side = Layout::side;
  static constexpr int rows = Layout::rows, step = Layout::step, stages = Layout::stages,
                       warpgroups = Layout::warpgroups;
  static constexpr bool pieces = Layout::pieces, listed = Layout::listed;
  using Tiles =
      std::conditional_t<listed, ListIterator<stages, step>, TileIterator<MeetingRows<side, rows>, rows, step>>;

 public:
  __device__ BackwardProducer(const Problem& problem, const BackwardTask& task, char* shared)
      : problem_(problem), task_(task), shared_(shared), control_(shared_of(shared)), tiles_(control_) {}

  __device__ void run() {
    if constexpr (pieces && side == Side::queries) return run_in_pieces();
    bool more = find_next();
    while (more) {
      const Source source = next_;
      float lse[step / 32], delta[step / 32];
      [[maybe_unused]] const OfColumns of_columns = of_columns_;
#pragma unroll
      for (int i = 0; i < step / 32; ++i) {
        lse[i] = lse_[i];
        delta[i] = delta_[i];
      }
      more = find_next();
      barrier_wait(&control_.empty[slot_.index], slot_.parity ^ 1);
      if constexpr (listed)
        if (lane_ == 0) control_.list.tell(slot_.index, source.corner.offset / step, more);
      if (lane_ == 0) load(source);  // before lse and delta have come
      if constexpr (side == Side::keys) {
#pragma unroll
        for (int i = 0; i < step / 32; ++i) {
          const int slot = statistics_slot(lane_) + 32 * i;
          control_.lse[slot_.index][slot] = lse[i] * -log2_e;
          control_.delta[slot_.index][slot] = delta[i];
          if constexpr (labelled) {
            for (int which = 0; which < 2; ++which)
              control_.labels.shift[which][slot_.index][slot] =
                  fmaf(of_columns.product[which][i], problem_.scale * log2_e, lse[i] * -log2_e);
            control_.labels.group[slot_.index][slot] = of_columns.group[i];
          }
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
    const std::int32_t head = side == Side::queries ? task_.head : key_head();
    for (int w = 0; w < warpgroups; ++w) {
      char* const to = shared_ + w * own_bytes;
      if constexpr (own_by_warp) {
        if (is_summary(task_.own)) {
          load_pieces(pieces_of(task_.own, kind, task_.begin + w * 64, 64), head, task_.sequence, lane_, 32,
                      PieceCopy<key_boxes, 64 * key_row>{&problem_.own_key_sized[kind].complete, problem_.k_pieces, to,
                                                         &control_.own},
                      PieceCopy<value_boxes, 64 * value_row>{&problem_.own_value_sized[kind].complete,
                                                             problem_.v_pieces, to + own_key_bytes, &control_.own});
          continue;
        }
        if (lane_ > 0) continue;
      }
      const TileCorner corner = corner_of(task_.own, task_.begin + w * 64);
      load_boxes(to, problem_.own_key_sized[kind], key_boxes, 64 * key_row, head, corner, &control_.own);
      load_boxes(to + own_key_bytes, problem_.own_value_sized[kind], value_boxes, 64 * value_row, head, corner,
                 &control_.own);
    }
  }

 private:
  static constexpr float nothing = Term::given ? __builtin_huge_valf() : 0.0f;  // lse of rows beyond the last
  static constexpr bool labelled = Term::given && side == Side::keys;
  // Labels' numbers of the lane's queries, and their groups.
  struct LabelledColumns {
    float product[2][step / 32];
    std::int32_t group[step / 32];
  };
  using OfColumns = std::conditional_t<labelled, LabelledColumns, NoTerm>;

  __device__ std::int32_t key_head() const { return problem_.heads_per_key.quotient(task_.head); }

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

  __device__ void load_boxes(char* to, const RowMaps& maps, int boxes, int box_bytes, std::int32_t head,
                             const TileCorner& corner, std::uint64_t* barrier) const {
    const CUtensorMap* map = corner.offset < maps.rest ? &maps.longer : &maps.complete;
    for (int i = 0; i < boxes; ++i)
      tma_load(to + i * box_bytes, map,
               {{i * 64, head, corner.offset, corner.period, problem_.sequence_of(task_.sequence)}}, barrier);
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
    if (!pieces || !is_summary(set_)) next_.corner = corner_of(set_, tiles_.begin());
    if constexpr (side == Side::keys) {
      const std::int64_t row =
          (static_cast<std::int64_t>(problem_.sequence_of(task_.sequence)) * problem_.geometry.heads + task_.head) *
          problem_.queries();
#pragma unroll
      for (int i = 0; i < step / 32; ++i) {
        const std::int32_t entry = tiles_.begin() + lane_ + 32 * i;
        const bool there = entry < set_.length;
        const std::int64_t at = row + (there ? position_at(set_, entry) : 0);
        lse_[i] = there ? problem_.lse[at] : nothing;
        delta_[i] = there ? problem_.delta[at] : 0.0f;
        if constexpr (labelled) {
          const LabelsOfHead of(problem_.labels, task_.sequence, task_.head);
          for (int which = 0; which < 2; ++which)
            of_columns_.product[which][i] = there ? of.product(entry, which) : 0.0f;
          of_columns_.group[i] = of.query_group(entry);
        }
      }
    }
    return true;
  }

  __device__ void load(const Source& source) const {
    char* const to = shared_ + ring_at + slot_.index * tile_bytes;
    std::uint64_t* const full = &control_.full[slot_.index];
    barrier_arrive_expect(full, tile_bytes);
    const std::int32_t head = side == Side::queries ? key_head() : task_.head;
    load_boxes(to, problem_.key_sized[source.kind], key_boxes, step * key_row, head, source.corner, full);
    load_boxes(to + key_bytes, problem_.value_sized[source.kind], value_boxes, step * value_row, head, source.corner,
               full);
  }

  // Waits for room and loads the next tile; the warp's lanes share its pieces.
  __device__ void load_next_by_warp() {
    const TilePieces of_tile = pieces_of(set_, next_.kind, tiles_.begin(), step);
    char* const to = shared_ + ring_at + slot_.index * tile_bytes;
    std::uint64_t* const full = &control_.full[slot_.index];
    barrier_wait(&control_.empty[slot_.index], slot_.parity ^ 1);
    if (is_summary(set_)) {
      if (lane_ == 0) barrier_arrive_expect(full, tile_bytes);
      __syncwarp();
      load_pieces(
          of_tile, key_head(), task_.sequence, lane_, 32,
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
  [[no_unique_address]] OfColumns of_columns_;
  RingSlot slot_;
  const int lane_ = threadIdx.x % 32;
};

}  // namespace longstride::kernels::cuda::sm90
