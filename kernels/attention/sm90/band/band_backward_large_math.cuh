// Shared by the backward kernels of a band for heads larger than 32: a block's share, the loads of a tile, the weights
// of a pair of tiles, and the stores of gradients from registers.
#pragma once
#include <cstdint>

#include "kernels/attention/sm90/band/band_backward_math.cuh"

namespace longstride::kernels::cuda::sm90 {

struct BandBackwardLargeTask : BandBackwardTask {
  // Consecutive blocks have neighbouring heads, then neighbouring classes, because their rows are neighbours in
  // memory.
  __device__ bool find(const BandBackwardProblem& problem) {
    std::uint32_t index = blockIdx.x;
    const auto heads = static_cast<std::uint32_t>(problem.heads), classes = static_cast<std::uint32_t>(problem.classes);
    head = static_cast<std::int32_t>(index % heads);
    index /= heads;
    residue = static_cast<std::int32_t>(index % classes);
    begin = static_cast<std::int32_t>(index / classes) * problem.run;
    sequence = static_cast<std::int32_t>(blockIdx.y);
    const bool natural = problem.set.run >= problem.set.period;
    base = problem.set.base + residue;
    step = natural ? 1 : problem.set.period;
    length = natural ? problem.set.length : (problem.n - base + step - 1) / step;
    end = min(begin + problem.run, (length + band_rows - 1) / band_rows);
    return begin < end;
  }
};

template <class T, int KeySize, int ValueSize>
struct BandBackwardLargeMath : BandBackward<T, KeySize, ValueSize, BandBackwardProblem> {
  using Common = BandBackward<T, KeySize, ValueSize, BandBackwardProblem>;
  using Common::key_boxes, Common::value_boxes, Common::key_bytes, Common::tile_bytes;
  using Common::problem, Common::lane, Common::warp;
  using Common::rows, Common::key_row, Common::value_row;
  using typename Common::Seen, typename Common::Statistics;

  const BandBackwardLargeTask& task;

  __device__ BandBackwardLargeMath(const BandBackwardProblem& p, const BandBackwardLargeTask& t, char* memory,
                                   int thread_of_warpgroup = this_thread())
      : Common(p, memory, thread_of_warpgroup), task(t) {}

  // ---- Loads, by one thread ----

  // The corner of a box, from one of the tile's rows on.
  __device__ Coordinates corner(std::int32_t tile, int box, int from_row = 0) const {
    const bool natural = task.step == 1 && problem.classes == 1;
    const std::int32_t entry = tile * rows + from_row;
    return {{box * 64, task.head, natural ? task.base + entry : task.base, natural ? 0 : entry, task.sequence}};
  }
  __device__ const CUtensorMap* map_of(const RowMaps& maps) const {
    return task.base < maps.rest ? &maps.longer : &maps.complete;
  }
  __device__ void load(char* to, const RowMaps& key_sized, const RowMaps& value_sized, std::int32_t tile,
                       std::uint64_t* barrier) const {
    barrier_arrive_expect(barrier, tile_bytes);
    for (int i = 0; i < key_boxes; ++i) tma_load(to + i * rows * key_row, map_of(key_sized), corner(tile, i), barrier);
    for (int i = 0; i < value_boxes; ++i)
      tma_load(to + key_bytes + i * rows * value_row, map_of(value_sized), corner(tile, i), barrier);
  }

  // ---- Weights ----

  // Turns S into P. The kernel with a server rounds afterwards, which is faster there.
  template <bool Full>
  __device__ void weigh(float (&s)[rows / 2], float rate, const Statistics& of, const Seen& seen,
                        std::int32_t begin) const {
    weigh_groups<Full>(s, rate, of, seen, begin, [](int) {});
  }
  // The same, and P into the product's operand: here, as the roundings fill gaps between exponentials, and after a
  // branch they would not.
  template <bool Full>
  __device__ void weigh_and_pack(float (&s)[rows / 2], std::uint32_t (&weights)[4][4], float rate, const Statistics& of,
                                 const Seen& seen, std::int32_t begin) const {
    weigh_groups<Full>(s, rate, of, seen, begin, [&](int k) { pack_operand<T>(weights[k], s, k); });
  }
  // With and_then(k) after the queries 16 k to 16 k + 15.
  template <bool Full, class AndThen>
  __device__ void weigh_groups(float (&s)[rows / 2], float rate, const Statistics& of, const Seen& seen,
                               std::int32_t begin, const AndThen& and_then) const {
    const int column = 2 * (lane % 4);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if constexpr (!Full) {  // sixteen queries: none sees the warp's keys, each sees all of them, or mixed
        const std::int32_t from = begin + 16 * k;
        if (seen.first >= from + 16 || seen.last_end <= from) {
#pragma unroll
          for (int i = 8 * k; i < 8 * k + 8; ++i) s[i] = 0;
          and_then(k);
          continue;
        }
        if (seen.first + 15 > from || seen.first_end < from + 16) {
#pragma unroll
          for (int i = 8 * k; i < 8 * k + 8; ++i) {
            const int r = i / 2 % 2, at = i / 4 * 8 + i % 2;
            if (at < seen.first + lane / 4 + 8 * r - begin - column || at >= seen.end[r] - begin - column)
              s[i] = -__builtin_huge_valf();
          }
        }
      }
#pragma unroll
      for (int j = 2 * k; j < 2 * k + 2; ++j) {
        const float2 shift = *reinterpret_cast<const float2*>(of.shift + 8 * j + column);
#pragma unroll
        for (int i = 4 * j; i < 4 * j + 4; ++i) s[i] = exp2_approx(fmaf(s[i], rate, i % 2 == 0 ? shift.x : shift.y));
      }
      and_then(k);
    }
  }
  // Turns dP into dS.
  __device__ void differentiate(float (&dp)[rows / 2], const float (&p)[rows / 2], const Statistics& of) const {
    const int column = 2 * (lane % 4);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 delta = *reinterpret_cast<const float2*>(of.delta + 8 * j + column);
#pragma unroll
      for (int i = 4 * j; i < 4 * j + 4; ++i) dp[i] = p[i] * (dp[i] - (i % 2 == 0 ? delta.x : delta.y));
    }
  }
  // Turns P into dS, both as left operands.
  __device__ void differentiate_packed(std::uint32_t (&p)[4][4], const float (&dp)[rows / 2],
                                       const Statistics& of) const {
    const int column = 2 * (lane % 4);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 delta = *reinterpret_cast<const float2*>(of.delta + 8 * j + column);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        std::uint32_t& pair = p[j / 2][j % 2 * 2 + r];
        const float2 weight = unpack<T>(pair);
        const int at = element_at(j, r);
        pair = pack<T>(weight.x * (dp[at] - delta.x), weight.y * (dp[at + 1] - delta.y));
      }
    }
  }
  __device__ static void pack_weights(std::uint32_t (&a)[4][4], const float (&d)[rows / 2]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) pack_operand<T>(a[i], d, i);
  }
  // ---- Gradients ----

  __device__ T* row_of(const Gradient& gradient, std::int64_t position) const {
    return static_cast<T*>(gradient.data) + task.sequence * gradient.stride[0] + task.head * gradient.stride[2] +
           position * gradient.stride[1];
  }
  // The thread's row r of two.
  template <int Size>
  __device__ void store_row(const Gradient& gradient, T* row, bool there, const float (&values)[Size / 2], float factor,
                            int r) const {
#pragma unroll
    for (int g = 0; g < Size / 32; ++g) {
      const std::int32_t column = 32 * g + lane % 4 * 8;
      std::uint32_t v[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* d = values + element_at(4 * g + i, r);
        v[i] = pack<T>(d[0] * factor, d[1] * factor);
      }
      transpose_quad(v);
      if (there && column < gradient.size) *reinterpret_cast<uint4*>(row + column) = {v[0], v[1], v[2], v[3]};
    }
  }
  template <int Size>
  __device__ void store(const Gradient& gradient, std::int32_t tile, const float (&values)[Size / 2],
                        float factor) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const std::int32_t entry = tile * rows + warp * 16 + lane / 4 + 8 * r;
      const bool there = entry < task.length;
      store_row<Size>(gradient, row_of(gradient, there ? task.position(entry) : 0), there, values, factor, r);
    }
  }
};

}  // namespace longstride::kernels::cuda::sm90
