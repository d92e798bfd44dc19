// Delta: what every run adds to the state behind it, and the matrix by which it multiplies the state before it; or
// backwards the same of gradients, whose matrix is the transpose. Columns of values do not mix, so that a block has 64
// of a run's. The matrix is the state behind a run without values whose first state is 1.
#include "kernels/base/cuda_launch.cuh"
#include "kernels/scan/walk/delta.cuh"

namespace longstride::kernels::cuda::scanning {
namespace walk {
namespace {

constexpr int piece = 64;

template <class T, int K>
struct DeltaSumsMemory {
  static constexpr std::size_t rows = bytes_of_tile<T>(chunk, piece), keys = bytes_of_tile<T>(chunk, K);
  static constexpr std::size_t k = 0, q = keys, v = 2 * keys, y = v + rows, inverse = y + rows,
                               scores = inverse + bytes_of_square<T>, state = scores + bytes_of_square<T>,
                               near = state + Staged<T, K, piece>::bytes, products = near + sizeof(Near),
                               beta = products + sizeof(Products), bytes = beta + sizeof(float) * chunk;
};

template <class T, int K, bool Backwards>
struct DeltaSums {
  using Memory = DeltaSumsMemory<T, K>;
  using Step = DeltaStep<T, K, piece>;
  using Rows = Swizzled<T, piece>;
  static constexpr int threads_of_block = Shares<K>::threads_of_block;
  const ScanCall& call;
  const int number;  // a piece of 64 columns: of values, then of the matrix
  const int unit = static_cast<int>(blockIdx.y), run = static_cast<int>(blockIdx.x), first = run * call.run_chunks,
            count = min(call.run_chunks, (call.n + chunk - 1) / chunk - first),
            of_values = (call.value_size + piece - 1) / piece;
  const Swizzled<T, K> k{reinterpret_cast<T*>(memory + Memory::k)}, q{reinterpret_cast<T*>(memory + Memory::q)};
  const Rows v{reinterpret_cast<T*>(memory + Memory::v)}, y{reinterpret_cast<T*>(memory + Memory::y)};
  const Square<T> inverse{reinterpret_cast<T*>(memory + Memory::inverse)},
      scores{reinterpret_cast<T*>(memory + Memory::scores)};
  const Staged<T, K, piece> staged{memory + Memory::state};
  Near& near = *reinterpret_cast<Near*>(memory + Memory::near);
  Products& products = *reinterpret_cast<Products*>(memory + Memory::products);
  float* const beta = reinterpret_cast<float*>(memory + Memory::beta);

  __device__ bool of_matrix() const { return number >= of_values; }
  __device__ int column() const { return (of_matrix() ? number - of_values : number) * piece; }

  __device__ void start(const Place& at) const {
    start_rows<threads_of_block>(k, call.k, at, call.key_size, call.keys_aligned);
    if (Backwards) start_rows<threads_of_block>(q, call.q, at, call.key_size, call.keys_aligned);
    if (of_matrix()) {
      for (int i = this_thread(); i < chunk * piece / 8; i += threads_of_block)
        *reinterpret_cast<uint4*>(v.at(i / (piece / 8), i % (piece / 8) * 8)) = make_uint4(0, 0, 0, 0);
    } else {
      HeadMatrix view = Backwards ? call.dout : call.v;
      view.data = static_cast<T*>(view.data) + column();
      start_rows<threads_of_block>(v, view, at, call.value_size - column(), call.values_aligned);
    }
    start_bytes<threads_of_block>(memory + Memory::inverse,
                                  reinterpret_cast<const char*>(inverse_of<T>(call, unit, at.first / chunk)),
                                  bytes_of_square<T>);
    copies_commit();
    set_beta(beta, call, at);
    if (call.scaled) set_products(products, Backwards ? &near : nullptr, read_decay(call, at), at);
  }
  __device__ void walk() {
    State<T, K, piece> state;
    state.clear();
    if (of_matrix())
      state.s.each_pair([&](int r, int c, float& x, float& e) {
        x = state.row() + r == column() + c ? 1.0f : 0.0f;
        e = state.row() + r == column() + c + 1 ? 1.0f : 0.0f;
      });
    typename Step::Rows rows;
#pragma unroll 1
    for (int step = 0; step < count; ++step) {
      __syncthreads();
      start(Place(call, unit, Backwards ? first + count - 1 - step : first + step));
      const float scale = state.stage(staged, false);
      copies_wait<0>();
      __syncthreads();
      if constexpr (Backwards) {
        set_scores<K>(scores, q, k, call, products, near);
        __syncthreads();
        Step::set_gradients(rows, scores, k, v, staged, scale, call.scaled, products);
        const int low = Step::row() + this_lane() / 4;
        scale_rows(rows, beta[low], beta[low + 8]);
        Step::put(y, rows);
        __syncthreads();
        Step::solve_back(rows, inverse, y);
        __syncthreads();
        Step::put(y, rows);
        __syncthreads();
        Step::step_back(state, q, k, v, y, call.scaled, products);
      } else {
        Step::subtract_read(v, k, staged, scale, call.scaled, products);
        __syncthreads();
        Step::solve(rows, inverse, v);
        Step::put(y, rows);
        __syncthreads();
        Step::advance(state, k, y, beta, call.scaled, products);
      }
    }
    const std::int64_t of_run = static_cast<std::int64_t>(unit) * call.chunks + run;
    if (of_matrix()) {
      float* const to = call.transitions + of_run * call.key_size * call.key_size + column();
      state.each_of(call.key_size, call.key_size, call.key_size - column(), [&](int at, float x) { to[at] = x; });
    } else {
      float* const to =
          (Backwards ? call.gradients.behind : call.states.before) + of_run * call.key_size * call.columns + column();
      state.each_of(call.key_size, call.columns, call.value_size - column(), [&](int at, float x) { to[at] = x; });
    }
  }
};

template <class T, int K, bool Backwards>
__global__ __launch_bounds__(Shares<K>::threads_of_block,
                             2) void delta_sums_kernel(const __grid_constant__ ScanCall call, const int first_piece) {
  DeltaSums<T, K, Backwards>{call, first_piece + static_cast<int>(blockIdx.z)}.walk();
}

}  // namespace
}  // namespace walk

template <class T>
void delta_runs(const ScanCall& call, bool backwards, const float* first, float* last, const Launch& launch) {
  const auto pieces = [](int size) { return static_cast<unsigned>((size + walk::piece - 1) / walk::piece); };
  dim3 grid = walk::grid_of(call);
  unsigned first_piece = 0;
  const auto start = [&](auto kernel, std::size_t bytes, int threads_of_block) {
    allow_shared(kernel, bytes);
    run("scan delta sums of runs", kernel, {grid, static_cast<unsigned>(threads_of_block), bytes}, launch, call,
        static_cast<int>(first_piece));
  };
  const auto of_keys = [&](auto key) {
    constexpr int K = decltype(key)::value;
    constexpr std::size_t bytes = walk::DeltaSumsMemory<T, K>::bytes;
    grid.z = pieces(call.value_size);
    if (backwards) start(walk::delta_sums_kernel<T, K, true>, bytes, walk::Shares<K>::threads_of_block);
    first_piece = backwards ? pieces(call.value_size) : 0;
    grid.z = pieces(call.value_size) + pieces(call.key_size) - first_piece;
    start(walk::delta_sums_kernel<T, K, false>, bytes, walk::Shares<K>::threads_of_block);
  };
  call.key_size <= 64 ? of_keys(std::integral_constant<int, 64>{}) : of_keys(std::integral_constant<int, 128>{});
  carry_delta(call, backwards, first, last, launch);
}

template void delta_runs<__nv_bfloat16>(const ScanCall&, bool, const float*, float*, const Launch&);
template void delta_runs<__half>(const ScanCall&, bool, const float*, float*, const Launch&);

}  // namespace longstride::kernels::cuda::scanning
