// The gradients of a chunk, by one block: of v, then of q and k a slice of channels at a time, and of the decays, by
//   d log a_t = <S, decay G> + sum over rows i from t on of (q_i dq_i - k_i dk_i) + sum over rows j before t of x_j
// where S is before the chunk, G behind it, decay over it, dk the part from within the chunk and x_j = k_j . E_j G v_j.
#pragma once
#include "kernels/base/cuda_launch.cuh"
#include "kernels/scan/scores.cuh"

namespace longstride::kernels::cuda::scanning {

template <class T, bool Channels>
struct GradientsMemory {
  static constexpr std::size_t keys = tile_bytes<T, slice<T>>(rows), values = tile_bytes<T, widest_group<T>>(rows);
  static constexpr std::size_t q = 0, k = keys, v = 0,  // values at first, then queries and keys
      y = std::max(2 * keys, values), state = y + values, scores = state + tile_bytes<T, widest_group<T>>(slice<T>),
                               dots = scores + tile_bytes<T, rows>(rows),
                               room = dots + sizeof(float) * (4 * rows + warps),
                               bytes = room + (Channels ? sizeof(ChannelRoom<T>) : sizeof(HeadDecays)),
                               with_delta = bytes + tile_bytes<T, rows>(rows);
  static_assert(y % 16 == 0 && state % 16 == 0 && scores % 16 == 0 && room % 16 == 0 && bytes % 16 == 0);
  static_assert(values >= sizeof(float) * rows * run_rows && values >= keys);
  static_assert(scores - y >= sizeof(float) * rows * slice<T> && with_delta <= 227 * 1024);
};

template <class T, bool Channels>
struct Gradients {
  using Memory = GradientsMemory<T, Channels>;
  static constexpr int key_blocks = slice<T> / 16;
  using KeyStrip = Strip<key_blocks>;

  const ScanCall& call;
  const Place place;
  const bool delta;
  const int row = this_warp() * 16;
  HeadDecays& decays = *reinterpret_cast<HeadDecays*>(memory + Memory::room);
  ChannelRoom<T>& room = *reinterpret_cast<ChannelRoom<T>*>(memory + Memory::room);
  const Keys<T> q{reinterpret_cast<T*>(memory + Memory::q)}, k{reinterpret_cast<T*>(memory + Memory::k)};
  const Keys<T> scaled{reinterpret_cast<T*>(memory + Memory::y)};
  const Values<T> v{reinterpret_cast<T*>(memory + Memory::v)}, y{reinterpret_cast<T*>(memory + Memory::y)},
      state{reinterpret_cast<T*>(memory + Memory::state)};
  const Scores<T> scores_tile{reinterpret_cast<T*>(memory + Memory::scores)},
      errors{reinterpret_cast<T*>(memory + Memory::bytes)};  // delta: as queries, k read what e is the gradient of
  float* const numbers = reinterpret_cast<float*>(memory + Memory::dots);
  float *const inverse = numbers,  // inverse denominators, or delta's b
      *const through = numbers + rows, *const from_keys = numbers + 2 * rows, *const own = numbers + 3 * rows,
               *const small = numbers + 4 * rows;
  float* const channel_numbers = reinterpret_cast<float*>(memory + Memory::y);  // (rows, slice)

  __device__ Gradients(const ScanCall& of_call, const Place& at)
      : call(of_call), place(at), delta(of_call.e.data != nullptr) {}

  __device__ int groups() const { return groups_of<T>(call.columns); }
  // Rows that a strip's queries see, and queries that see its keys.
  __device__ int end_of_keys() const { return call.both ? rows : row + 16; }
  __device__ int first_query() const { return call.both ? 0 : row; }

  // ---- v ----
  __device__ void set_scores() {
    if constexpr (Channels) {
      each_channel_score(call, call.q, place, q, k, room, reinterpret_cast<float(*)[run_rows]>(memory + Memory::y),
                         [&](int query, int key, float x) { scores_tile.set(query, key, x); });
    } else {
      decays.set(call, place);
      each_head_score(call, call.q, place, q, k, [&](int query, int key, float x) {
        scores_tile.set(query, key, x * seen(call, decays, query, key));
      });
    }
  }
  __device__ void add_states(Strip<group_blocks<T>>& dv, const Columns& columns, bool behind) {
    for (int s = 0; s * slice<T> < call.key_size; ++s) {
      const Columns keys = slice_of<T>(call, s);
      __syncthreads();
      load_keys(k, call, call.k, place, keys, Channels ? nullptr : behind ? decays.to_end : decays.from_start);
      const float scale =
          load_state(state, call, (behind ? call.gradients.behind : call.gradients.before) + place.state(call), keys,
                     columns, small);
      __syncthreads();
      if constexpr (Channels) {
        scale_channels(k, call, place, keys, true, nullptr);
        __syncthreads();
      }
      add_product_scaled(dv, scale, k, row, state, 0, columns.padded / 16, 0, keys.padded);
    }
  }
  __device__ void write_dv() {
    set_scores();
    for (int g = 0; g < groups(); ++g) {
      const Columns columns = group_of<T>(call, g);
      Strip<group_blocks<T>> dv;
      dv.clear();
      add_states(dv, columns, true);
      if (!Channels && call.both) add_states(dv, columns, false);
      load_gradients(y, call, place, columns, inverse);
      __syncthreads();
      add_product(dv, Across<Scores<T>>{scores_tile}, row, y, 0, columns.padded / 16, first_query(), rows);
      store_strip<T>(dv, call.dv, place, columns, call.value_size, call.values_aligned);
    }
  }

  // ---- Scores' gradients ----
  __device__ void load_e(const Columns& columns) {
    load_rows<float>(y, call.e, place, columns, call.value_size, call.values_aligned, inverse);
  }
  // dA = dO V^T, or -e u^T of earlier keys only. A position's own is kept apart: what it adds to dq and dk would cancel
  // in the sums for the decays, but not to the last bit.
  __device__ void set_score_gradients(bool of_errors) {
    const Scores<T> to = of_errors ? errors : scores_tile;
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      Strip<4> sum;
      sum.clear();
      for (int g = 0; g < groups(); ++g) {
        const Columns columns = group_of<T>(call, g);
        if (half == 0 || groups() > 1) {
          __syncthreads();
          of_errors ? load_e(columns) : load_gradients(y, call, place, columns, inverse);
          load_values(v, call, place, columns, delta ? inverse : nullptr);
          __syncthreads();
        }
        add_product(sum, y, row, Across<Values<T>>{v}, 64 * half, runs_seen(call, half), 0, columns.padded);
      }
      each_score(sum, call, half, [&](int query, int key, float x) {
        const bool sees = key < query || (key != query && call.both);
        if (key == query && !of_errors) own[query] = x;
        if constexpr (!Channels)
          if (sees) x *= seen(call, decays, query, key);
        to.set(query, key, !sees ? 0.0f : of_errors ? -x : x);
      });
    }
    __syncthreads();
  }

  // ---- q and k ----
  enum class Rows : std::uint8_t { dout, errors, values };
  // The warp's rows times the transpose of the states, a slice of channels, with the decays on their way.
  __device__ void set_rows_by_states(KeyStrip& part, Rows which, const float* states, const Columns& keys,
                                     bool behind) {
    part.clear();
    for (int g = 0; g < groups(); ++g) {
      const Columns columns = group_of<T>(call, g);
      __syncthreads();
      if (which == Rows::values)
        load_values(y, call, place, columns, delta ? inverse : nullptr);
      else
        which == Rows::errors ? load_e(columns) : load_gradients(y, call, place, columns, inverse);
      const float scale = load_state(state, call, states + place.state(call), keys, columns, small);
      __syncthreads();
      add_product_scaled(part, scale, y, row, Across<Values<T>>{state}, 0, keys.padded / 16, 0, columns.padded);
    }
    const float sign = which == Rows::errors ? -1.0f : 1.0f;
    part.each([&](int r, int c, float& x) {
      if constexpr (Channels)
        x *= c < keys.count ? (behind ? room.decays.to_end(row + r, c) : room.decays.from_start(row + r, c)) : 0.0f;
      else
        x *= behind ? decays.to_end[row + r] : decays.from_start[row + r];
      x *= sign;
    });
  }
  __device__ static void add(KeyStrip& to, const KeyStrip& from) {
#pragma unroll
    for (int b = 0; b < key_blocks; ++b)
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int e = 0; e < 4; ++e) to.d[b][h][e] += from.d[b][h][e];
  }
  // The products of a strip's scores with keys, as queries; with queries, as keys.
  __device__ void add_within(KeyStrip& sum, const Scores<T>& of_scores, const Keys<T>& others, const Columns& keys,
                             bool as_keys) {
    if constexpr (!Channels) {
      if (as_keys)
        add_product(sum, Across<Scores<T>>{of_scores}, row, others, 0, keys.padded / 16, first_query(), rows);
      else
        add_product(sum, of_scores, row, others, 0, keys.padded / 16, 0, end_of_keys());
    } else {
      __syncthreads();
      room.decays.scale(scaled, others, as_keys);
      __syncthreads();
      KeyStrip far;
      far.clear();
#pragma unroll 1
      for (int i = 0; i < runs; ++i) {
        const int other = as_keys ? runs - 1 - i : i, first = other * run_rows;
        if (as_keys ? other <= this_warp() : other >= this_warp()) break;
        far.each([&](int, int c, float& x) { x *= room.decays.total[other][c]; });
        if (as_keys)
          add_product(far, Across<Scores<T>>{of_scores}, row, scaled, 0, keys.padded / 16, first, first + run_rows);
        else
          add_product(far, of_scores, row, scaled, 0, keys.padded / 16, first, first + run_rows);
      }
      far.each([&](int r, int c, float& x) {
        const int at = row + r;
        x *= as_keys ? room.decays.out(at, c) : room.decays.in(at, c);
        float product = 1;
        if (as_keys) {
#pragma unroll 1
          for (int i = at + 1; i < row + run_rows; ++i) {
            product *= room.decays.a[i][c];
            x += of_scores(i, at) * others(i, c) * product;
          }
        } else {
#pragma unroll 1
          for (int j = at - 1; j >= row; --j) {
            product *= room.decays.a[j + 1][c];
            x += of_scores(at, j) * others(j, c) * product;
          }
        }
      });
      add(sum, far);
    }
  }

  __device__ void add_own(KeyStrip& sum, const Keys<T>& others, const Columns& keys) {
    sum.each([&](int r, int c, float& x) {
      if (c < keys.padded) x += own[row + r] * others(row + r, c);
    });
  }

  // A strip's products, element by element, with the rows of a tile: summed for each row, or of each channel.
  struct Dots {
    float sum[Channels ? key_blocks * 8 : 2] = {};
  };
  __device__ void add_dots(Dots& dots, KeyStrip& x, const Keys<T>& tile, const Columns& keys, float sign) {
#pragma unroll
    for (int b = 0; b < key_blocks; ++b) {
      read_later();
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int c = 16 * b + 8 * h + this_lane() % 4 * 2 + e % 2;
          if (c < keys.padded)
            dots.sum[Channels ? 8 * b + 4 * h + e : e / 2] +=
                sign * x.d[b][h][e] * tile(row + this_lane() / 4 + e / 2 * 8, c);
        }
    }
  }
  __device__ void add_to_rows(float* numbers_of_rows, const Dots& dots) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = dots.sum[r];
      for (int step = 1; step < 4; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
      if (this_lane() % 4 == 0) numbers_of_rows[row + this_lane() / 4 + 8 * r] += sum;
    }
  }

  __device__ void write_slice(int number) {
    const Columns keys = slice_of<T>(call, number);
    __syncthreads();
    load_keys(q, call, call.q, place, keys);
    load_keys(k, call, call.k, place, keys);
    if constexpr (Channels) room.decays.load(call, place, keys);
    const bool decays_too = call.ddecay != nullptr;
    Dots dots, of_keys;
    KeyStrip d, part;
    set_rows_by_states(d, Rows::dout, call.states.before, keys, false);
    if (!Channels && call.both) {
      set_rows_by_states(part, Rows::dout, call.states.behind, keys, true);
      add(d, part);
    }
    add_within(d, scores_tile, k, keys, false);
    if (decays_too) add_dots(dots, d, q, keys, 1);
    add_own(d, k, keys);
    store_strip<T>(d, call.dq, place, keys, call.key_size, call.keys_aligned);

    d.clear();
    add_within(d, scores_tile, q, keys, true);
    if (delta) add_within(d, errors, k, keys, true);
    if (decays_too) add_dots(dots, d, k, keys, -1);
    if (delta) {
      set_rows_by_states(part, Rows::errors, call.states.before, keys, false);
      add_within(part, errors, k, keys, false);
      if (decays_too) add_dots(dots, part, k, keys, 1);
      add(d, part);
    }
    set_rows_by_states(part, Rows::values, call.gradients.behind, keys, true);
    if (decays_too) add_dots(of_keys, part, k, keys, 1);
    add(d, part);
    if (!Channels && call.both) {
      set_rows_by_states(part, Rows::values, call.gradients.before, keys, false);
      add(d, part);
    }
    add_own(d, q, keys);
    store_strip<T>(d, call.dk, place, keys, call.key_size, call.keys_aligned);
    if (!decays_too) return;
    if constexpr (Channels) {
      write_ddecay(dots, of_keys, keys);
    } else {
      add_to_rows(through, dots);
      add_to_rows(from_keys, of_keys);
    }
  }

  // ---- Decays ----
  // A channel's, by a thread each.
  __device__ void write_ddecay(const Dots& dots, const Dots& of_keys, const Columns& keys) {
    const int c = this_thread();
    const auto at = [&](int t) { return place.at(call, t) * call.key_size + keys.first + c; };
    const auto put = [&](const Dots& x) {
      __syncthreads();
#pragma unroll
      for (int i = 0; i < key_blocks * 8; ++i)
        channel_numbers[(row + this_lane() / 4 + i % 4 / 2 * 8) * slice<T> + i / 4 * 8 + this_lane() % 4 * 2 + i % 2] =
            x.sum[i];
      __syncthreads();
    };
    float sum = 0;
    if (c < keys.count) {
      const std::int64_t first = place.state(call) + static_cast<std::int64_t>(keys.first + c) * call.columns;
      for (int j = 0; j < call.columns; ++j) sum += call.states.before[first + j] * call.gradients.behind[first + j];
      for (int b = 0; b < runs; ++b) sum *= room.decays.total[b][c];
    }
    put(dots);
    if (c < keys.count) {
      for (int t = rows - 1; t >= 0; --t) {
        sum += channel_numbers[t * slice<T> + c];
        if (t < place.count) call.ddecay[at(t)] = sum;
      }
    }
    put(of_keys);
    if (c < keys.count) {
      float before = 0;
      for (int t = 0; t < place.count; ++t) {
        const float x = call.ddecay[at(t)] + before;
        call.ddecay[at(t)] = room.decays.a[t][c] > 0 ? x : 0.0f;
        before += channel_numbers[t * slice<T> + c];
      }
    }
  }
  // A head's.
  __device__ void write_ddecay() {
    float sum = 0;
    const int size = call.key_size * call.columns;
    for (int i = this_thread(); i < size && decays.whole > 0; i += threads)
      sum += call.states.before[place.state(call) + i] * call.gradients.behind[place.state(call) + i];
    for (int step = 1; step < warp_threads; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (this_lane() == 0) small[this_warp()] = sum;
    __syncthreads();
    const int t = this_thread();
    if (t >= place.count) return;
    double exact = 0;  // these cancel
    for (int w = 0; w < warps; ++w) exact += small[w];
    exact *= decays.whole;
    for (int i = rows - 1; i >= t; --i) exact += through[i];
    for (int j = 0; j < t; ++j) exact += from_keys[j];
    call.ddecay[place.at(call, t)] = decays.a[t] > 0 ? static_cast<float>(exact) : 0.0f;
  }

  __device__ void run_all() {
    if (this_thread() < rows) through[this_thread()] = from_keys[this_thread()] = 0;
    if (delta) {
      load_beta(inverse, call, place);
      if constexpr (!Channels) decays.set(call, place);
    } else {
      write_dv();
    }
    set_score_gradients(false);
    if (delta) set_score_gradients(true);
#pragma unroll 1
    for (int s = 0; s * slice<T> < call.key_size; ++s) write_slice(s);
    if constexpr (!Channels)
      if (call.ddecay != nullptr) write_ddecay();
  }
};

namespace {

template <class T, bool Channels>
__global__ __launch_bounds__(threads, Channels || sizeof(T) == 4 ? 1 : 2) void gradients_kernel(const ScanCall call) {
  Gradients<T, Channels>(call, Place(call, static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.x))).run_all();
}

template <class T, bool Channels>
void launch_gradients(const ScanCall& call, const Launch& launch) {
  using Memory = GradientsMemory<T, Channels>;
  const std::size_t bytes = call.e.data != nullptr ? Memory::with_delta : Memory::bytes;
  allow_shared(gradients_kernel<T, Channels>, bytes);
  run("scan gradients", gradients_kernel<T, Channels>,
      {dim3(static_cast<unsigned>(call.chunks), static_cast<unsigned>(call.units)), threads, bytes}, launch, call);
}

}  // namespace
}  // namespace longstride::kernels::cuda::scanning
