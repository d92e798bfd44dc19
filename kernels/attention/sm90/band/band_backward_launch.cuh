// Shared by the launches of the backward kernels of a band.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/attention/sm90/band/band_backward_problem.h"
#include "kernels/attention/sm90/band/band_plan.h"

namespace longstride::kernels::cuda::sm90 {

// Divides a multiprocessor: first as many blocks as possible, then room to load ahead. `tiles`: the most that a block
// can have.
template <class B>
int choose_room(const BandPlan& band, std::int32_t tiles, BandBackwardProblem& problem) {
  static_assert(B::shared_bytes(most_reach, most_reach, 1, 1) <= shared_of_block, "the widest band has room");
  struct Room {
    std::int32_t more_slots, key_stages, ds_stages;
  };
  constexpr Room rooms[] = {{1, 2, 2}, {0, 2, 2}, {0, 2, 1}, {1, 1, 1}, {0, 1, 1}};
  const std::int32_t least = std::min(std::max(band.reach, 2), tiles);  // one slot would wait for itself
  int most = 0;
  for (const Room& room : rooms) {
    const std::int32_t slots = std::min(least + room.more_slots, tiles), key_stages = std::min(room.key_stages, tiles);
    const auto bytes = static_cast<int>(B::shared_bytes(slots, band.reach, key_stages, room.ds_stages));
    const int blocks = std::min(shared_of_multiprocessor / (bytes + shared_reserved), B::blocks);
    if (bytes > shared_of_block || blocks <= most) continue;
    most = blocks;
    problem.slots = slots;
    problem.key_stages = key_stages;
    problem.ds_stages = room.ds_stages;
  }
  return most;
}

// Everything except the room and the shares.
inline void fill_problem(const AttentionBackwardArgs& args, const BandPlan& band, int key_size, int value_size,
                         BandBackwardProblem& problem) {
  const auto maps = [&](const Tensor& view, int columns) {
    return row_maps(view, band.set, band.n, band_rows, columns);
  };
  const auto rows_of = [](const Tensor& view) -> Gradient {
    return {view.data(), {view.stride(0), view.stride(1), view.stride(2)}, static_cast<std::int32_t>(view.size(3))};
  };
  problem.q = maps(args.q, key_size);
  problem.k = maps(args.k, key_size);
  problem.v = maps(args.v, value_size);
  problem.o = maps(args.o, value_size);
  problem.dout = maps(args.dout, value_size);
  problem.set = band.set;
  problem.shape = band.shape;
  problem.n = band.n;
  problem.classes = band.classes;
  problem.heads = band.heads;
  problem.heads_per_key = Divisor(static_cast<std::int32_t>(args.q.size(2) / args.k.size(2)));
  problem.reach = band.reach;
  problem.scale = static_cast<float>(args.scale);
  problem.lse = args.lse.as<float>();
  problem.output = rows_of(args.o);
  problem.dq = rows_of(args.dq);
  problem.dk = rows_of(args.dk);
  problem.dv = rows_of(args.dv);
}

}  // namespace longstride::kernels::cuda::sm90
