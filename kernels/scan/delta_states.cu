// Delta: states over the chunks. A block has 16 columns of a unit's state, which never mix, and goes through the chunks
// one after the other; or, where states are known, one chunk. Each chunk takes two products, a slice of key channels at
// a time, whose rows are copied while the slice before is multiplied.
#include "kernels/base/cuda_launch.cuh"
#include "kernels/gpu/copy.cuh"
#include "kernels/scan/chunk_rows.cuh"

namespace longstride::kernels::cuda::scanning {
namespace {

constexpr int columns = 16;
template <class T>
using Few = Tile<T, columns>;

template <class T>
struct StatesMemory {
  std::size_t second = tile_bytes<T, slice<T>>(rows), y = 2 * second, beta = y + tile_bytes<T, columns>(rows), state,
              rounded, bytes;

  __host__ __device__ explicit StatesMemory(int key_width)
      : state(beta + sizeof(float) * rows),
        rounded(state + sizeof(float) * static_cast<std::size_t>(key_width * columns)),
        bytes(rounded + tile_bytes<T, columns>(key_width)) {}
};

template <class T>
struct DeltaStates {
  const ScanCall& call;
  const DeltaPass& pass;
  float* const states;
  const int unit, first_column, slices;
  const StatesMemory<T> places;
  const Few<T> y, rounded;  // Y, and then b Y; the state as the products read it
  float *const beta, *const state;

  __device__ DeltaStates(const ScanCall& of_call, const DeltaPass& of_pass, float* all)
      : call(of_call),
        pass(of_pass),
        states(all),
        unit(static_cast<int>(blockIdx.y)),
        first_column(static_cast<int>(blockIdx.x) * columns),
        slices((of_call.key_size + slice<T> - 1) / slice<T>),
        places(of_pass.key_width),
        y{reinterpret_cast<T*>(memory + places.y)},
        rounded{reinterpret_cast<T*>(memory + places.rounded)},
        beta(reinterpret_cast<float*>(memory + places.beta)),
        state(reinterpret_cast<float*>(memory + places.state)) {}

  __device__ std::int64_t chunk_at(int number) const { return static_cast<std::int64_t>(unit) * call.chunks + number; }
  __device__ Keys<T> tile(int step) const { return {reinterpret_cast<T*>(memory + step % 2 * places.second)}; }
  __device__ int width_of(int s) const { return min(slice<T>, pass.key_width - s * slice<T>); }
  __device__ float* fixed(int chunk) const {
    return pass.fixed + chunk_at(chunk) * rows * pass.value_width + first_column;
  }
  // Step 0, 1, ... of a chunk: slices of the rows that multiply the state, then of those that are added.
  __device__ void copy(int chunk, int step, Keys<T> to) const {
    const int s = step % slices, width = width_of(s);
    constexpr int word = 16 / static_cast<int>(sizeof(T));
    const T* from = static_cast<const T*>(step < slices ? pass.moved : pass.added) +
                    chunk_at(chunk) * rows * pass.key_width + s * slice<T>;
    for (int i = this_thread(); i < rows * (width / word); i += threads) {
      const int row = i / (width / word), c = i % (width / word) * word;
      copy_async_16(to.at(row, c), from + static_cast<std::int64_t>(row) * pass.key_width + c, true);
    }
    copies_commit();
  }
  __device__ void set_state(const float* from) {
    for (int i = this_thread(); i < pass.key_width * columns; i += threads) {
      const int row = i / columns, c = i % columns;
      const bool there = from != nullptr && row < call.key_size && first_column + c < call.columns;
      const float x = there ? from[static_cast<std::int64_t>(row) * call.columns + first_column + c] : 0.0f;
      state[i] = x;
      rounded.set(row, c, x);
    }
  }
  // Y of the warp's rows, stored; b Y for the sums.
  __device__ void set_y(Strip<1>& sum, int chunk) {
    float* const rows_of_chunk = fixed(chunk);
    const float sign = pass.backward ? 1.0f : -1.0f;
    sum.each([&](int r, int c, float& x) {
      const int row = this_warp() * 16 + r;
      float* const at = rows_of_chunk + static_cast<std::int64_t>(row) * pass.value_width + c;
      *at += sign * x;
      y.set(row, c, *at * beta[row]);
    });
  }
  // The slice's part of the state, which becomes that of the next chunk; what it was is stored. backward, what is there
  // is added first.
  __device__ void add(int chunk, int s, Keys<T> keys) {
    const int row = this_warp() * 16;
    if (row >= width_of(s)) return;
    Strip<1> sum;
    sum.clear();
    add_product(sum, Across<Keys<T>>{keys}, row, y, 0, 1, 0, rows);
    sum.each([&](int r, int c, float& x) {
      const int channel = s * slice<T> + row + r;
      if (channel >= call.key_size) return;
      float* const now = state + channel * columns + c;
      const float before = *now, whole = call.whole[chunk_at(chunk) * call.decays() + (call.channels ? channel : 0)];
      float next = whole * before + (pass.backward ? -x : x);
      if (first_column + c < call.columns) {
        float* const there = states + (chunk_at(chunk) * call.key_size + channel) * call.columns + first_column + c;
        if (pass.backward) next += *there;
        *there = before;
      }
      *now = next;
      rounded.set(channel, c, next);
    });
  }

  // known: the state before this chunk is there, and no other is wanted.
  __device__ void walk(bool known, const float* first, float* last) {
    const std::int64_t size = static_cast<std::int64_t>(call.key_size) * call.columns;
    const int begin = known ? static_cast<int>(blockIdx.z) : 0, count = known ? 1 : call.chunks,
              steps = known ? slices : 2 * slices;
    const auto chunk_of = [&](int number) { return pass.backward ? call.chunks - 1 - number : number; };
    set_state(known ? states + chunk_at(begin) * size : first != nullptr ? first + unit * size : nullptr);
    copy(chunk_of(begin), 0, tile(0));
    Strip<1> sum;
    sum.clear();
    for (int i = 0; i < count * steps; ++i) {
      const int chunk = chunk_of(begin + i / steps), step = i % steps, next = i + 1;
      if (next < count * steps) copy(chunk_of(begin + next / steps), next % steps, tile(next));
      if (step == 0) load_beta(beta, call, Place(call, unit, chunk));
      next < count* steps ? copies_wait<1>() : copies_wait<0>();
      __syncthreads();
      if (step < slices) {
        add_product(sum, tile(i), this_warp() * 16, Few<T>{rounded.at(step * slice<T>, 0)}, 0, 1, 0, width_of(step));
        if (step == slices - 1) {
          set_y(sum, chunk);
          sum.clear();
        }
      } else {
        add(chunk, step - slices, tile(i));
      }
      __syncthreads();
    }
    if (last == nullptr || known) return;
    for (int i = this_thread(); i < call.key_size * columns; i += threads)
      if (first_column + i % columns < call.columns)
        last[unit * size + static_cast<std::int64_t>(i / columns) * call.columns + first_column + i % columns] =
            state[i];
  }
};

template <class T>
__global__ __launch_bounds__(threads) void states_kernel(const __grid_constant__ ScanCall call,
                                                         const __grid_constant__ DeltaPass pass, const bool known,
                                                         float* const states, const float* const first,
                                                         float* const last) {
  DeltaStates<T>(call, pass, states).walk(known, first, last);
}

}  // namespace

template <class T>
void delta_states(const ScanCall& call, const DeltaPass& pass, bool known, float* states, const float* first,
                  float* last, const Launch& launch) {
  const std::size_t bytes = StatesMemory<T>(pass.key_width).bytes;
  allow_shared(states_kernel<T>, bytes);
  const dim3 grid(static_cast<unsigned>(pass.value_width / columns), static_cast<unsigned>(call.units),
                  known ? static_cast<unsigned>(call.chunks) : 1);
  run("scan delta states", states_kernel<T>, {grid, threads, bytes}, launch, call, pass, known, states, first, last);
}

#define LONGSTRIDE_SCAN_TYPE(T) \
  template void delta_states<T>(const ScanCall&, const DeltaPass&, bool, float*, const float*, float*, const Launch&);
LONGSTRIDE_SCAN_TYPE(float)
LONGSTRIDE_SCAN_TYPE(__nv_bfloat16)
LONGSTRIDE_SCAN_TYPE(__half)

}  // namespace longstride::kernels::cuda::scanning
