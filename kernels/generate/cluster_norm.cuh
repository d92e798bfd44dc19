// The norm of the residual streams of a cluster's sequences by all warps of a block, an element a thread.
#pragma once
#include "kernels/generate/cluster.cuh"
#include "kernels/generate/cluster_ptx.cuh"

namespace longstride::kernels::cuda::generation {

// What a block's warps find of a sequence: the sums of an element's distance from the first one, and of its square. One
// pass finds both, and of the values themselves the square of the mean would swallow the variance.
struct alignas(8) NormPart {
  float sum, square;
};

// This thread's element of every sequence's stream.
class Normaliser {
 public:
  // Reads what does not wait for the other blocks. norm: gain and bias, (2, width).
  __device__ Normaliser(const float* norm, int width)
      : width_(width), mine_(static_cast<int>(threadIdx.x)), real_(mine_ < width) {
    if (!real_) mine_ = 0;
    gain_ = norm[mine_];
    bias_ = norm[width + mine_];
  }

  // stream (count, width) += delta, where there is one; every warp's part of the sums goes to `parts`, (count, warps).
  template <class T>
  __device__ void add(float* stream, const T* delta, int count, NormPart* parts) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int s = 0; s < most_cluster_sequences; ++s) {
      if (s >= count) break;
      x_[s] = stream[s * width_ + mine_];
      origin_[s] = stream[s * width_];
      if (delta != nullptr) {
        x_[s] += to_float(delta[s * width_ + mine_]);
        origin_[s] += to_float(delta[s * width_]);
      }
      const float distance = real_ ? x_[s] - origin_[s] : 0.0f;
      const float sum = warp_sum(distance), square = warp_sum(distance * distance);
      if (lane == 0) parts[s * cluster_warps + warp] = {sum, square};
    }
  }

  // After a barrier of the warps: keeps the streams, and normed (count, pitch) = norm(stream), in the order in which
  // products read vectors: of four words the second and the third are swapped (multiply_block).
  template <class T>
  __device__ void finish(float* stream, float share_of_width, const NormPart* parts, int count, T* normed,
                         int pitch) const {
    if (!real_) return;
    const int e = mine_ % 8, place = mine_ - e + e / 2 % 2 * 4 + e / 4 * 2 + e % 2;
#pragma unroll
    for (int s = 0; s < most_cluster_sequences; ++s) {
      if (s >= count) break;
      float sums[2] = {}, squares[2] = {};
#pragma unroll
      for (int w = 0; w < cluster_warps; w += 2) {
        const float4 two = *reinterpret_cast<const float4*>(parts + s * cluster_warps + w);
        sums[0] += two.x, squares[0] += two.y, sums[1] += two.z, squares[1] += two.w;
      }
      const float offset = (sums[0] + sums[1]) * share_of_width, square = (squares[0] + squares[1]) * share_of_width;
      const float rstd = rsqrtf(fmaxf(square - offset * offset, 0.0f) + 1e-5f);
      stream[s * width_ + mine_] = x_[s];
      normed[s * pitch + place] = from_float<T>((x_[s] - (origin_[s] + offset)) * rstd * gain_ + bias_);
    }
  }

 private:
  int width_, mine_;
  bool real_;
  float gain_, bias_, x_[most_cluster_sequences], origin_[most_cluster_sequences];
};

}  // namespace longstride::kernels::cuda::generation
