#include "kernels/elementwise/elementwise.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/tensor_checks.h"

namespace longstride::kernels {

void FillZeroArgs::check(Device /*device*/) const { check_contiguous(x, "x"); }

void FillArgs::check(Device device) const {
  check_contiguous(x, "x");
  check_computes(device, x, "x");
}

void CopyArgs::check(Device device) const {
  check_contiguous(from, "from");
  const bool converts = device == Device::cuda && computes(device, from.dtype()) && computes(device, to.dtype());
  check_vector(to, from.count(), converts ? to.dtype() : from.dtype(), "to");
}

void AddArgs::check(Device device) const {
  check_contiguous(from, "from");
  check_computes(device, from, "from");
  check_computes(device, to, "to");
  check_vector(to, from.count(), device == Device::cuda ? to.dtype() : from.dtype(), "to");
}

void SumArgs::check(Device device) const {
  check_contiguous(x, "x");
  check_computes(device, x, "x");
  check_vector(total, 1, Dtype::f64, "total");
}

void DivideArgs::check(Device /*device*/) const {
  check_vector(x, x.count(), Dtype::f32, "x");
  check_vector(total, 1, Dtype::f64, "total");
}

void ClampArgs::check(Device device) const {
  check_computes(device, x, "x");
  check_vector(x, x.count(), x.dtype(), "x");
  LONGSTRIDE_CHECK(low <= high, "limits of {} and {}", low, high);
  if (!rounded.given()) return;
  LONGSTRIDE_CHECK(device == Device::cuda, "a rounded copy on the CPU");
  check_computes(device, rounded, "rounded");
  check_vector(rounded, x.count(), rounded.dtype(), "rounded");
}

void RemainderArgs::check(Device /*device*/) const {
  check_vector(x, 1, Dtype::i64, "x");
  check_vector(y, 1, Dtype::i64, "y");
  LONGSTRIDE_CHECK(divisor > 0, "a divisor of {}", divisor);
}

namespace cpu {
namespace {

// Calls f(begin, end) on blocks of [0, n), shared between threads.
template <class F>
void over_blocks(std::int64_t n, F&& f) {
  constexpr std::int64_t block = 16384;
#pragma omp parallel for schedule(static) if (n > block)
  for (std::int64_t begin = 0; begin < n; begin += block) f(begin, std::min(n, begin + block));
}

template <class T>
double sum_chunk(const T* x, std::int64_t n, bool squares) {
  double total = 0;
  if (squares) {
#pragma omp simd reduction(+ : total)
    for (std::int64_t i = 0; i < n; ++i) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  } else {
#pragma omp simd reduction(+ : total)
    for (std::int64_t i = 0; i < n; ++i) total += static_cast<double>(x[i]);
  }
  return total;
}

}  // namespace

void fill_zero(const FillZeroArgs& args, const Launch&) {
  const auto bytes = static_cast<std::int64_t>(bytes_of(args.x.dtype()));
  over_blocks(args.x.count(), [&](std::int64_t begin, std::int64_t end) {
    std::memset(args.x.as<char>() + begin * bytes, 0, static_cast<std::size_t>((end - begin) * bytes));
  });
}

void fill(const FillArgs& args, const Launch&) {
  with_float_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    over_blocks(args.x.count(), [&](std::int64_t begin, std::int64_t end) {
      std::fill(args.x.as<T>() + begin, args.x.as<T>() + end, static_cast<T>(args.value));
    });
  });
}

void copy(const CopyArgs& args, const Launch&) {
  const auto bytes = static_cast<std::int64_t>(bytes_of(args.from.dtype()));
  over_blocks(args.from.count(), [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(args.to.as<char>() + begin * bytes, args.from.as<const char>() + begin * bytes,
                static_cast<std::size_t>((end - begin) * bytes));
  });
}

void add(const AddArgs& args, const Launch&) {
  with_float_type(args.to.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = args.from.as<const T>();
    T* to = args.to.as<T>();
    const std::int64_t n = args.to.count();
#pragma omp parallel for simd schedule(static) if (n > 16384)
    for (std::int64_t i = 0; i < n; ++i) to[i] += from[i];
  });
}

void sum(const SumArgs& args, const Launch&) {
  with_float_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* x = args.x.as<const T>();
    double* partials = args.scratch.as<double>();
    const std::int64_t n = args.x.count(), chunks = SumArgs::chunks(n);
#pragma omp parallel for schedule(static) if (chunks > 1)
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const std::int64_t begin = chunk * SumArgs::chunk;
      partials[chunk] = sum_chunk(x + begin, std::min(SumArgs::chunk, n - begin), args.squares);
    }
    double total = 0;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) total += partials[chunk];
    *args.total.as<double>() += total;
  });
}

void divide(const DivideArgs& args, const Launch&) {
  const double total = *args.total.as<const double>();
  auto* x = args.x.as<float>();
  over_blocks(args.x.count(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      x[i] = total == 0 ? 0.0f : static_cast<float>(static_cast<double>(x[i]) / total);
  });
}

void clamp(const ClampArgs& args, const Launch&) {
  with_float_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* x = args.x.as<T>();
    const T low = static_cast<T>(args.low), high = static_cast<T>(args.high);
    over_blocks(args.x.count(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) x[i] = x[i] < low ? low : x[i] > high ? high : x[i];
    });
  });
}

void remainder(const RemainderArgs& args, const Launch&) {
  *args.y.as<std::int64_t>() = *args.x.as<const std::int64_t>() % args.divisor;
}

}  // namespace cpu
}  // namespace longstride::kernels
