#include "kernels/base/check.h"
#include "kernels/scan/scan_both.h"
#include "kernels/scan/scan_rows.h"

namespace longstride::kernels {
namespace cpu {
namespace {

// A thread's memory.
template <class T>
struct ForwardSpace {
  ScanChunk<T> chunk;
  T* state;  // (width, ld)

  ForwardSpace(const ScanSizes<T>& size, Carver& carver)
      : chunk(size, carver), state(carver.take<T>(size.width * size.ld)) {}
};

template <class T>
std::size_t thread_bytes(const ScanSizes<T>& size) {
  Carver carver(nullptr);
  ForwardSpace<T>(size, carver);
  return carver.used();
}

template <class T>
void check_range(const Tensor& x, T low, T high, const char* what, const char* range) {
  std::int64_t out = -1;
  for (std::int64_t i = 0; x.given() && i < x.count() && out < 0; ++i)
    if (const T at = x.as<const T>()[i]; !(at >= low && at <= high)) out = i;
  LONGSTRIDE_CHECK(out < 0, "the scan's {} is {} at element {}, but must be {}", what, x.as<const T>()[out], out,
                   range);
}

// Outputs of a chunk for columns [first, first + count), as sums.
template <bool delta, class T>
void scan_chunk_rows(const ScanArgs& args, const ForwardSpace<T>& space, std::int64_t unit, std::int64_t chunk,
                     std::int64_t first, std::int64_t count) {
  const ScanSizes<T>& size = space.chunk.size;
  constexpr std::int64_t cached = 1 << 14;  // bytes of a state that stay in the first-level cache
  const std::int64_t block =
      std::max<std::int64_t>(1, cached / (together * size.ld * std::int64_t{sizeof(T)})) * together;
  const auto o = rows_of<T>(args.o, unit / size.heads, unit % size.heads);
  for (std::int64_t from = first; from < first + count; from += block)
    for (std::int64_t t = 0; t < size.rows_of(chunk); ++t)
      for (std::int64_t j = from; j < std::min(from + block, first + count); j += together) {
        T error[together], out[together], *state = space.state + (j - first) * size.ld;
        advance<delta, true>(space.chunk, t, j, state, state, error, out);
        const std::int64_t position = chunk * scan_chunk + t;
        for (std::int64_t r = 0; r < together; ++r)
          if (j + r < size.value_size)
            o.at(position)[j + r] = out[r];
          else if (j + r < size.columns)
            args.denominator.as<T>()[unit * size.n + position] = out[r];
      }
}

template <bool delta, class T>
void scan_past(const ScanArgs& args) {
  const ScanSizes<T> size(args);
  const std::int64_t share = size.columns_of_task(), tasks = (size.width + share - 1) / share;
#pragma omp parallel for schedule(dynamic) if (size.takes_threads())
  for (std::int64_t task = 0; task < size.units * tasks; ++task) {
    Carver carver(args.scratch.as<std::byte>() + static_cast<std::size_t>(omp_get_thread_num()) * thread_bytes(size));
    const ForwardSpace<T> space(size, carver);
    const std::int64_t unit = task / tasks, first = task % tasks * share, count = std::min(share, size.width - first);
    read_state(size, args.first_state, unit, first, count, space.state);
    for (std::int64_t chunk = 0; chunk < scan_chunks(size.n); ++chunk) {
      write_state(size, args.chunk_states, unit * scan_chunks(size.n) + chunk, first, count, space.state);
      space.chunk.gather(args, unit, chunk * scan_chunk, size.rows_of(chunk));
      scan_chunk_rows<delta>(args, space, unit, chunk, first, count);
    }
    write_state(size, args.last_state, unit, first, count, space.state);
  }
}

template <class T>
void normalise(const ScanArgs& args) {
  const ScanSizes<T> size(args);
#pragma omp parallel for schedule(static) if (size.takes_threads())
  for (std::int64_t row = 0; row < size.units * size.n; ++row) {
    const std::int64_t unit = row / size.n;
    const auto o = rows_of<T>(args.o, unit / size.heads, unit % size.heads);
    const T below = args.denominator.as<const T>()[row];
    T* to = o.at(row % size.n);
    for (std::int64_t j = 0; j < size.value_size; ++j) to[j] = below != 0 ? to[j] / below : T(0);
  }
}

}  // namespace

std::size_t scan_scratch_bytes(const ScanArgs& args) {
  std::size_t bytes = 0;
  with_float_type(args.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const ScanSizes<T> size(args);
    bytes = args.direction == Direction::both ? both_bytes(size) : thread_bytes(size);
  });
  return bytes * static_cast<std::size_t>(omp_get_max_threads());
}

void scan(const ScanArgs& args, const Launch&) {
  with_float_type(args.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    check_range<T>(args.decay, -std::numeric_limits<T>::infinity(), 0, "decay", "a logarithm of at most 0");
    check_range<T>(args.beta, 0, 2, "beta", "from 0 to 2");
    if (args.direction == Direction::both)
      scan_both<T>(args);
    else if (args.form == ScanForm::delta)
      scan_past<true, T>(args);
    else
      scan_past<false, T>(args);
    if (args.denominator.given()) normalise<T>(args);
  });
}

}  // namespace cpu
}  // namespace longstride::kernels
