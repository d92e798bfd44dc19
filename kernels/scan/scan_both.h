// The sum in both directions on the CPU: every output of a group reads one state, so all is products of matrices,
//   S = K^T V,  O = Q S;   G = Q^T dO,  dQ = dO S^T,  dK = V G^T,  dV = K G.
#pragma once
#include "kernels/gemm/blas.h"
#include "kernels/scan/scan_rows.h"

namespace longstride::kernels::cpu {

// A thread's memory.
template <class T>
struct BothSpace {
  ScanChunk<T> chunk;
  T *state, *gradient;  // (key size, width)
  T* out;               // rows of a chunk

  BothSpace(const ScanSizes<T>& size, Carver& carver)
      : chunk(size, carver),
        state(carver.take<T>(size.key_size * size.width)),
        gradient(carver.take<T>(size.key_size * size.width)),
        out(carver.take<T>(scan_chunk * std::max(size.ld, size.width))) {}
};

template <class T>
std::size_t both_bytes(const ScanSizes<T>& size) {
  Carver carver(nullptr);
  BothSpace<T>(size, carver);
  return carver.used();
}

// Calls sum(space, first, rows, begins) with all chunks of a group, then write(space, unit, first, rows).
template <class T, class Args, class Sum, class Write>
void each_group(const Args& args, Sum&& sum, Write&& write) {
  const ScanSizes<T> size(args);
#pragma omp parallel for schedule(dynamic) if (size.takes_threads())
  for (std::int64_t unit = 0; unit < size.units; ++unit) {
    Carver carver(args.scratch.template as<std::byte>() +
                  static_cast<std::size_t>(omp_get_thread_num()) * both_bytes(size));
    const BothSpace<T> space(size, carver);
    const auto begins = [&](std::int64_t position) {
      const std::int64_t at = unit / size.heads * size.n + position;
      return args.begin.given() && args.begin.template as<const std::int32_t>()[at] == position;
    };
    for (std::int64_t first = 0, end = 0; first < size.n; first = end) {
      for (end = first + 1; end < size.n && !begins(end);) ++end;
      const auto each_chunk = [&](auto&& f) {
        for (std::int64_t at = first; at < end; at += scan_chunk) {
          const std::int64_t rows = std::min(scan_chunk, end - at);
          space.chunk.gather(args, unit, at, rows);
          if constexpr (requires { args.dout; }) space.chunk.gather_dout(args, unit, at, rows);
          f(at, rows);
        }
      };
      each_chunk([&](std::int64_t at, std::int64_t rows) { sum(space, rows, at > first); });
      each_chunk([&](std::int64_t at, std::int64_t rows) { write(space, unit, at, rows); });
    }
  }
}

template <class T>
void add_state(const BothSpace<T>& space, std::int64_t rows, bool add) {
  const ScanSizes<T>& size = space.chunk.size;
  multiply<T>(size.key_size, size.width, rows, {space.chunk.k, size.ld, true}, {space.chunk.v, size.width}, add,
              {space.state, size.width});
}

template <class T>
void scan_both(const ScanArgs& args) {
  each_group<T>(args, add_state<T>,
                [&](const BothSpace<T>& space, std::int64_t unit, std::int64_t first, std::int64_t rows) {
                  const ScanSizes<T>& size = space.chunk.size;
                  multiply<T>(rows, size.width, size.key_size, {space.chunk.q, size.ld}, {space.state, size.width},
                              false, {space.out, size.width});
                  scatter(space.out, size.width, rows_of<T>(args.o, unit / size.heads, unit % size.heads), first, rows);
                  if (size.columns == size.value_size) return;
                  for (std::int64_t t = 0; t < rows; ++t)
                    args.denominator.as<T>()[unit * size.n + first + t] = space.out[t * size.width + size.value_size];
                });
}

template <class T>
void scan_both_backward(const ScanBackwardArgs& args) {
  const auto sum = [](const BothSpace<T>& space, std::int64_t rows, bool add) {
    const ScanSizes<T>& size = space.chunk.size;
    add_state(space, rows, add);
    multiply<T>(size.key_size, size.width, rows, {space.chunk.q, size.ld, true}, {space.chunk.dout, size.width}, add,
                {space.gradient, size.width});
  };
  each_group<T>(args, sum, [&](const BothSpace<T>& space, std::int64_t unit, std::int64_t first, std::int64_t rows) {
    const ScanSizes<T>& size = space.chunk.size;
    const auto write = [&](const Tensor& to, std::int64_t ld) {
      scatter(space.out, ld, rows_of<T>(to, unit / size.heads, unit % size.heads), first, rows);
    };
    multiply<T>(rows, size.key_size, size.width, {space.chunk.dout, size.width}, {space.state, size.width, true}, false,
                {space.out, size.ld});
    write(args.dq, size.ld);
    multiply<T>(rows, size.key_size, size.width, {space.chunk.v, size.width}, {space.gradient, size.width, true}, false,
                {space.out, size.ld});
    write(args.dk, size.ld);
    multiply<T>(rows, size.width, size.key_size, {space.chunk.k, size.ld}, {space.gradient, size.width}, false,
                {space.out, size.width});
    write(args.dv, size.width);
  });
}

}  // namespace longstride::kernels::cpu
