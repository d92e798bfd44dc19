// The gradients of runs with a weak decay per channel (channel_logs.cuh): as without decays, of rows that are scaled
// first, and of states relative to the chunk's middle. What comes out is scaled back by the same factors.
#include "kernels/scan/walk/channel_logs.cuh"
#include "kernels/scan/walk/gradients.cuh"

namespace longstride::kernels::cuda::scanning {
namespace walk {
namespace {

template <class T, int K, int V>
struct WeakMemory : GradientsMemory<T, K, V> {
  using Totals = typename ChannelLogs<K>::Totals;
  static constexpr int stride = K + 8;  // rows lie in other banks
  static constexpr std::size_t factors = GradientsMemory<T, K, V>::rest,
                               totals = factors + sizeof(float) * chunk * stride, through = totals + 2 * sizeof(Totals),
                               from_keys = through + sizeof(Totals), crossing = from_keys + sizeof(Totals),
                               middle = crossing + sizeof(float) * K, bytes = middle + sizeof(float) * K;
  static_assert(bytes <= 227 * 1024);
};

template <class T, int K, int V>
struct WeakGradients : RunGradients<T, K, V> {
  using Memory = WeakMemory<T, K, V>;
  using Base = RunGradients<T, K, V>;
  using Logs = ChannelLogs<K>;
  using Base::call, Base::row, Base::q, Base::k, Base::v, Base::dout, Base::before, Base::behind, Base::scores,
      Base::errors, Base::numbers, Base::scales, Base::count, Base::place, Base::value_blocks, Base::key_columns;
  using typename Base::KeyTile;
  using typename Base::Share;
  using typename Base::Square;
  using typename Base::ValueTile;
  static constexpr int half = key_columns / 2;  // columns that are computed at a time
  using Half = Strip<half / 16>;

  // Factors of rows of queries; in their place sums for the decays, which the warp that has used the factors puts
  // there.
  float (*const factors)[Memory::stride] = reinterpret_cast<float (*)[Memory::stride]>(memory + Memory::factors);
  typename Logs::Totals* const totals = reinterpret_cast<typename Logs::Totals*>(memory + Memory::totals);
  // Sums over a part's rows of each channel.
  typename Logs::Totals &through = *reinterpret_cast<typename Logs::Totals*>(memory + Memory::through),
                        &from_keys = *reinterpret_cast<typename Logs::Totals*>(memory + Memory::from_keys);
  float* const crossing = reinterpret_cast<float*>(memory + Memory::crossing);
  float* const middle = reinterpret_cast<float*>(memory + Memory::middle);  // decays from the chunk's start to there

  using Base::Base;

  __device__ KeyTile keys_of(int step) const { return step % 2 == 0 ? k : q; }
  __device__ ValueTile values_of(int step) const { return step % 2 == 0 ? v : dout; }
  __device__ void start_keys(int step) const {
    const Place at = place(step);
    start_rows<Share::threads_of_block>(keys_of(step), call.k, at, call.key_size, call.keys_aligned);
    start_rows<Share::threads_of_block>(values_of(step), call.v, at, call.value_size, call.values_aligned);
    copies_commit();
  }
  __device__ void walk_forwards() {
    State<T, K, V> state;
    state.load(call, call.states.before + this->state_of_run());
    if (call.normalised) numbers.set({}, false);
    const int low = state.row() + this_lane() / 4, high = low + 8;
    Logs logs;
    if (count > 1) {
      start_keys(0);
      logs.fetch(call, place(0));
    }
#pragma unroll 1
    for (int step = 0; step + 1 < count; ++step) {
      const typename Logs::Totals& now = totals[step % 2];
      logs.sum(totals[step % 2]);
      copies_wait<0>();
      __syncthreads();
      const bool more = step + 2 < count;
      if (more) start_keys(step + 1);
      logs.refer_to_end(now);
      logs.template scale<false>(keys_of(step));
      if (more) logs.fetch(call, place(step + 1));
      this->keep(state, step);
      __syncthreads();
      state.scale(Logs::whole(now, low), Logs::whole(now, high));
      state.add(
          keys_of(step), values_of(step), [](auto&, int) {}, call.normalised ? numbers.of_z : nullptr);
    }
    __syncthreads();
    this->keep(state, count - 1);
  }

  __device__ void set_squares() const {
    Strip<1> sums[Share::template blocks<chunk>];
    multiply_visible<K>(sums, q, k);
    each_block<K>([&](int b, int early) {
      sums[b].each_pair([&](int r, int c, float x, float y) { this->put_score(row + r, early * part + c, x, y); });
    });
    this->each_error_block([&](Strip<1>& sum, int early) {
      sum.each_pair([&](int r, int c, float x, float y) { this->put_error(row + r, early * part + c, x, y); });
    });
  }
  __device__ void write_dv(const Place& at, float scale) const {
    const int column = Share::group_number() * (V / Share::groups);
    Strip<value_blocks> sum;
    set_zero(sum);
    multiply<K / 16>(sum, k, row, behind.tile, column);
    scale_rows(sum, scale, scale);
    for (int p = Share::strip(); p < parts; ++p) this->add_block(sum, Across<Square>{scores}, dout, p, column);
    store_rows<T>(sum, call.dv, at, row, column, call.value_size, call.values_aligned);
  }
  // q_i dq_i to dots.
  __device__ void write_dq(const Place& at, float scale, int column, Half& dots) const {
    Half sum;
    this->read_before(sum, scale, column);
    sum.each_pair([&](int, int c, float& x, float& y) {
      x *= middle[column + c];
      y *= middle[column + c + 1];
    });
    for (int p = 0; p <= Share::strip(); ++p) this->add_block(sum, errors, k, p, column);
    add_channel_dots(dots, sum, q, row, column, 1);
    this->add_own(sum, k, column);
    sum.each_pair([&](int r, int c, float& x, float& y) {
      const float2 factor = *reinterpret_cast<const float2*>(&factors[row + r][column + c]);
      x *= factor.x;
      y *= factor.y;
    });
    store_rows<T>(sum, call.dq, at, row, column, call.key_size, call.keys_aligned);
  }
  // -k_i dk_i from within the chunk to dots, which end in place of the factors, and the rest of it to of_keys.
  __device__ void write_dk(const Place& at, float scale, int column, Half& dots, Half& of_keys) const {
    Half sum, within;
    set_zero(within);
    for (int p = Share::strip(); p < parts; ++p) this->add_block(within, Across<Square>{errors}, q, p, column);
    add_channel_dots(dots, within, k, row, column, -1);
    this->read_behind(sum, scale, column);
    add_channel_dots(of_keys, sum, k, row, column, 1);
    this->add_own(within, q, column);
    add_strip(sum, within);
    sum.each_pair([&](int r, int c, float& x, float& y) {
      const float2 factor = *reinterpret_cast<const float2*>(&factors[row + r][column + c]);
      x *= reciprocal_approx(factor.x);
      y *= reciprocal_approx(factor.y);
    });
    put_sums(dots, column);
    store_rows<T>(sum, call.dk, at, row, column, call.key_size, call.keys_aligned);
  }
  __device__ void put_sums(Half& sums, int column) const {
    sums.each_pair([&](int r, int c, float x, float y) {
      *reinterpret_cast<float2*>(&factors[row + r][column + c]) = {x, y};
    });
  }
  __device__ void put_crossing(State<T, K, V>& gradient, float scale) const {
    float sum[2] = {};
    gradient.s.each_pair([&](int r, int c, float x, float y) {
      const float2 other = before.tile.pair(gradient.row() + r, c);
      sum[r / 8] += x * other.x + y * other.y;
    });
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      for (int step = 1; step < 4; step *= 2) sum[r] += __shfl_xor_sync(~0u, sum[r], step);
      if (this_lane() % 4 != 0) continue;
      const int c = gradient.row() + this_lane() / 4 + 8 * r;
      float x = scale * sum[r];
      if (call.normalised) x += gradient.z[2 * r] * before.z[c];
      crossing[c] = middle[c] * x;
    }
  }
  // In place of logarithms the sums of dots from a row to the part's end and of those of keys before it. Followed by a
  // barrier.
  __device__ void sum_rows(Logs& logs, Half (&of_keys)[2], int first_column) const {
    const int c = Logs::channel(), strip = Share::strip();
    const auto at = [&](int i) { return *reinterpret_cast<const float2*>(&factors[row + i][c]); };
    float2 sum{0, 0};
    __syncwarp();
#pragma unroll
    for (int i = part - 1; i >= 0; --i) {
      const float2 x = at(i);
      sum.x += x.x;
      sum.y += x.y;
      logs.x[i] = sum;
    }
    *reinterpret_cast<float2*>(&through[strip][c]) = sum;
    __syncwarp();
#pragma unroll
    for (int h = 0; h < 2; ++h) put_sums(of_keys[h], first_column + h * half);
    __syncwarp();
    sum = {0, 0};
#pragma unroll
    for (int i = 0; i < part; ++i) {
      const float2 x = at(i);
      logs.x[i].x += sum.x;
      logs.x[i].y += sum.y;
      sum.x += x.x;
      sum.y += x.y;
    }
    *reinterpret_cast<float2*>(&from_keys[strip][c]) = sum;
  }
  __device__ void write_ddecay(const Place& at, const Logs& logs) const {
    const int c = Logs::channel(), strip = Share::strip();
    float2 sum{crossing[c], crossing[c + 1]};
#pragma unroll
    for (int p = 0; p < parts; ++p) {
      const typename Logs::Totals& from = p > strip ? through : from_keys;
      const float2 x = *reinterpret_cast<const float2*>(&from[p][c]);
      sum.x += p == strip ? 0.0f : x.x;
      sum.y += p == strip ? 0.0f : x.y;
    }
    float* to = call.ddecay + at.at(call, row) * call.key_size + c;
    const std::int64_t next = static_cast<std::int64_t>(call.heads) * call.key_size;
    const int there = c < call.key_size ? at.count - row : 0;
    if (call.key_size % 2 == 0) {
#pragma unroll
      for (int i = 0; i < part; ++i, to += next)
        if (i < there) *reinterpret_cast<float2*>(to) = {logs.x[i].x + sum.x, logs.x[i].y + sum.y};
      return;
    }
#pragma unroll
    for (int i = 0; i < part; ++i, to += next) {
      if (i < there) to[0] = logs.x[i].x + sum.x;
      if (i < there && c + 1 < call.key_size) to[1] = logs.x[i].y + sum.y;
    }
  }

  __device__ void scale_tiles(Logs& logs) const {
    if (this_thread() < K) middle[this_thread()] = Logs::to_middle(totals[0], this_thread());
    logs.refer_to_middle(totals[0]);
    logs.template scale<true>(
        q, [&](int at, int c, float2 factor) { *reinterpret_cast<float2*>(&factors[at][c]) = factor; });
    logs.template scale<false>(k);
  }
  __device__ void walk_backwards() {
    State<T, K, V> gradient;
    gradient.load(call, call.gradients.behind + this->state_of_run());
    const int low = gradient.row() + this_lane() / 4, high = low + 8, column = Share::group_number() * key_columns;
    Logs logs;
    RowNumbers::Fetched fetched;
    const auto start_chunk = [&](int step) {
      this->start(step);
      logs.fetch(call, place(step));
      fetched = RowNumbers::fetch(call, place(step), true);
    };
    __syncthreads();
    start_chunk(count - 1);
#pragma unroll 1
    for (int step = count - 1; step >= 0; --step) {
      const Place at = place(step);
      logs.sum(totals[0]);
      if (call.normalised) numbers.set(fetched, true);
      copies_wait<0>();
      __syncthreads();
      scale_tiles(logs);
      gradient.scale(Logs::from_middle(totals[0], low), Logs::from_middle(totals[0], high));
      const float scale = gradient.stage(behind, call.normalised);
      __syncthreads();
      set_squares();
      put_crossing(gradient, scales[step]);
      __syncthreads();
      write_dv(at, scale);
      Half of_keys[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        Half dots;
        set_zero(dots);
        set_zero(of_keys[h]);
        write_dq(at, scales[step], column + h * half, dots);
        write_dk(at, scale, column + h * half, dots, of_keys[h]);
      }
      if (step > 0) {
        gradient.add(
            q, dout, [&](auto& a, int p) { scale_by_rows<T>(a, call.normalised ? numbers.inverse : nullptr, p); },
            call.normalised ? numbers.of_z : nullptr);
        gradient.scale(middle[low], middle[high]);
      }
      Logs sums;
      sum_rows(sums, of_keys, column);
      __syncthreads();
      if (step > 0) start_chunk(step - 1);
      write_ddecay(at, sums);
    }
  }
};

template <class T, int K, int V>
__global__ __launch_bounds__(
    Shares<K>::threads_of_block,
    channel_blocks_of_multiprocessor<K, V>) void weak_gradients_kernel(const __grid_constant__ ScanCall call) {
  walk_runs<WeakGradients<T, K, V>>(call, [&](int unit, int run) { return !is_strong(call, unit, run); });
}

}  // namespace
}  // namespace walk

template <class T>
void gradients_of_weak_runs(const ScanCall& of_channels, const Launch& launch) {
  ScanCall call = of_channels;
  call.scaled = false;
  walk::with_channel_sizes(call, [&](auto key, auto value) {
    constexpr int K = decltype(key)::value, V = decltype(value)::value;
    walk::launch_gradients(walk::weak_gradients_kernel<T, K, V>, call, walk::Shares<K>::threads_of_block,
                           walk::WeakMemory<T, K, V>::bytes, launch);
  });
}

template void gradients_of_weak_runs<__nv_bfloat16>(const ScanCall&, const Launch&);
template void gradients_of_weak_runs<__half>(const ScanCall&, const Launch&);

}  // namespace longstride::kernels::cuda::scanning
