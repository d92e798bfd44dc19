// Shared by the passes of the scan on the CPU: a chunk of one head's rows, and one position of the recurrence.
//
// A state is kept with *key channels in the lanes*, a row per column of S, so that all products but two dots per column
// are of whole vectors. Columns never mix in the recurrence, and rows of four of them are advanced together.
#pragma once
#include "kernels/attention/cpu/tiles.h"
#include "kernels/scan/scan.h"

namespace longstride::kernels::cpu {

inline constexpr std::int64_t together = 4;  // columns

template <class T>
struct ScanSizes {
  std::int64_t n, heads, units, key_size, value_size, columns, ld, width;  // a unit is a head of a sequence

  template <class Args>
  explicit ScanSizes(const Args& args)
      : n(args.q.size(1)),
        heads(args.q.size(2)),
        units(args.q.size(0) * heads),
        key_size(args.q.size(3)),
        value_size(args.v.size(3)),
        columns(value_size + (args.denominator.given() ? 1 : 0)),
        ld(padded<T>(key_size)),
        width(args.direction == Direction::both ? padded<T>(columns) : (columns + together - 1) / together * together) {
  }

  // Columns of a unit are divided among tasks if there are fewer units than threads.
  std::int64_t columns_of_task() const {
    const std::int64_t tasks = std::min(width / together, (omp_get_max_threads() + units - 1) / units);
    return (width / together + tasks - 1) / tasks * together;
  }
  bool takes_threads() const { return units * n * key_size * width > 65536; }  // else waking them takes longer
  std::int64_t rows_of(std::int64_t chunk) const { return std::min(scan_chunk, n - chunk * scan_chunk); }
};

// The rows of a chunk, with zeros behind them: keys up to whole vectors, values up to whole groups of columns.
template <class T>
struct ScanChunk {
  const ScanSizes<T>& size;
  T *q, *k, *a;  // (rows, ld)
  T *v, *dout;   // (rows, width): of the sums, before the division; a normalised head's last column is z's
  T* beta;       // (rows)

  ScanChunk(const ScanSizes<T>& sizes, Carver& carver) : size(sizes) {
    for (T** to : {&q, &k, &a}) *to = carver.take<T>(scan_chunk * size.ld);
    for (T** to : {&v, &dout}) *to = carver.take<T>(scan_chunk * size.width);
    beta = carver.take<T>(scan_chunk);
  }

  template <class Args>
  void gather(const Args& args, std::int64_t unit, std::int64_t first, std::int64_t rows) const {
    const std::int64_t s = unit / size.heads, h = unit % size.heads;
    const auto copy = [](const HeadRows<const T>& from, std::int64_t position, T* to, std::int64_t width) {
      std::fill(std::copy_n(from.at(position), from.size, to), to + width, T(0));
    };
    const auto of_q = rows_of<const T>(args.q, s, h), of_k = rows_of<const T>(args.k, s, h),
               of_v = rows_of<const T>(args.v, s, h);
    for (std::int64_t t = 0; t < rows; ++t) {
      copy(of_q, first + t, q + t * size.ld, size.ld);
      copy(of_k, first + t, k + t * size.ld, size.ld);
      copy(of_v, first + t, v + t * size.width, size.width);
      if (size.columns > size.value_size) v[t * size.width + size.value_size] = 1;
      set_decay(args, s, h, first + t, a + t * size.ld);
      if (args.beta.given()) beta[t] = args.beta.template as<const T>()[(s * size.n + first + t) * size.heads + h];
    }
  }

  void gather_dout(const ScanBackwardArgs& args, std::int64_t unit, std::int64_t first, std::int64_t rows) const {
    const auto of_dout = rows_of<const T>(args.dout, unit / size.heads, unit % size.heads);
    for (std::int64_t t = 0; t < rows; ++t) {
      T* to = dout + t * size.width;
      std::fill(std::copy_n(of_dout.at(first + t), size.value_size, to), to + size.width, T(0));
      if (size.columns == size.value_size) continue;
      const T below = args.denominator.as<const T>()[unit * size.n + first + t];
      const auto of_o = rows_of<const T>(args.o, unit / size.heads, unit % size.heads);
      const T factor = below != 0 ? 1 / below : T(0);
      to[size.value_size] = -factor * dot(to, of_o.at(first + t), size.value_size);
      for (std::int64_t j = 0; j < size.value_size; ++j) to[j] *= factor;
    }
  }

 private:
  // 0 where a group begins.
  template <class Args>
  void set_decay(const Args& args, std::int64_t s, std::int64_t h, std::int64_t position, T* to) const {
    std::fill_n(to, size.ld, T(0));
    const bool clears = position > 0 && args.begin.given() &&
                        args.begin.template as<const std::int32_t>()[s * size.n + position] == position;
    if (clears) return;
    const std::int64_t at = (s * size.n + position) * size.heads + h;
    const T* decay = args.decay.template as<const T>();
    if (args.decay.rank() == 4)
      for (std::int64_t i = 0; i < size.key_size; ++i) to[i] = exp_of(decay[at * size.key_size + i]);
    else
      std::fill_n(to, size.key_size, args.decay.given() ? exp_of(decay[at]) : T(1));
  }
};

// Rows of a chunk back to those of a head.
template <class T>
inline void scatter(const T* from, std::int64_t ld, const HeadRows<T>& to, std::int64_t first, std::int64_t rows) {
  for (std::int64_t t = 0; t < rows; ++t) std::copy_n(from + t * ld, to.size, to.at(first + t));
}

// Columns [first, first + count) of the state at `unit` of a tensor (..., key size, columns), and of a state in rows.
template <class T, class F>
inline void each_of_state(const ScanSizes<T>& size, const Tensor& states, std::int64_t unit, std::int64_t first,
                          std::int64_t count, T* rows, F&& f) {
  T* from = states.as<T>() + unit * size.key_size * size.columns;
  for (std::int64_t i = 0; i < size.key_size; ++i)
    for (std::int64_t j = first; j < std::min(size.columns, first + count); ++j)
      f(from[i * size.columns + j], rows[(j - first) * size.ld + i]);
}
template <class T>
inline void read_state(const ScanSizes<T>& size, const Tensor& states, std::int64_t unit, std::int64_t first,
                       std::int64_t count, T* rows) {
  std::fill_n(rows, count * size.ld, T(0));
  if (states.given()) each_of_state(size, states, unit, first, count, rows, [](T& s, T& row) { row = s; });
}
template <class T>
inline void write_state(const ScanSizes<T>& size, const Tensor& states, std::int64_t unit, std::int64_t first,
                        std::int64_t count, T* rows) {
  if (states.given()) each_of_state(size, states, unit, first, count, rows, [](T& s, T& row) { s = row; });
}

// The lanes added in halves: one after the other, each addition would wait for the one before.
template <class T, int bytes = vector_bytes, class V>
inline T sum_of(V x) {
  if constexpr (bytes == 2 * sizeof(T)) {
    return x[0] + x[1];
  } else {
    typedef T Half __attribute__((vector_size(bytes / 2)));
    Half low, high;
    std::memcpy(&low, &x, bytes / 2);
    std::memcpy(&high, reinterpret_cast<const std::byte*>(&x) + bytes / 2, bytes / 2);
    return sum_of<T, bytes / 2>(low + high);
  }
}

// to = R + k u^T with R = a from, for `together` columns; `to` may be `from`. error = v - R^T k where it is delta.
// Returns u and, in `out`, to^T q where it is asked for.
template <bool delta, bool with_output, class T>
inline void advance(const ScanChunk<T>& chunk, std::int64_t t, std::int64_t column, const T* from, T* to, T* error,
                    T* out) {
  constexpr std::int64_t w = lanes_of<T>;
  const std::int64_t ld = chunk.size.ld;
  const T *q = chunk.q + t * ld, *k = chunk.k + t * ld, *a = chunk.a + t * ld;
  Vector<T> sum[together] = {};
  if constexpr (delta)
    for (std::int64_t i = 0; i < ld; i += w) {
      const Vector<T> decay = load(a + i), key = load(k + i);
      for (std::int64_t r = 0; r < together; ++r) sum[r] += decay * load(from + r * ld + i) * key;
    }
  T u[together];
  for (std::int64_t r = 0; r < together; ++r) {
    error[r] = chunk.v[t * chunk.size.width + column + r] - (delta ? sum_of<T>(sum[r]) : T(0));
    u[r] = delta ? chunk.beta[t] * error[r] : error[r];
    sum[r] = Vector<T>{};
  }
  for (std::int64_t i = 0; i < ld; i += w) {
    const Vector<T> decay = load(a + i), key = load(k + i), query = load(q + i);
    for (std::int64_t r = 0; r < together; ++r) {
      const Vector<T> next = decay * load(from + r * ld + i) + key * u[r];
      store(to + r * ld + i, next);
      if constexpr (with_output) sum[r] += query * next;
    }
  }
  if constexpr (with_output)
    for (std::int64_t r = 0; r < together; ++r) out[r] = sum_of<T>(sum[r]);
}

}  // namespace longstride::kernels::cpu
