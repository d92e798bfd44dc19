#include <cmath>

#include "kernels/features/feature_rows.cuh"

namespace longstride::kernels::cuda {
namespace {

using namespace scanning;

template <class T>
struct FeatureGradients {
  using Gradient = Strip<slice<T> / 16>;
  const FeatureCall& call;
  const Place place;
  const Weights<T> weights;
  const Keys<T> x{reinterpret_cast<T*>(memory + FeatureMemory<T>::rows_tile)};
  float* const along =
      reinterpret_cast<float*>(memory + FeatureMemory<T>::numbers);  // gradients of |x'|^2 / 2, times x' / x
  const Tile<T, 64> g{reinterpret_cast<T*>(memory + FeatureMemory<T>::other)};

  __device__ explicit FeatureGradients(const FeatureCall& of_call)
      : call(of_call), place(of_call, static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.x)), weights() {}

  __device__ void set_along() {
    const T *phi = place.rows_of<const T>(call.features), *d = place.rows_of<const T>(call.dfeatures);
    const int count = call.kind == FeatureKind::trigonometric ? 2 * call.m : call.m;
    for (int r = this_warp(); r < rows; r += warps) {
      float sum = 0;
      for (int i = this_lane(); i < count && r < place.count; i += warp_threads)
        sum += to_float(phi[r * call.features.row + i]) * to_float(d[r * call.dfeatures.row + i]);
      for (int step = 1; step < warp_threads; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
      const float sign = call.kind == FeatureKind::softmax ? -1.0f : call.kind == FeatureKind::relu ? 0.0f : 1.0f;
      if (this_lane() == 0) along[r] = sign * call.scale * call.scale * sum;
    }
  }
  // The gradient of product i of a row.
  __device__ float of_product(const T* phi, const T* d, int i) const {
    const float p = to_float(phi[i]);
    if (call.kind == FeatureKind::softmax) return call.scale * p * to_float(d[i]);
    if (call.kind == FeatureKind::relu) return p > to_float(from_float<T>(0.001f)) ? call.scale * to_float(d[i]) : 0.0f;
    return call.scale * (to_float(d[call.m + i]) * p - to_float(d[i]) * to_float(phi[call.m + i]));
  }
  __device__ void load_products(int first) {
    const T *phi = place.rows_of<const T>(call.features), *d = place.rows_of<const T>(call.dfeatures);
    for (int i = this_thread(); i < rows * weight_rows; i += threads) {
      const int r = i / weight_rows, c = i % weight_rows;
      const bool there = r < place.count && first + c < call.m;
      g.set(r, c, there ? of_product(phi + r * call.features.row, d + r * call.dfeatures.row, first + c) : 0.0f);
    }
  }
  __device__ void run_all() {
    set_along();
    for (int c = 0; c < call.d; c += slice<T>) {
      const Columns columns = channels_of(call, c, slice<T>);
      Gradient dx;
      dx.clear();
      for (int first = 0; first < call.m; first += weight_rows) {
        __syncthreads();
        load_products(first);
        weights.load(call, place, first, columns);
        if (first == 0) load_rows<T>(x, call.x, place, columns, call.d, call.aligned, nullptr);
        __syncthreads();
        weights.add_back(dx, g, columns.padded);
      }
      dx.each([&](int r, int j, float& e) {
        const int row = this_warp() * 16 + r;
        if (j < columns.padded) e += along[row] * x(row, j);
      });
      store_strip<T>(dx, call.dx, place, columns, call.d, call.aligned);
    }
  }
};

template <class T>
__global__ __launch_bounds__(threads) void gradients_kernel(const FeatureCall call) {
  FeatureGradients<T>(call).run_all();
}

}  // namespace

void features_backward(const FeaturesBackwardArgs& args, const Launch& launch) {
  FeatureCall call(args);
  call.dfeatures = HeadMatrix(args.dfeatures);
  call.dx = HeadMatrix(args.dx);
  call.aligned = rows_on_16_bytes(args.x) && rows_on_16_bytes(args.dx);
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (sizeof(T) == 2)
      if (takes_fragments(call) && rows_on_16_bytes(args.features) && rows_on_16_bytes(args.dfeatures))
        return features_by_tiles<T>(call, FeatureStage::gradients, launch);
    constexpr std::size_t bytes = FeatureMemory<T>::bytes;
    allow_shared(gradients_kernel<T>, bytes);
    run("features backward", gradients_kernel<T>, {call.grid(), threads, bytes}, launch, call);
  });
}

}  // namespace longstride::kernels::cuda
