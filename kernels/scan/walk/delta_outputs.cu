// Delta: the outputs of runs.
#include "kernels/base/cuda_launch.cuh"
#include "kernels/scan/walk/delta.cuh"

namespace longstride::kernels::cuda::scanning {
namespace walk {
namespace {

template <class T, int K, int V>
struct DeltaOutputsMemory {
  static constexpr std::size_t rows = bytes_of_tile<T>(chunk, V), keys = bytes_of_tile<T>(chunk, K);
  static constexpr std::size_t q = 0, k = keys, v = 2 * keys, y = v + rows, inverse = y + rows,
                               scores = inverse + bytes_of_square<T>, state = scores + bytes_of_square<T>,
                               near = state + Staged<T, K, V>::bytes, products = near + sizeof(Near),
                               beta = products + sizeof(Products), bytes = beta + sizeof(float) * chunk;
};

template <class T, int K, int V>
__global__ __launch_bounds__(
    Shares<K>::threads_of_block,
    delta_blocks_of_multiprocessor<K, V>) void delta_outputs_kernel(const __grid_constant__ ScanCall call) {
  using Memory = DeltaOutputsMemory<T, K, V>;
  using Share = Shares<K>;
  using Step = DeltaStep<T, K, V>;
  const int unit = static_cast<int>(blockIdx.y), run = static_cast<int>(blockIdx.x), first = run * call.run_chunks,
            count = min(call.run_chunks, (call.n + chunk - 1) / chunk - first);
  const Swizzled<T, K> q{reinterpret_cast<T*>(memory + Memory::q)}, k{reinterpret_cast<T*>(memory + Memory::k)};
  const Swizzled<T, V> v{reinterpret_cast<T*>(memory + Memory::v)}, y{reinterpret_cast<T*>(memory + Memory::y)};
  const Square<T> inverse{reinterpret_cast<T*>(memory + Memory::inverse)},
      scores{reinterpret_cast<T*>(memory + Memory::scores)};
  const Staged<T, K, V> staged{memory + Memory::state};
  Near& near = *reinterpret_cast<Near*>(memory + Memory::near);
  Products& products = *reinterpret_cast<Products*>(memory + Memory::products);
  float* const beta = reinterpret_cast<float*>(memory + Memory::beta);
  State<T, K, V> state;
  state.load(call,
             call.states.before + (static_cast<std::int64_t>(unit) * call.chunks + run) * call.key_size * call.columns);
#pragma unroll 1
  for (int step = 0; step < count; ++step) {
    const Place at(call, unit, first + step);
    __syncthreads();
    start_rows<Share::threads_of_block>(q, call.q, at, call.key_size, call.keys_aligned);
    start_rows<Share::threads_of_block>(k, call.k, at, call.key_size, call.keys_aligned);
    start_rows<Share::threads_of_block>(v, call.v, at, call.value_size, call.values_aligned);
    start_bytes<Share::threads_of_block>(memory + Memory::inverse,
                                         reinterpret_cast<const char*>(inverse_of<T>(call, unit, first + step)),
                                         bytes_of_square<T>);
    copies_commit();
    set_beta(beta, call, at);
    const ReadDecay decay = read_decay(call, at);
    const float scale = state.stage(staged, false);
    if (call.scaled) set_products(products, &near, decay, at);
    copies_wait<0>();
    __syncthreads();
    set_scores<K>(scores, q, k, call, products, near, nullptr, beta);
    Step::subtract_read(v, k, staged, scale, call.scaled, products);
    __syncthreads();
    typename Step::Rows rows;
    Step::solve(rows, inverse, v);
    Step::put(y, rows);
    __syncthreads();
    const int low = Step::row() + this_lane() / 4;
    set_zero(rows);
    multiply<K / 16>(rows, q, Step::row(), staged.tile, Step::column());
    scale_rows(rows, scale * (call.scaled ? products.from_start(low) : 1.0f),
               scale * (call.scaled ? products.from_start(low + 8) : 1.0f));
    for (int p = 0; p <= Share::strip(); ++p) {
      std::uint32_t a[4];
      load_left(a, scores, Step::row(), p * part);
      add_rows<T>(rows, a, y, p * part, Step::column());
    }
    store_rows<T>(rows, call.o, at, Step::row(), Step::column(), call.value_size, call.values_aligned);
    if (step + 1 < count) Step::advance(state, k, y, beta, call.scaled, products);
  }
}

}  // namespace
}  // namespace walk

template <class T>
void delta_outputs_of_runs(const ScanCall& call, const Launch& launch) {
  walk::with_delta_sizes(call, [&](auto key, auto value) {
    constexpr int K = decltype(key)::value, V = decltype(value)::value;
    walk::launch_walk("scan delta outputs of runs", walk::delta_outputs_kernel<T, K, V>, call,
                      walk::Shares<K>::threads_of_block, walk::DeltaOutputsMemory<T, K, V>::bytes, launch);
  });
}

template void delta_outputs_of_runs<__nv_bfloat16>(const ScanCall&, const Launch&);
template void delta_outputs_of_runs<__half>(const ScanCall&, const Launch&);

}  // namespace longstride::kernels::cuda::scanning
