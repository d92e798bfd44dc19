// Tiles of summary rows that are no box (geometry.h): each is read in pieces of neighbouring positions, of which it
// holds no other rows. A run that lies in the tile is one piece. What the tile holds of its first run and of its last
// one is pieces of as many rows as the powers of two that add up to it. So a tile's pieces write each of its rows once:
//
//     run 25, rows 64 to 127 of the set:    14..24 of run 2     0..24 of run 3     0..24 of run 4    0..2 of run 5
//                                           1 + 2 + 8           25                 25                1 + 2
#pragma once
#include <cstdint>

#include "kernels/attention/pattern/plan.h"

namespace longstride::kernels::cuda::sm90 {

// `rows` rows at consecutive positions, from row `row` of the tile on; 0 rows: no piece.
struct Piece {
  std::int32_t row = 0, position = 0, rows = 0;
};

class TilePieces {
 public:
  // Pieces have 2^0 to 2^(powers - 1) rows, or a run: tiles have at most 128 rows.
  static constexpr int powers = 8;
  // piece(i) is a run from here on; before, it has 2^(i mod powers) rows.
  static constexpr int first_run = 2 * powers;

  // A tile of `rows` entries of a row set with these runs, from `entry` on. Entries beyond the set's end are as if it
  // went on. by_run(x) is x / run, for which kernels have a multiplication.
  template <class Divide>
  constexpr TilePieces(std::int32_t base, std::int32_t run, std::int32_t period, std::int32_t entry, std::int32_t rows,
                       const Divide& by_run)
      : run_(run), period_(period) {
    const std::int32_t before = by_run(entry), in_run = entry - before * run, ends = by_run(in_run + rows);
    begin_ = base + before * period + in_run;
    next_ = begin_ - in_run + (in_run > 0 ? period : 0);
    head_ = in_run == 0 ? 0 : ends == 0 ? rows : run - in_run;
    runs_ = in_run == 0 || ends == 0 ? ends : ends - 1;
    tail_ = rows - head_ - runs_ * run;
  }

  constexpr std::int32_t count() const { return first_run + runs_; }
  constexpr Piece piece(std::int32_t i) const {
    if (i >= first_run) return {head_ + (i - first_run) * run_, next_ + (i - first_run) * period_, run_};
    const bool last = i >= powers;
    const std::int32_t rows = last ? tail_ : head_, power = 1 << i % powers, before = rows & (power - 1);
    if ((rows & power) == 0) return {};
    return {(last ? head_ + runs_ * run_ : 0) + before, (last ? next_ + runs_ * period_ : begin_) + before, power};
  }

 private:
  std::int32_t run_, period_;
  std::int32_t begin_ = 0, next_ = 0;            // positions of the tile's first row and of its first whole run
  std::int32_t head_ = 0, runs_ = 0, tail_ = 0;  // rows of the first run, whole runs, rows of the last one
};

}  // namespace longstride::kernels::cuda::sm90
