// The sum in both directions on the CPU: every output of a group reads one state, so all is products of matrices,
//   S = K^T V,  O = Q S;   G = Q^T dO,  dQ = dO S^T,  dK = V G^T,  dV = K G.
// Products read a right side by its rows, so states that are transposed there are summed so.
#pragma once
#include "kernels/scan/scan_rows.h"

namespace longstride::kernels::cpu {

// A thread's memory.
template <class T>
struct BothSpace {
  ScanChunk<T> chunk;
  T *state, *gradient;  // (key size, width); backward has (width, ld) of the state
  T* gradient_t;        // (width, ld)
  T* out;               // rows of a chunk

  BothSpace(const ScanSizes<T>& size, Carver& carver)
      : chunk(size, carver),
        state(carver.take<T>(size.ld * size.width)),
        gradient(carver.take<T>(size.ld * size.width)),
        gradient_t(carver.take<T>(size.ld * size.width)),
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

// to (a's columns, b's columns) = a^T b over the rows of a chunk, added to what was there or not.
template <class T>
void add_products(const T* a, std::int64_t lda, std::int64_t columns, const T* b, std::int64_t ldb, std::int64_t rows,
                  bool add, T* to) {
  const Left<T> left{a, 1, lda};
  if (add)
    multiply<Into::sum>(left, b, ldb, to, ldb, columns, ldb, rows);
  else
    multiply<Into::zero>(left, b, ldb, to, ldb, columns, ldb, rows);
}

template <class T>
void scan_both(const ScanArgs& args) {
  const auto sum = [](const BothSpace<T>& space, std::int64_t rows, bool add) {
    const ScanChunk<T>& chunk = space.chunk;
    add_products(chunk.k, chunk.size.ld, chunk.size.key_size, chunk.v, chunk.size.width, rows, add, space.state);
  };
  each_group<T>(args, sum, [&](const BothSpace<T>& space, std::int64_t unit, std::int64_t first, std::int64_t rows) {
    const ScanSizes<T>& size = space.chunk.size;
    multiply<Into::zero, T>({space.chunk.q, size.ld, 1}, space.state, size.width, space.out, size.width, rows,
                            size.width, size.key_size);
    scatter(space.out, size.width, rows_of<T>(args.o, unit / size.heads, unit % size.heads), first, rows);
    if (size.columns == size.value_size) return;
    for (std::int64_t t = 0; t < rows; ++t)
      args.denominator.as<T>()[unit * size.n + first + t] = space.out[t * size.width + size.value_size];
  });
}

template <class T>
void scan_both_backward(const ScanBackwardArgs& args) {
  const auto sum = [](const BothSpace<T>& space, std::int64_t rows, bool add) {
    const ScanChunk<T>& chunk = space.chunk;
    const ScanSizes<T>& size = chunk.size;
    add_products(chunk.v, size.width, size.width, chunk.k, size.ld, rows, add, space.state);
    add_products(chunk.q, size.ld, size.key_size, chunk.dout, size.width, rows, add, space.gradient);
    add_products(chunk.dout, size.width, size.width, chunk.q, size.ld, rows, add, space.gradient_t);
  };
  each_group<T>(args, sum, [&](const BothSpace<T>& space, std::int64_t unit, std::int64_t first, std::int64_t rows) {
    const ScanSizes<T>& size = space.chunk.size;
    // to = a b, with b (depth, ldb)
    const auto write = [&](const T* a, std::int64_t depth, std::int64_t lda, const T* b, std::int64_t ldb,
                           const Tensor& to) {
      multiply<Into::zero, T>({a, lda, 1}, b, ldb, space.out, ldb, rows, ldb, depth);
      scatter(space.out, ldb, rows_of<T>(to, unit / size.heads, unit % size.heads), first, rows);
    };
    write(space.chunk.dout, size.width, size.width, space.state, size.ld, args.dq);
    write(space.chunk.v, size.width, size.width, space.gradient_t, size.ld, args.dk);
    write(space.chunk.k, size.key_size, size.ld, space.gradient, size.width, args.dv);
  });
}

}  // namespace longstride::kernels::cpu
