// The norm of one sequence's residual stream by one warp, which holds all of it in registers.
#pragma once
#include "kernels/generate/cluster.cuh"

namespace longstride::kernels::cuda::generation {

class Normaliser {
 public:
  // Reads what does not wait for the other blocks. norm: gain and bias.
  __device__ Normaliser(const float* stream, const float* norm, int width) : width_(width), origin_(stream[0]) {
#pragma unroll
    for (int i = 0; i < most; ++i) {
      load<8>(stream + column(i), x_[i]);
      load<8>(norm + column(i), gain_[i]);
      load<8>(norm + width + column(i), bias_[i]);
    }
  }

  template <class T>
  __device__ void add(const T* delta) {
    origin_ += to_float(delta[0]);
#pragma unroll
    for (int i = 0; i < most; ++i) {
      float more[8];
      load<8>(delta + column(i), more);
#pragma unroll
      for (int e = 0; e < 8; ++e) x_[i][e] += more[e];
    }
  }

  // stream = what was read and added, normed = norm(stream), in the order in which products read vectors: of four words
  // the second and the third are swapped (multiply_block).
  template <class T>
  __device__ void finish(float* stream, float share_of_width, T* normed) {
    // One pass finds both sums, which are of distances from the first value: its square would else swallow the
    // variance.
    float sums[4] = {}, squares[4] = {};
    __syncwarp();
#pragma unroll
    for (int i = 0; i < most; ++i) {
      if (i * 256 >= width_) break;
      store<8>(stream + column(i), x_[i]);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const float distance = x_[i][e] - origin_;
        sums[e % 4] += distance;
        squares[e % 4] += distance * distance;
      }
    }
    const float offset = warp_sum((sums[0] + sums[1]) + (sums[2] + sums[3])) * share_of_width;
    const float square = warp_sum((squares[0] + squares[1]) + (squares[2] + squares[3])) * share_of_width;
    const float mean = origin_ + offset, rstd = rsqrtf(fmaxf(square - offset * offset, 0.0f) + 1e-5f);
#pragma unroll
    for (int i = 0; i < most; ++i) {
      if (i * 256 >= width_) break;
      float y[8];
#pragma unroll
      for (int e = 0; e < 8; ++e)
        y[e / 2 % 2 * 4 + e / 4 * 2 + e % 2] = (x_[i][e] - mean) * rstd * gain_[i][e] + bias_[i][e];
      store<8>(normed + column(i), y);
    }
  }

 private:
  static constexpr int most = most_cluster_width / 256;

  // The last once more rather than none.
  __device__ int column(int i) const { return min(i * 256, width_ - 256) + static_cast<int>(threadIdx.x) % 32 * 8; }

  int width_;
  float origin_;
  float x_[most][8], gain_[most][8], bias_[most][8];
};

}  // namespace longstride::kernels::cuda::generation
