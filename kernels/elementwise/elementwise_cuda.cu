#include "kernels/base/block_sum.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/elementwise/elementwise.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256;

// Calls f(first, count) on packs of n elements, the last of which may be short.
template <int n, class F>
__device__ __forceinline__ void over_packs(std::int64_t count, F&& f) {
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) * n;
  if (first < count) f(first, count - first < n ? static_cast<int>(count - first) : n);
}

template <int n, class From, class To>
__global__ void __launch_bounds__(threads) convert_kernel(const From* from, To* to, std::int64_t count) {
  over_packs<n>(count, [&](std::int64_t i, int here) {
    if (here == n) {
      float x[n];
      load<n>(from + i, x);
      store<n>(to + i, x);
    } else {
      for (int k = 0; k < here; ++k) to[i + k] = from_float<To>(to_float(from[i + k]));
    }
  });
}

template <class T>
__global__ void __launch_bounds__(threads) fill_kernel(T* x, std::int64_t count, float value) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i < count) x[i] = from_float<T>(value);
}

template <int n, class From, class To>
__global__ void __launch_bounds__(threads) add_kernel(const From* from, To* to, std::int64_t count) {
  over_packs<n>(count, [&](std::int64_t i, int here) {
    if (here == n) {
      float x[n], sum[n];
      load<n>(from + i, x);
      load<n>(to + i, sum);
#pragma unroll
      for (int k = 0; k < n; ++k) sum[k] += x[k];
      store<n>(to + i, sum);
    } else {
      for (int k = 0; k < here; ++k) to[i + k] = from_float<To>(to_float(to[i + k]) + to_float(from[i + k]));
    }
  });
}

// Calls f(n, From{}, To{}): n elements at a time as far as both are aligned.
template <class F>
void with_packs(const Tensor& from, const Tensor& to, F&& f) {
  with_gpu_type(from.dtype(), [&](auto from_zero) {
    with_gpu_type(to.dtype(), [&](auto to_zero) {
      constexpr int n = 4;
      if (aligned(from.data(), n * sizeof(from_zero)) && aligned(to.data(), n * sizeof(to_zero)))
        f(std::integral_constant<int, n>{}, from_zero, to_zero);
      else
        f(std::integral_constant<int, 1>{}, from_zero, to_zero);
    });
  });
}

template <int n, class T>
__global__ void __launch_bounds__(threads) sum_chunks(const T* x, std::int64_t count, bool squares, double* partials) {
  const std::int64_t begin = blockIdx.x * SumArgs::chunk;
  const std::int64_t end = begin + SumArgs::chunk < count ? begin + SumArgs::chunk : count;
  double sum = 0;
  const auto take = [&](float value) { sum += squares ? static_cast<double>(value) * value : value; };
#pragma unroll 4
  for (std::int64_t i = begin + threadIdx.x * n; i < end; i += threads * n) {
    if (i + n <= end) {
      float values[n];
      load<n>(x + i, values);
#pragma unroll
      for (int k = 0; k < n; ++k) take(values[k]);
    } else {
      for (std::int64_t k = i; k < end; ++k) take(to_float(x[k]));
    }
  }
  sum = block_sum<threads>(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(threads) sum_of_chunks(const double* partials, std::int64_t chunks, double* total) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < chunks; i += threads) sum += partials[i];
  sum = block_sum<threads>(sum);
  if (threadIdx.x == 0) *total += sum;
}

__global__ void __launch_bounds__(threads) divide_kernel(float* x, std::int64_t count, const double* total) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i < count) x[i] = *total == 0 ? 0.0f : static_cast<float>(static_cast<double>(x[i]) / *total);
}

template <class T, class Rounded>
__global__ void __launch_bounds__(threads)
    clamp_kernel(T* x, Rounded* rounded, std::int64_t count, float low, float high) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= count) return;
  const float before = to_float(x[i]), after = before < low ? low : before > high ? high : before;
  x[i] = from_float<T>(after);
  if (rounded != nullptr) rounded[i] = from_float<Rounded>(after);
}

__global__ void remainder_kernel(const std::int64_t* x, std::int64_t* y, std::int64_t divisor) { *y = *x % divisor; }

}  // namespace

void fill_zero(const FillZeroArgs& args, const Launch& launch) {
  const std::size_t bytes = static_cast<std::size_t>(args.x.count()) * bytes_of(args.x.dtype());
  if (bytes > 0) check(cudaMemsetAsync(args.x.data(), 0, bytes, stream_of(launch)), "cudaMemsetAsync");
}

void fill(const FillArgs& args, const Launch& launch) {
  const std::int64_t count = args.x.count();
  if (count == 0) return;
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    run("fill", fill_kernel<T>, {blocks_for(count, threads), threads}, launch, args.x.as<T>(), count,
        static_cast<float>(args.value));
  });
}

void copy(const CopyArgs& args, const Launch& launch) {
  const std::int64_t count = args.from.count();
  if (count == 0) return;
  if (args.from.dtype() == args.to.dtype()) {
    const std::size_t bytes = static_cast<std::size_t>(count) * bytes_of(args.from.dtype());
    check(cudaMemcpyAsync(args.to.data(), args.from.data(), bytes, cudaMemcpyDeviceToDevice, stream_of(launch)),
          "cudaMemcpyAsync");
    return;
  }
  with_packs(args.from, args.to, [&](auto n, auto from_zero, auto to_zero) {
    using From = decltype(from_zero);
    using To = decltype(to_zero);
    run("convert", convert_kernel<n(), From, To>, {blocks_for(count, threads * n()), threads}, launch,
        args.from.as<const From>(), args.to.as<To>(), count);
  });
}

void add(const AddArgs& args, const Launch& launch) {
  const std::int64_t count = args.from.count();
  if (count == 0) return;
  with_packs(args.from, args.to, [&](auto n, auto from_zero, auto to_zero) {
    using From = decltype(from_zero);
    using To = decltype(to_zero);
    run("add", add_kernel<n(), From, To>, {blocks_for(count, threads * n()), threads}, launch,
        args.from.as<const From>(), args.to.as<To>(), count);
  });
}

void sum(const SumArgs& args, const Launch& launch) {
  const std::int64_t count = args.x.count(), chunks = SumArgs::chunks(count);
  if (count == 0) return;
  double* partials = args.scratch.as<double>();
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    run("sum", aligned(args.x.data(), 16) ? sum_chunks<pack_of<T>, T> : sum_chunks<1, T>,
        {static_cast<unsigned>(chunks), threads}, launch, args.x.as<const T>(), count, args.squares, partials);
  });
  run("sum_of_chunks", sum_of_chunks, {1, threads}, launch, partials, chunks, args.total.as<double>());
}

void divide(const DivideArgs& args, const Launch& launch) {
  const std::int64_t count = args.x.count();
  if (count == 0) return;
  run("divide", divide_kernel, {blocks_for(count, threads), threads}, launch, args.x.as<float>(), count,
      args.total.as<const double>());
}

void clamp(const ClampArgs& args, const Launch& launch) {
  const std::int64_t count = args.x.count();
  if (count == 0) return;
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    with_gpu_type(args.rounded.given() ? args.rounded.dtype() : Dtype::f32, [&](auto rounded_zero) {
      using T = decltype(zero);
      using Rounded = decltype(rounded_zero);
      run("clamp", clamp_kernel<T, Rounded>, {blocks_for(count, threads), threads}, launch, args.x.as<T>(),
          args.rounded.as<Rounded>(), count, static_cast<float>(args.low), static_cast<float>(args.high));
    });
  });
}

void remainder(const RemainderArgs& args, const Launch& launch) {
  run("remainder", remainder_kernel, {1, 1}, launch, args.x.as<const std::int64_t>(), args.y.as<std::int64_t>(),
      args.divisor);
}

}  // namespace longstride::kernels::cuda
