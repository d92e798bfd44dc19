// The sum of outer products of every run of chunks, and its decays (walk/sums.cu), for wide heads.
#include "kernels/base/cuda_launch.cuh"
#include "kernels/scan/sm90/wide.cuh"

namespace longstride::kernels::cuda::scanning {
namespace wide {
namespace {

struct Room {
  static constexpr std::size_t left = 0, right = keys_bytes, next = right + tile_bytes, moved = 2 * next,
                               column = moved + tile_bytes, full = column + chunk * Column::row_bytes,
                               products = full + 16, numbers = products + 2 * sizeof(Products),
                               bytes = numbers + 2 * sizeof(RowNumbers);
};

template <bool Backwards>
struct Sums : BlockRun<Room> {
  using Memory = Room;
  const Tile moved = tile_at(shared + Memory::moved);
  const Column column{shared + Memory::column};

  __device__ Place place(int step) const { return {call, unit, Backwards ? first + count - 1 - step : first + step}; }
  __device__ char* left(int step) const { return shared + Memory::left + step % 2 * Memory::next; }
  __device__ Tile right(int step) const { return tile_at(shared + Memory::right + step % 2 * Memory::next); }
  __device__ RowNumbers& numbers(int step) const {
    return reinterpret_cast<RowNumbers*>(shared + Memory::numbers)[step % 2];
  }
  __device__ void start(int step) const {
    if (this_thread() != 0) return;
    const Place at = place(step);
    std::uint64_t* const full = &places.full[step % 2];
    barrier_arrive_expect(full, Memory::next);
    load_keys(left(step), Backwards ? maps.q : maps.k, at, full);
    load_values(right(step), Backwards ? maps.dout : maps.v, at, full);
  }
  __device__ void set(int step, const ReadDecay& decay, const RowNumbers::Fetched& fetched) const {
    if (call.scaled) set_products(products(step), nullptr, decay, place(step));
    if (call.normalised) numbers(step).set(fetched, Backwards);
  }
  __device__ float factor(int step, int row) const {
    float x = 1;
    if (call.scaled) x = Backwards ? products(step).from_start(row) : products(step).to_end(row);
    if (Backwards && call.normalised) x *= numbers(step).inverse[row];
    return x;
  }
  __device__ void walk() {
    BlockState state;
    state.clear();
    float whole = 1;
    start(0);
    column.clear(chunk);
    set(0, read_decay(call, place(0)), RowNumbers::fetch(call, place(0), Backwards));
    const int own = warpgroup();
#pragma unroll 1
    for (int step = 0; step < count; ++step) {
      __syncthreads();
      const bool more = step + 1 < count;
      ReadDecay decay;
      RowNumbers::Fetched fetched;
      if (more) {
        start(step + 1);
        if (call.scaled) decay = read_decay(call, place(step + 1));
        fetched = RowNumbers::fetch(call, place(step + 1), Backwards);
      }
      places.wait(step % 2);
      scale_tile(moved, right(step), [&](int row) { return factor(step, row); });
      if (call.normalised && this_thread() < chunk)
        column.set(this_thread(), factor(step, this_thread()) * numbers(step).of_z[this_thread()]);
      if (call.scaled) {
        const float over = products(step).whole();
        state.scale(over, over);
        whole *= over;
      }
      proxy_fence();
      __syncthreads();
      Addition addition;
      addition.start(state, part_of(left(step), own), moved, column, call.normalised);
      if (more) set(step + 1, decay, fetched);
      wgmma_wait<0>();
      addition.end(state, call.normalised);
    }
    float* const states = Backwards ? call.gradients.behind : call.states.before;
    const std::int64_t number = static_cast<std::int64_t>(unit) * call.chunks + run;
    state.store(call, states + number * call.key_size * call.columns);
    if (this_thread() == 0) call.whole[number] = whole;
  }
};

template <bool Backwards>
__global__ __launch_bounds__(block_threads, 1) void sums_kernel(const __grid_constant__ ScanCall call,
                                                                const __grid_constant__ Maps maps) {
  Sums<Backwards>{{call, maps}}.walk();
}

}  // namespace
}  // namespace wide

void sum_wide_runs(const ScanCall& call, bool backwards, const Launch& launch) {
  const auto start = [&](auto kernel) {
    wide::launch("scan sums of wide runs", kernel, walk::grid_of(call), wide::Room::bytes, call,
                 wide::Maps(call, backwards), launch);
  };
  backwards ? start(wide::sums_kernel<true>) : start(wide::sums_kernel<false>);
}

}  // namespace longstride::kernels::cuda::scanning
