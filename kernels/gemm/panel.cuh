// Products of many rows of a, few columns of b and little depth on Hopper. A block stays on one panel of 128 columns:
// all of b's panel is in shared memory, and tiles of 64 rows of a stream past it. Three warpgroups take turns, so that
// one multiplies while the others finish and store their tiles, each warp independently.
#pragma once
#include "kernels/gpu/barrier.cuh"
#include "kernels/gpu/fragment.cuh"
#include "kernels/gpu/lane.cuh"
#include "kernels/gpu/ring.cuh"
#include "kernels/gpu/shared.cuh"
#include "kernels/gpu/tma.cuh"
#include "kernels/gpu/wgmma.cuh"

namespace longstride::kernels::cuda::panels {

inline constexpr int panel_columns = 128, tile_rows = 64, half = 64;  // half a panel is a box of TMA, 128 bytes wide
inline constexpr int warpgroups = 3, threads = 128 * (warpgroups + 1), warps = 4 * warpgroups;
inline constexpr int producer_registers = 40, consumer_registers = 152;
inline constexpr int stage_bytes = tile_rows * half * 2;              // a, 64 deep
inline constexpr int step_bytes = 2 * half * half * 2;                // b, 64 deep
inline constexpr int box_rows = 16, box_bytes = box_rows * half * 2;  // a warp's part of half a tile
inline constexpr int tiles_ahead = 4;                                 // tiles prefetched into the second-level cache

// Shared memory: b's panel, the ring of a's stages, two boxes per warp, and what the kernel controls itself with.
template <int most_steps>
struct SharedLayout {
  static constexpr int stages = most_steps <= 4 ? 8 : 6;
  static constexpr int a_at = most_steps * step_bytes, boxes_at = a_at + stages * stage_bytes,
                       control_at = boxes_at + warps * 2 * box_bytes;
  template <class Control>
  static constexpr std::size_t bytes = control_at + sizeof(Control) + 1024;
};

template <int stages>
struct Barriers {
  std::uint64_t b, full[stages], empty[stages];

  __device__ void init() {
    barrier_init(&b, 1);
    for (int i = 0; i < stages; ++i) {
      barrier_init(&full[i], 1);
      barrier_init(&empty[i], 4);
    }
  }
};

// The same, and what an epilogue needs: a barrier for what arrives in each of a warp's boxes, and the panel's biases,
// two in a word.
template <int stages>
struct EpilogueControl : Barriers<stages> {
  std::uint64_t input[warps][2];
  std::uint32_t bias[panel_columns / 2];

  __device__ void init() {
    Barriers<stages>::init();
    for (auto& of_warp : input)
      for (std::uint64_t& barrier : of_warp) barrier_init(&barrier, 1);
  }
  __device__ void take_bias(const std::uint16_t* of_columns, int panel) {
    if (threadIdx.x >= panel_columns / 2) return;
    constexpr std::uint32_t two_zeros = 0x80008000u;  // negative ones: x + -0 is x for every x
    const std::uint16_t* const two = of_columns + panel * panel_columns + 2 * threadIdx.x;
    bias[threadIdx.x] = of_columns == nullptr ? two_zeros : two[0] | static_cast<std::uint32_t>(two[1]) << 16;
  }
};

// `b_by_rows`: b is stored row by row (MN-major), not column by column. `steps` is the depth in units of 64, a kernel's
// parameter: from its address the compiler makes the code of a loop in place, from a copy it unrolls loops further.
template <class T, bool b_by_rows, int most_steps>
struct Panel {
  using L = SharedLayout<most_steps>;
  using B = Barriers<L::stages>;

  // ---- A block ----

  // By all threads, before they take their roles. What they wrote before is visible to all of them after.
  template <class Control>
  __device__ static void init(Control& control) {
    if (threadIdx.x == 0) {
      control.init();
      barrier_init_fence();
      proxy_fence();
    }
    __syncthreads();
  }
  // One thread of the last warpgroup produces, and the other warpgroups consume once b is there.
  template <class Produce, class Consume>
  __device__ static void run_roles(B& barriers, const Produce& produce, const Consume& consume) {
    if (threadIdx.x >= warpgroups * 128) {
      registers_give<producer_registers>();
      if (threadIdx.x == warpgroups * 128) produce();
      return;
    }
    registers_take<consumer_registers>();
    begin_turns(barriers);
    consume();
  }

  // ---- The producer, one thread ----

  __device__ static void load_panel(const CUtensorMap& b, char* shared, B& barriers, const std::int32_t& steps,
                                    int panel) {
    barrier_arrive_expect(&barriers.b, static_cast<std::uint32_t>(steps) * step_bytes);
    for (int k = 0; k < steps; ++k)
      for (int i = 0; i < 2; ++i) {
        // K-major: step by step, 128 rows of 64. MN-major: 64 columns all the way down, then the other 64.
        char* const to = shared + (b_by_rows ? i * steps + k : 2 * k + i) * (step_bytes / 2);
        const std::int32_t column = panel * panel_columns + i * half, depth = k * half;
        tma_load(to, &b, b_by_rows ? matrix_coordinates(column, depth) : matrix_coordinates(depth, column),
                 &barriers.b);
      }
  }
  // `slot` is that of "empty", whose first phases need no wait: one use behind, {0, 1} at first.
  __device__ static void load_tile(const CUtensorMap& a, char* shared, B& barriers, const std::int32_t& steps,
                                   std::int32_t tile, RingSlot& slot) {
    for (int k = 0; k < steps; ++k) {
      barrier_wait(&barriers.empty[slot.index], slot.parity);
      barrier_arrive_expect(&barriers.full[slot.index], stage_bytes);
      tma_load(shared + L::a_at + slot.index * stage_bytes, &a, matrix_coordinates(k * half, tile * tile_rows),
               &barriers.full[slot.index]);
      slot.advance(L::stages);
    }
  }

  // ---- The consumers ----

  // The next tile of this warpgroup, the block's tile number `before`. The warpgroups take turns; otherwise one could
  // mistake a stage's fill of two rounds ago for its own. begun() is called while the first products run.
  template <class Begun>
  __device__ static void multiply(const std::int32_t& steps, const char* shared, B& barriers, int warpgroup, int before,
                                  float (&d)[half], const Begun& begun) {
    RingSlot slot{before * steps % L::stages, static_cast<std::uint32_t>(before * steps / L::stages) & 1};
    int last = 0;
    const std::uint64_t a = descriptor<128>(shared + L::a_at);
    std::uint64_t b = b_by_rows ? descriptor<128>(shared, static_cast<std::uint32_t>(steps) * step_bytes / 2)
                                : descriptor<128>(shared);
    named_barrier_sync(4 + warpgroup, 256);
    for (int k = 0; k < steps; ++k) {
      const std::uint64_t a_stage = advanced(a, static_cast<std::uint32_t>(slot.index * stage_bytes));
      barrier_wait(&barriers.full[slot.index], slot.parity);
      wgmma_hold(d);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < 4; ++step)
        wgmma<T, panel_columns, b_by_rows>(d, advanced(a_stage, static_cast<std::uint32_t>(step * 32)),
                                           advanced(b, static_cast<std::uint32_t>(step * (b_by_rows ? 16 * 128 : 32))),
                                           k > 0 || step > 0);
      wgmma_commit();
      b = advanced(b, b_by_rows ? step_bytes / 2 : step_bytes);
      if (k > 0) {
        wgmma_wait<1>();
        release(barriers, last);
      } else {
        begun();
      }
      last = slot.index;
      slot.advance(L::stages);
    }
    named_barrier_arrive(4 + (warpgroup + 1) % warpgroups, 256);
    wgmma_wait<0>();
    wgmma_hold(d);
    release(barriers, last);
  }
  __device__ static void release(B& barriers, int stage) {
    if (threadIdx.x % 32 == 0) barrier_arrive(&barriers.empty[stage]);  // this warp has read it
  }
  // Waits for b, and gives warpgroup 0 the first turn.
  __device__ static void begin_turns(B& barriers) {
    barrier_wait(&barriers.b, 0);
    if (threadIdx.x / 128 == warpgroups - 1) named_barrier_arrive(4, 256);
  }

  // ---- A warp's boxes ----

  __device__ static char* boxes_of(char* shared, int warp) { return shared + L::boxes_at + warp * 2 * box_bytes; }
  // Where this lane's 16-byte row of the 8 x 8 matrices j and j + 1 is in its warp's box.
  __device__ static char* matrices(char* box, int j) {
    const int lane = threadIdx.x % 32, row = lane % 16;
    return box + row * 128 + (((j + lane / 16) ^ (row % 8)) << 4);
  }
  __device__ static void load_box(char* box, std::uint32_t (&packed)[16]) {
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      std::uint32_t r[4];
      load_matrices(r, matrices(box, j));
#pragma unroll
      for (int i = 0; i < 4; ++i) packed[2 * j + i] = r[i];
    }
  }
  __device__ static void fill_box(char* box, const std::uint32_t (&packed)[16]) {
#pragma unroll
    for (int j = 0; j < 8; j += 2)
      store_matrices(matrices(box, j), packed[2 * j], packed[2 * j + 1], packed[2 * j + 2], packed[2 * j + 3]);
  }
  // Waits until the previous stores have read the boxes, but not before `next` is computed.
  __device__ static void empty_boxes(const std::uint32_t (&next)[16]) {
    std::uint32_t any = 0;
#pragma unroll
    for (const std::uint32_t two : next) any |= two;
    if (threadIdx.x % 32 == 0) store_wait_after(any);
    __syncwarp();
  }
  // Stores both boxes as this warp's part of a tile.
  __device__ static void store_boxes(const CUtensorMap* map, char* boxes, int panel, std::int32_t tile, int warp) {
    proxy_fence();
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
#pragma unroll
    for (int q = 0; q < 2; ++q) tma_store(map, place(panel, tile, q, warp), boxes + q * box_bytes);
    store_commit();
  }
  // A warp's part of half q of a tile.
  __device__ static Coordinates place(int panel, std::int32_t tile, int q, int warp) {
    return matrix_coordinates(panel * panel_columns + q * half, tile * tile_rows + warp % 4 * box_rows);
  }
};

// c = a b, and the blocks that compute it.
struct PanelProduct {
  CUtensorMap a, b, c;          // boxes of a and b: 64 x 64; of c: 16 x 64
  std::int32_t tiles, steps;    // tiles of rows, steps of 64 in depth
  std::int32_t panels, groups;  // blocks: panels x groups, and group g takes the tiles g, g + groups, ...
  const std::uint16_t* bias;    // or null
};

// A block of a product. `K` is what differs between kernels: K::P is a Panel and K::Control an EpilogueControl. With
// K::prefetches the blocks of a group, which read the same rows at once and whose rings are short, together prefetch
// rows into the second-level cache. The consumers run K::multiply_tiles.
template <class K, class Problem>
__device__ void run_block(const Problem& p) {
  using P = typename K::P;
  extern __shared__ char memory[];
  char* const shared = memory + bytes_to_tile(memory);
  auto& control = *reinterpret_cast<typename K::Control*>(shared + P::L::control_at);
  const int panel = static_cast<int>(blockIdx.x) % p.panels, group = static_cast<int>(blockIdx.x) / p.panels;
  control.take_bias(p.bias, panel);
  P::init(control);
  const auto produce = [&] {
    P::load_panel(p.b, shared, control, p.steps, panel);
    RingSlot slot{0, 1};
    for (std::int32_t t = group; t < p.tiles; t += p.groups) {
      for (int k = panel; K::prefetches && k < p.steps; k += p.panels)
        tma_prefetch(&p.a, matrix_coordinates(k * half, (t + tiles_ahead * p.groups) * tile_rows));
      P::load_tile(p.a, shared, control, p.steps, t, slot);
    }
  };
  P::run_roles(control, produce, [&] { K::multiply_tiles(p, shared, control, panel, group); });
}

}  // namespace longstride::kernels::cuda::panels
