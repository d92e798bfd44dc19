// Delta: the gradients of runs. With S, Y before a chunk kept by the walk forwards, A' = dO Y^T b . D and B the
// strictly earlier part of -(b dU) Y^T b . D
//   dV = b dU,   db = dU . Y,   dQ = W dO S^T + A' K
//   dK = A'^T Q + B^T K + B K - W (b dU) S^T + E b Y G^T
#include "kernels/scan/walk/delta.cuh"
#include "kernels/scan/walk/gradients.cuh"
#include "kernels/scan/walk/head_decays.cuh"

namespace longstride::kernels::cuda::scanning {
namespace walk {
namespace {

template <class T, int V>
inline constexpr int bytes_of_values = static_cast<int>(bytes_of_tile<T>(chunk, V));

template <class T, int K, int V>
struct DeltaMemory : GradientsMemory<T, K, V, bytes_of_values<T, V>> {
  static constexpr int groups = Shares<K>::groups;
  static constexpr std::size_t inverse = GradientsMemory<T, K, V, bytes_of_values<T, V>>::rest,
                               alike = inverse + bytes_of_square<T>, rows = alike + bytes_of_square<T>,
                               near = rows + bytes_of_tile<T>(chunk, V), products = near + sizeof(Near),
                               beta = products + sizeof(Products), of_beta = beta + sizeof(float) * chunk,
                               decays = of_beta + sizeof(float) * groups * chunk,
                               bytes = decays + sizeof(HeadDecayParts<K>);
  static_assert(bytes <= 227 * 1024);
};

template <class T, int K, int V>
struct DeltaGradients : RunGradients<T, K, V, bytes_of_values<T, V>> {
  using Memory = DeltaMemory<T, K, V>;
  using Base = RunGradients<T, K, V, bytes_of_values<T, V>>;
  using Step = DeltaStep<T, K, V>;
  using Base::call, Base::row, Base::q, Base::k, Base::v, Base::dout, Base::before, Base::behind, Base::scores,
      Base::errors, Base::scales, Base::count, Base::place, Base::key_columns, Base::kept;
  using typename Base::KeyTile;
  using typename Base::Share;
  using typename Base::ValueTile;
  static constexpr int threads_of_block = Share::threads_of_block;

  const Square<T> inverse{reinterpret_cast<T*>(memory + Memory::inverse)},
      alike{reinterpret_cast<T*>(memory + Memory::alike)};            // N
  const ValueTile rows{reinterpret_cast<T*>(memory + Memory::rows)};  // right sides, and then b dU
  Near& near = *reinterpret_cast<Near*>(memory + Memory::near);
  Products& products = *reinterpret_cast<Products*>(memory + Memory::products);
  float *const beta = reinterpret_cast<float*>(memory + Memory::beta), *const of_beta = reinterpret_cast<float*>(
                                                                           memory + Memory::of_beta);
  HeadDecayParts<K>& decays = *reinterpret_cast<HeadDecayParts<K>*>(memory + Memory::decays);

  using Base::Base;

  __device__ void start_inverse(int step) const {
    start_bytes<threads_of_block>(memory + Memory::inverse,
                                  reinterpret_cast<const char*>(inverse_of<T>(call, this->unit, this->first + step)),
                                  bytes_of_square<T>);
  }
  __device__ char* kept_rows(int step) const { return kept + step * Memory::kept + Memory::state_bytes; }

  __device__ void walk_forwards() {
    State<T, K, V> state;
    state.load(call, call.states.before + this->state_of_run());
#pragma unroll 1
    for (int step = 0; step < count; ++step) {
      const Place at = place(step);
      __syncthreads();
      start_rows<threads_of_block>(k, call.k, at, call.key_size, call.keys_aligned);
      start_rows<threads_of_block>(v, call.v, at, call.value_size, call.values_aligned);
      start_inverse(step);
      copies_commit();
      set_beta(beta, call, at);
      const ReadDecay decay = read_decay(call, at);
      const float scale = state.stage(before, false);
      this->keep(state, step, scale);
      if (call.scaled) set_products(products, nullptr, decay, at);
      copies_wait<0>();
      __syncthreads();
      Step::subtract_read(v, k, before, scale, call.scaled, products);
      __syncthreads();
      typename Step::Rows y;
      Step::solve(y, inverse, v);
      Step::put(rows, y);
      Step::put({reinterpret_cast<T*>(kept_rows(step))}, y);
      __syncthreads();
      if (step + 1 < count) Step::advance(state, k, rows, beta, call.scaled, products);
    }
  }

  __device__ void set_squares() const {
    set_scores<K>(scores, q, k, call, products, near);
    Strip<1> sums[Share::template blocks<chunk>];
    multiply_visible<K>(sums, k, k);
    each_block<K>([&](int b, int early) {
      each_visible(sums[b], products, near, Share::strip(), early, call.scaled, [&](int i, int j, float x, float y) {
        alike.set_pair(i, j, j < i ? x : 0.0f, j + 1 < i ? y : 0.0f);
      });
    });
    this->each_error_block([&](Strip<1>& sum, int early) {
      each_visible(sum, products, near, Share::strip(), early, call.scaled, [&](int query, int key, float x, float y) {
        this->put_error(query, key, x * beta[key], y * beta[key + 1]);
      });
    });
  }
  // b dU: to `rows`, and its part of db.
  __device__ void set_du(const Place& at, float scale) const {
    typename Step::Rows right, du;
    Step::set_gradients(right, scores, k, dout, behind, scale, call.scaled, products);
    du = right;
    const int low = row + this_lane() / 4;
    scale_rows(du, beta[low], beta[low + 8]);
    Step::put(rows, du);
    __syncthreads();
    Step::solve_back(du, inverse, rows);
    __syncthreads();
    Step::put(rows, du);
    store_rows<T>(du, call.dv, at, row, Step::column(), call.value_size, call.values_aligned);
    __syncthreads();
    set_zero(du);
    Step::add_transposed(du, alike, rows);  // N^T b dU, which right sides lack in dU
    put_beta(right, du);
  }
  __device__ void put_beta(typename Step::Rows& right, typename Step::Rows& erased) const {
    float dots[2] = {};
    right.each_pair([&](int r, int c, float& x, float& y) {
      const float2 other = v.pair(row + r, Step::column() + c);
      dots[r / 8] += x * other.x + y * other.y;
    });
    erased.each_pair([&](int r, int c, float& x, float& y) {
      const float2 other = v.pair(row + r, Step::column() + c);
      dots[r / 8] -= x * other.x + y * other.y;
    });
    put_row_sums<K>(of_beta, dots);
  }
  __device__ void set_erased() const {
    Strip<1> sums[Share::template blocks<chunk>];
    multiply_visible<K>(sums, rows, v);
    each_block<K>([&](int b, int early) {
      each_visible(sums[b], products, near, Share::strip(), early, call.scaled, [&](int i, int j, float x, float y) {
        scores.set_pair(i, j, j < i ? -x * beta[j] : 0.0f, j + 1 < i ? -y * beta[j + 1] : 0.0f);
      });
    });
  }
  __device__ float factor(bool of_queries, int at) const {
    return !call.scaled ? 1.0f : of_queries ? products.from_start(at) : products.to_end(at);
  }
  __device__ void write_dq(const Place& at, float scale, float (&dots)[2]) const {
    const int column = Share::group_number() * key_columns, low = row + this_lane() / 4;
    Strip<key_columns / 16> sum;
    this->read_before(sum, scale, column);
    scale_rows(sum, factor(true, low), factor(true, low + 8));
    for (int p = 0; p <= Share::strip(); ++p) this->add_block(sum, errors, k, p, column);
    add_dots<K>(dots, sum, q, column, 1);
    this->add_own(sum, k, column);
    store_rows<T>(sum, call.dq, at, row, column, call.key_size, call.keys_aligned);
  }
  __device__ void write_dk(const Place& at, float scale_before, float scale, float (&dots)[2],
                           float (&of_keys)[2]) const {
    constexpr int half = key_columns / 2;
    const int low = row + this_lane() / 4;
#pragma unroll 1
    for (int column = Share::group_number() * key_columns, h = 0; h < 2; ++h, column += half) {
      Strip<half / 16> sum, part_sum;
      set_zero(part_sum);
      for (int p = Share::strip(); p < parts; ++p) {
        this->add_block(part_sum, Across<Square<T>>{errors}, q, p, column);
        this->add_block(part_sum, Across<Square<T>>{scores}, k, p, column);
      }
      add_dots<K>(dots, part_sum, k, column, -1);
      this->add_own(part_sum, q, column);

      set_zero(sum);
      multiply<V / 16>(sum, rows, row, Across<ValueTile>{before.tile}, column);
      scale_rows(sum, -scale_before * factor(true, low), -scale_before * factor(true, low + 8));
      for (int p = 0; p <= Share::strip(); ++p) this->add_block(sum, scores, k, p, column);
      add_dots<K>(dots, sum, k, column, 1);
      add_strip(part_sum, sum);

      this->read_behind(sum, scale, column);
      scale_rows(sum, beta[low] * factor(false, low), beta[low + 8] * factor(false, low + 8));
      add_dots<K>(of_keys, sum, k, column, 1);
      add_strip(sum, part_sum);
      store_rows<T>(sum, call.dk, at, row, column, call.key_size, call.keys_aligned);
    }
  }
  __device__ void write_rows(const Place& at) const {
    if (call.ddecay != nullptr) decays.write(call, at);
    const int t = this_thread();
    if (t >= at.count || t >= chunk) return;
    float sum = 0;
#pragma unroll
    for (int g = 0; g < Share::groups; ++g) sum += of_beta[g * chunk + t];
    call.dbeta[at.at(call, t)] = sum;
  }
  __device__ void walk_backwards() {
    State<T, K, V> gradient;
    gradient.load(call, call.gradients.behind + this->state_of_run());
#pragma unroll 1
    for (int step = count - 1; step >= 0; --step) {
      const Place at = place(step);
      __syncthreads();
      this->start_others(step);
      start_bytes<threads_of_block>(memory + Memory::v, kept_rows(step), bytes_of_values<T, V>);
      start_inverse(step);
      copies_commit();
      if (step + 1 < count) write_rows(place(step + 1));
      set_beta(beta, call, at);
      const ReadDecay decay = read_decay(call, at);
      const float scale = gradient.stage(behind, false);
      if (call.scaled) set_products(products, &near, decay, at);
      copies_wait<0>();
      __syncthreads();
      if (call.scaled) decays.set_alive(products);
      set_squares();
      __syncthreads();
      set_du(at, scale);
      set_erased();
      __syncthreads();
      float dots[2] = {}, of_keys[2] = {};
      write_dq(at, scales[step], dots);
      write_dk(at, scales[step], scale, dots, of_keys);
      if (call.ddecay != nullptr) {
        put_row_sums<K>(decays.through, dots);
        put_row_sums<K>(decays.from_keys, of_keys);
        decays.put_crossing(gradient, before, scales[step], products.whole(), false);
      }
      if (step > 0) Step::step_back(gradient, q, k, dout, rows, call.scaled, products);
    }
    __syncthreads();
    write_rows(place(0));
  }
};

template <class T, int K, int V>
__global__ __launch_bounds__(
    Shares<K>::threads_of_block,
    delta_blocks_of_multiprocessor<K, V>) void delta_gradients_kernel(const __grid_constant__ ScanCall call) {
  walk_runs<DeltaGradients<T, K, V>>(call);
}

}  // namespace
}  // namespace walk

template <class T>
void delta_gradients_of_runs(const ScanCall& call, const Launch& launch) {
  walk::with_delta_sizes(call, [&](auto key, auto value) {
    constexpr int K = decltype(key)::value, V = decltype(value)::value;
    walk::launch_gradients(walk::delta_gradients_kernel<T, K, V>, call, walk::Shares<K>::threads_of_block,
                           walk::DeltaMemory<T, K, V>::bytes, launch);
  });
}

template void delta_gradients_of_runs<__nv_bfloat16>(const ScanCall&, const Launch&);
template void delta_gradients_of_runs<__half>(const ScanCall&, const Launch&);

}  // namespace longstride::kernels::cuda::scanning
