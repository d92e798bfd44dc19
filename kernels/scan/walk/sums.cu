// The sum of outer products of every run of chunks, a block each, and the decays over it: of keys and values with the
// decays to the run's end, or of queries and gradients with those from its start.
#include "kernels/base/cuda_launch.cuh"
#include "kernels/scan/walk/rows.cuh"

namespace longstride::kernels::cuda::scanning {
namespace walk {
namespace {

template <class T, int K, int V>
struct SumsMemory {
  static constexpr std::size_t left = 0, right = bytes_of_tile<T>(chunk, K), next = right + bytes_of_tile<T>(chunk, V),
                               products = 2 * next, numbers = products + 2 * sizeof(Products),
                               bytes = numbers + 2 * sizeof(RowNumbers);
};

template <class T, int K, int V, bool Backwards>
struct Sums {
  using Memory = SumsMemory<T, K, V>;
  static constexpr int threads_of_block = Shares<K>::threads_of_block;
  const ScanCall& call;
  const int unit = static_cast<int>(blockIdx.y), run = static_cast<int>(blockIdx.x), first = run * call.run_chunks,
            count = min(call.run_chunks, (call.n + chunk - 1) / chunk - first);

  __device__ Place place(int step) const { return {call, unit, Backwards ? first + count - 1 - step : first + step}; }
  __device__ Swizzled<T, K> left(int step) const {
    return {reinterpret_cast<T*>(memory + Memory::left + step % 2 * Memory::next)};
  }
  __device__ Swizzled<T, V> right(int step) const {
    return {reinterpret_cast<T*>(memory + Memory::right + step % 2 * Memory::next)};
  }
  __device__ Products& products(int step) const {
    return reinterpret_cast<Products*>(memory + Memory::products)[step % 2];
  }
  __device__ RowNumbers& numbers(int step) const {
    return reinterpret_cast<RowNumbers*>(memory + Memory::numbers)[step % 2];
  }
  __device__ void start(int step) const {
    const Place at = place(step);
    start_rows<threads_of_block>(left(step), Backwards ? call.q : call.k, at, call.key_size, call.keys_aligned);
    start_rows<threads_of_block>(right(step), Backwards ? call.dout : call.v, at, call.value_size, call.values_aligned);
    copies_commit();
  }
  __device__ void set(int step, const ReadDecay& decay, const RowNumbers::Fetched& fetched) const {
    if (call.scaled) set_products(products(step), nullptr, decay, place(step));
    if (call.normalised) numbers(step).set(fetched, Backwards);
  }
  __device__ void walk() {
    State<T, K, V> state;
    state.clear();
    float whole = 1;
    start(0);
    set(0, read_decay(call, place(0)), RowNumbers::fetch(call, place(0), Backwards));
#pragma unroll 1
    for (int step = 0; step < count; ++step) {
      copies_wait<0>();
      __syncthreads();
      const bool more = step + 1 < count;
      ReadDecay decay;
      RowNumbers::Fetched fetched;
      if (more) {
        start(step + 1);
        if (call.scaled) decay = read_decay(call, place(step + 1));
        fetched = RowNumbers::fetch(call, place(step + 1), Backwards);
      }
      const Products& now = products(step);
      const RowNumbers& rows_now = numbers(step);
      if (call.scaled) {
        const float over = now.whole();
        // Backwards the sum of later chunks passes this one's decays too.
        state.scale(over, over);
        whole *= over;
      }
      state.add(
          left(step), right(step),
          [&](auto& a, int p) {
            if (!call.scaled && !(Backwards && call.normalised)) return;
            const float beyond = !call.scaled ? 1.0f : Backwards ? now.before(p) : now.behind(p);
            const float* const within = Backwards ? now.in : now.out;
            const auto factor_of = [&](int row) {
              float2 x{beyond, beyond};
              if (call.scaled) x = {beyond * within[row], beyond * within[row + 1]};
              if (Backwards && call.normalised) x = {x.x * rows_now.inverse[row], x.y * rows_now.inverse[row + 1]};
              return x;
            };
            const int row = p * part + this_lane() % 4 * 2;
            scale_fragment<T>(a, 1, 1, factor_of(row), factor_of(row + 8));
          },
          call.normalised ? rows_now.of_z : nullptr);
      if (more) set(step + 1, decay, fetched);
    }
    float* const states = Backwards ? call.gradients.behind : call.states.before;
    const std::int64_t number = static_cast<std::int64_t>(unit) * call.chunks + run;
    state.store(call, states + number * call.key_size * call.columns);
    if (this_thread() == 0) call.whole[number] = whole;
  }
};

template <class T, int K, int V, bool Backwards>
__global__ __launch_bounds__(Shares<K>::threads_of_block) void sums_kernel(const __grid_constant__ ScanCall call) {
  Sums<T, K, V, Backwards>{call}.walk();
}

}  // namespace
}  // namespace walk

template <class T>
void sum_runs(const ScanCall& call, bool backwards, const Launch& launch) {
  walk::with_sizes(call, [&](auto key, auto value) {
    constexpr int K = decltype(key)::value, V = decltype(value)::value;
    const auto start = [&](auto kernel) {
      walk::launch_walk("scan sums of runs", kernel, call, walk::Shares<K>::threads_of_block,
                        walk::SumsMemory<T, K, V>::bytes, launch);
    };
    backwards ? start(walk::sums_kernel<T, K, V, true>) : start(walk::sums_kernel<T, K, V, false>);
  });
}

template void sum_runs<__nv_bfloat16>(const ScanCall&, bool, const Launch&);
template void sum_runs<__half>(const ScanCall&, bool, const Launch&);

}  // namespace longstride::kernels::cuda::scanning
