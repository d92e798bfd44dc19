// Delta: the solutions of a chunk's equations, by one block. Columns of right sides do not mix: a warp has 16 of them,
// and goes through the runs of 16 rows, one after the other. The inverse of each run's own equations is f32.
#include "kernels/base/cuda_launch.cuh"
#include "kernels/scan/scores.cuh"

namespace longstride::kernels::cuda::scanning {
namespace {

template <class T, bool Channels>
struct SolveMemory {
  static constexpr std::size_t q = 0, k = tile_bytes<T, slice<T>>(rows), right = 2 * k,
                               scores = right + tile_bytes<T, widest_group<T>>(rows),
                               own = scores + tile_bytes<T, rows>(rows),
                               inverse = own + sizeof(float) * rows * run_rows,
                               sums = inverse + sizeof(float) * rows * run_rows,
                               beta = sums + sizeof(float) * warps * run_rows * (run_rows + 1),
                               near = beta + sizeof(float) * rows, room = near + sizeof(float) * rows * run_rows,
                               bytes = room + (Channels ? sizeof(ChannelRoom<T>) : sizeof(HeadDecays));
  static_assert(bytes <= 227 * 1024 && tile_bytes<T, slice<T>>(rows) <= tile_bytes<T, widest_group<T>>(rows));
};

template <class T, bool Channels>
struct Solver {
  using Memory = SolveMemory<T, Channels>;
  using Runs = float (*)[run_rows];
  const ScanCall& call;
  const DeltaPass& pass;
  const Place place;
  HeadDecays& decays = *reinterpret_cast<HeadDecays*>(memory + Memory::room);
  ChannelRoom<T>& room = *reinterpret_cast<ChannelRoom<T>*>(memory + Memory::room);
  const Keys<T> q{reinterpret_cast<T*>(memory + Memory::q)}, k{reinterpret_cast<T*>(memory + Memory::k)};
  const Values<T> right{reinterpret_cast<T*>(memory + Memory::right)};
  const Scores<T> scores_tile{reinterpret_cast<T*>(memory + Memory::scores)};
  const Runs own = reinterpret_cast<Runs>(memory + Memory::own),
             inverse = reinterpret_cast<Runs>(memory + Memory::inverse),
             near = reinterpret_cast<Runs>(memory + Memory::near);
  float* const beta = reinterpret_cast<float*>(memory + Memory::beta);
  float* const sums = reinterpret_cast<float*>(memory + Memory::sums) + this_warp() * run_rows * (run_rows + 1);

  template <class E>
  __device__ E* rows_of_chunk(E* data, int width) const {
    return data + (static_cast<std::int64_t>(place.unit) * call.chunks + place.chunk) * rows * width;
  }

  template <class F>
  __device__ void each_score_of(const HeadMatrix& queries, F&& f) {
    if constexpr (Channels)
      each_channel_score(call, queries, place, q, k, room, near, f);
    else
      each_head_score(call, queries, place, q, k, f);
  }
  // N with b of its columns, or backward of its rows.
  __device__ void set_equations() {
    each_score_of(call.k, [&](int late, int early, float x) {
      if constexpr (!Channels)
        if (early < late) x *= decays.of(late, early);
      x = early < late ? x * beta[pass.backward ? late : early] : 0.0f;
      scores_tile.set(late, early, x);
      if (early / run_rows == late / run_rows) own[late][early % run_rows] = x;
    });
    __syncwarp();
    // A lane a column of the inverse of 1 + the run's own part.
    const int first = this_warp() * run_rows, j = this_lane();
    if (j < run_rows)
      for (int i = 0; i < run_rows; ++i) {
        float x = i == j ? 1.0f : 0.0f;
        for (int m = j; m < i; ++m) x -= own[first + i][m] * inverse[first + m][j];
        inverse[first + i][j] = x;
      }
  }

  // The columns of `right`, in place. exact: null, or where the solutions are stored in f32 and, backward, right sides
  // are read.
  __device__ void solve(int padded, float* exact) {
    const int column = this_warp() * run_rows;
    if (column >= padded) return;
    for (int step = 0; step < runs; ++step) {
      const int b = pass.backward ? runs - 1 - step : step, row = b * run_rows;
      Strip<1> sum;
      sum.clear();
      if (pass.backward)
        add_product(sum, Across<Scores<T>>{scores_tile}, row, right, column, 1, row + run_rows, rows);
      else
        add_product(sum, scores_tile, row, right, column, 1, 0, row);
      const auto at = [&](int r, int c) {
        return exact + static_cast<std::int64_t>(row + r) * pass.value_width + column + c;
      };
      sum.each([&](int r, int c, float& x) {
        sums[r * (run_rows + 1) + c] = (exact != nullptr && pass.backward ? *at(r, c) : right(row + r, column + c)) - x;
      });
      __syncwarp();
      sum.each([&](int r, int c, float&) {
        float x = 0;
        for (int m = 0; m < run_rows; ++m)
          x += (pass.backward ? inverse[row + m][r] : inverse[row + r][m]) * sums[m * (run_rows + 1) + c];
        right.set(row + r, column + c, x);
        if (exact != nullptr) *at(r, c) = x;
      });
      __syncwarp();
    }
  }
  template <class TileType>
  __device__ void write(TileType tile, T* to, int width, const Columns& columns) {
    for (int i = this_thread(); i < rows * columns.padded; i += threads) {
      const int row = i / columns.padded, c = i % columns.padded;
      to[static_cast<std::int64_t>(row) * width + columns.first + c] = *tile.at(row, c);
    }
  }

  // (Q K^T . D)^T dO where the solutions will be.
  __device__ void set_gradients() {
    each_score_of(call.q, [&](int query, int key, float x) {
      scores_tile.set(query, key, Channels ? x : x * seen(call, decays, query, key));
    });
    float* const to = rows_of_chunk(pass.fixed, pass.value_width);
    for (int g = 0; g < groups_of<T>(call.columns); ++g) {
      const Columns columns = group_of<T>(call, g);
      __syncthreads();
      load_gradients(right, call, place, columns, nullptr);
      __syncthreads();
      Strip<group_blocks<T>> r;
      r.clear();
      add_product(r, Across<Scores<T>>{scores_tile}, this_warp() * 16, right, 0, columns.padded / 16, this_warp() * 16,
                  rows);
      r.each([&](int row, int c, float& x) {
        if (c < columns.padded)
          to[static_cast<std::int64_t>(this_warp() * 16 + row) * pass.value_width + columns.first + c] = x;
      });
    }
    __syncthreads();
  }
  __device__ void solve_values() {
    float* const to = rows_of_chunk(pass.fixed, pass.value_width);
    for (int g = 0; g < groups_of<T>(call.columns); ++g) {
      const Columns columns = group_of<T>(call, g);
      __syncthreads();
      if (!pass.backward) load_values(right, call, place, columns);
      __syncthreads();
      solve(columns.padded, to + columns.first);
    }
  }
  // A slice of keys, scaled from the start or to the end, in q's tile.
  __device__ void load_scaled(const Columns& keys, bool to_end, float* whole) {
    __syncthreads();
    load_keys(q, call, call.k, place, keys, Channels ? nullptr : to_end ? decays.to_end : decays.from_start);
    __syncthreads();
    if constexpr (Channels) {
      scale_channels(q, call, place, keys, to_end, whole);
      __syncthreads();
    }
  }
  __device__ void write_keys() {
    float* const whole =
        call.whole + (static_cast<std::int64_t>(place.unit) * call.chunks + place.chunk) * call.decays();
    if (!Channels && this_thread() == 0) *whole = decays.whole;
    for (int s = 0; s * slice<T> < call.key_size; ++s) {
      const Columns keys = slice_of<T>(call, s);
      load_scaled(keys, !pass.backward, nullptr);
      write(q, rows_of_chunk(static_cast<T*>(pass.added), pass.key_width), pass.key_width, keys);
      load_scaled(keys, pass.backward, whole);
      for (int i = this_thread(); i < rows * keys.padded; i += threads)
        *right.at(i / keys.padded, i % keys.padded) = *q.at(i / keys.padded, i % keys.padded);
      __syncthreads();
      solve(keys.padded, nullptr);
      __syncthreads();
      write(right, rows_of_chunk(static_cast<T*>(pass.moved), pass.key_width), pass.key_width, keys);
    }
  }
  __device__ void run_all() {
    load_beta(beta, call, place);
    if constexpr (!Channels) decays.set(call, place);
    if (pass.backward) set_gradients();
    set_equations();
    solve_values();
    write_keys();
  }
};

template <class T, bool Channels>
__global__ __launch_bounds__(threads) void solve_kernel(const ScanCall call, const DeltaPass pass) {
  Solver<T, Channels>{call, pass, Place(call, static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.x))}.run_all();
}

// A warp a row: dv = b du, dbeta = du . (v - R^T k).
template <class T>
__global__ __launch_bounds__(threads) void rows_kernel(const ScanCall call) {
  const Place place(call, static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.x));
  for (int row = this_warp(); row < place.count; row += warps) {
    const float *error = place.rows_of<const float>(call.v) + row * call.v.row,
                *du = place.rows_of<const float>(call.e) + row * call.e.row;
    T* const dv = place.rows_of<T>(call.dv) + row * call.dv.row;
    const std::int64_t at = place.at(call, row);
    const float beta = call.beta[at];
    float sum = 0;
    for (int j = this_lane(); j < call.value_size; j += warp_threads) {
      dv[j] = from_float<T>(beta * du[j]);
      sum += du[j] * error[j];
    }
    for (int step = 1; step < warp_threads; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (this_lane() == 0) call.dbeta[at] = sum;
  }
}

dim3 grid_of(const ScanCall& call) { return {static_cast<unsigned>(call.chunks), static_cast<unsigned>(call.units)}; }

}  // namespace

template <class T>
void solve_chunks(const ScanCall& call, const DeltaPass& pass, const Launch& launch) {
  const auto start = [&](auto kernel, std::size_t bytes) {
    allow_shared(kernel, bytes);
    run("scan solve", kernel, {grid_of(call), threads, bytes}, launch, call, pass);
  };
  if (call.channels)
    start(solve_kernel<T, true>, SolveMemory<T, true>::bytes);
  else
    start(solve_kernel<T, false>, SolveMemory<T, false>::bytes);
}

template <class T>
void delta_rows(const ScanCall& call, const Launch& launch) {
  run("scan delta rows", rows_kernel<T>, {grid_of(call), threads}, launch, call);
}

#define LONGSTRIDE_SCAN_TYPE(T)                                                    \
  template void solve_chunks<T>(const ScanCall&, const DeltaPass&, const Launch&); \
  template void delta_rows<T>(const ScanCall&, const Launch&);
LONGSTRIDE_SCAN_TYPE(float)
LONGSTRIDE_SCAN_TYPE(__nv_bfloat16)
LONGSTRIDE_SCAN_TYPE(__half)

}  // namespace longstride::kernels::cuda::scanning
