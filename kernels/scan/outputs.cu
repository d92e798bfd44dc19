// The outputs of a chunk, by one block.
#include "kernels/base/cuda_launch.cuh"
#include "kernels/scan/scores.cuh"

namespace longstride::kernels::cuda::scanning {
namespace {

template <class T, bool Channels>
struct OutputsMemory {
  static constexpr std::size_t q = 0, k = tile_bytes<T, slice<T>>(rows), v = k,  // keys are used before values
      state = v + tile_bytes<T, widest_group<T>>(rows), scores = state + tile_bytes<T, widest_group<T>>(slice<T>),
                               below = scores + tile_bytes<T, rows>(rows),
                               room = below + sizeof(float) * (rows + warps),
                               near = room + (Channels ? sizeof(ChannelRoom<T>) : sizeof(HeadDecays)),
                               bytes = near + (Channels ? sizeof(float) * rows * run_rows : 0);
};

template <class T, bool Channels>
struct Outputs {
  using Memory = OutputsMemory<T, Channels>;
  const ScanCall& call;
  const Place place;
  HeadDecays& decays = *reinterpret_cast<HeadDecays*>(memory + Memory::room);
  ChannelRoom<T>& room = *reinterpret_cast<ChannelRoom<T>*>(memory + Memory::room);
  const Keys<T> q{reinterpret_cast<T*>(memory + Memory::q)}, k{reinterpret_cast<T*>(memory + Memory::k)};
  const Values<T> v{reinterpret_cast<T*>(memory + Memory::v)}, state{reinterpret_cast<T*>(memory + Memory::state)};
  const Scores<T> scores_tile{reinterpret_cast<T*>(memory + Memory::scores)};
  float* const below =  // denominators, or delta's b
      reinterpret_cast<float*>(memory + Memory::below);

  __device__ Outputs(const ScanCall& of_call, const Place& at) : call(of_call), place(at) {}

  __device__ void set_scores() {
    if constexpr (Channels) {
      each_channel_score(call, call.q, place, q, k, room, reinterpret_cast<float(*)[run_rows]>(memory + Memory::near),
                         [&](int query, int key, float x) { scores_tile.set(query, key, x); });
    } else {
      decays.set(call, place);
      each_head_score(call, call.q, place, q, k, [&](int query, int key, float x) {
        scores_tile.set(query, key, x * seen(call, decays, query, key));
      });
    }
  }
  // Adds what the warp's rows read from the states before the chunk, or behind it.
  __device__ void add_states(Strip<group_blocks<T>>& o, const Columns& columns, bool behind) {
    const bool scaled = call.decay != nullptr || call.begin != nullptr;
    for (int s = 0; s * slice<T> < call.key_size; ++s) {
      const Columns keys = slice_of<T>(call, s);
      __syncthreads();
      const float* factor = Channels || !scaled ? nullptr : behind ? decays.to_end : decays.from_start;
      load_keys(q, call, call.q, place, keys, factor);
      const float scale =
          load_state(state, call, (behind ? call.states.behind : call.states.before) + place.state(call), keys, columns,
                     below + rows);
      __syncthreads();
      if constexpr (Channels) {
        scale_channels(q, call, place, keys, false, nullptr);
        __syncthreads();
      }
      add_product_scaled(o, scale, q, this_warp() * 16, state, 0, columns.padded / 16, 0, keys.padded);
    }
  }
  __device__ void write(Strip<group_blocks<T>>& o, const Columns& columns) {
    const int z = call.value_size - columns.first, row = this_warp() * 16;
    if (call.normalised) {
      if (z < columns.count) {
        o.each([&](int r, int c, float& x) {
          if (c == z) below[row + r] = x;
        });
        __syncwarp();
        const std::int64_t at = static_cast<std::int64_t>(place.unit) * call.n + place.first + row + this_lane();
        if (this_lane() < 16 && row + this_lane() < place.count) call.denominator[at] = below[row + this_lane()];
      }
      o.each([&](int r, int, float& x) { x = below[row + r] != 0 ? x / below[row + r] : 0.0f; });
    }
    store_strip<T>(o, call.o, place, columns, call.value_size, call.values_aligned);
  }
  __device__ void run() {
    if (call.beta != nullptr) load_beta(below, call, place);
    set_scores();
    // z's column, which divides the others, is in the last group.
    for (int g = groups_of<T>(call.columns) - 1; g >= 0; --g) {
      const Columns columns = group_of<T>(call, g);
      Strip<group_blocks<T>> o;
      o.clear();
      add_states(o, columns, false);
      if (call.both) add_states(o, columns, true);
      load_values(v, call, place, columns, call.beta != nullptr ? below : nullptr);
      __syncthreads();
      add_product(o, scores_tile, this_warp() * 16, v, 0, columns.padded / 16, 0,
                  call.both ? rows : this_warp() * 16 + 16);
      write(o, columns);
    }
  }
};

template <class T, bool Channels>
__global__ __launch_bounds__(threads, Channels || sizeof(T) == 4 ? 1 : 2) void outputs_kernel(const ScanCall call) {
  Outputs<T, Channels>(call, Place(call, static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.x))).run();
}

}  // namespace

template <class T>
void outputs(const ScanCall& call, const Launch& launch) {
  const dim3 grid(static_cast<unsigned>(call.chunks), static_cast<unsigned>(call.units));
  const auto start = [&](auto kernel, std::size_t bytes) {
    allow_shared(kernel, bytes);
    run("scan outputs", kernel, {grid, threads, bytes}, launch, call);
  };
  if (call.channels)
    start(outputs_kernel<T, true>, OutputsMemory<T, true>::bytes);
  else
    start(outputs_kernel<T, false>, OutputsMemory<T, false>::bytes);
}

template void outputs<float>(const ScanCall&, const Launch&);
template void outputs<__nv_bfloat16>(const ScanCall&, const Launch&);
template void outputs<__half>(const ScanCall&, const Launch&);

}  // namespace longstride::kernels::cuda::scanning
