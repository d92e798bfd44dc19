// Backward, with G_t the gradient of S_t and du_t = G_t^T k_t:
//   G_t = q_t dout_t^T + a_{t+1} (G_{t+1} - k_{t+1} (b_{t+1} du_{t+1})^T)     without the last term but for delta
//   dq_t = S_t dout_t,   dv_t = b_t du_t,   db_t = du_t . (v_t - R_t^T k_t),   dk_t = G_t u_t - R_t (b_t du_t)
//   d log a_t = sum over columns of R_t (G_t - k_t (b_t du_t)^T)
// G needs no S. So a wave of chunks gets its G, column by column; then each chunk has the G behind it and the saved S
// before it, computes its states again, and walks back through them.
#include <numeric>

#include "kernels/scan/scan_both.h"
#include "kernels/scan/scan_rows.h"

namespace longstride::kernels::cpu {
namespace {

constexpr std::int64_t wave = 16;  // chunks whose G are in memory at a time

// A thread's memory.
template <class T>
struct BackwardSpace {
  ScanChunk<T> chunk;
  T* states;        // (scan_chunk + 1, together, ld): before and after every position
  T* g;             // (together, ld)
  T* error;         // (scan_chunk, together)
  T *dq, *dk, *da;  // (scan_chunk, ld); da: of the logarithms
  T *dv, *dbeta;    // (scan_chunk, width) and (scan_chunk)

  BackwardSpace(const ScanSizes<T>& size, Carver& carver) : chunk(size, carver) {
    states = carver.take<T>((scan_chunk + 1) * together * size.ld);
    g = carver.take<T>(together * size.ld);
    error = carver.take<T>(scan_chunk * together);
    for (T** to : {&dq, &dk, &da}) *to = carver.take<T>(scan_chunk * size.ld);
    dv = carver.take<T>(scan_chunk * size.width);
    dbeta = carver.take<T>(scan_chunk);
  }
};

// The call's memory: G of every unit, now and behind each chunk of the wave, and the threads' spaces.
template <class T>
struct BackwardScratch {
  std::int64_t state;
  T *now, *behind;  // (units, width, ld), (units, wave, width, ld)
  std::byte* base;
  std::size_t shared_bytes, thread_bytes;

  BackwardScratch(const ScanSizes<T>& size, std::byte* memory) : state(size.width * size.ld) {
    Carver shared(memory), own(nullptr);
    now = shared.take<T>(size.units * state);
    behind = shared.take<T>(size.units * wave * state);
    BackwardSpace<T>(size, own);
    base = memory;
    shared_bytes = shared.used();
    thread_bytes = own.used();
  }
  std::size_t bytes() const { return shared_bytes + thread_bytes * static_cast<std::size_t>(omp_get_max_threads()); }
  BackwardSpace<T> space(const ScanSizes<T>& size) const {
    Carver carver(base + shared_bytes + static_cast<std::size_t>(omp_get_thread_num()) * thread_bytes);
    return {size, carver};
  }
};

// G += q dout^T at a position, for `together` columns; du = G^T k.
template <class T>
void add_output(const ScanChunk<T>& chunk, std::int64_t t, std::int64_t column, T* g, T* du) {
  constexpr std::int64_t w = lanes_of<T>;
  const std::int64_t ld = chunk.size.ld;
  const T* dout = chunk.dout + t * chunk.size.width + column;
  Vector<T> sum[together] = {};
  for (std::int64_t i = 0; i < ld; i += w) {
    const Vector<T> query = load(chunk.q + t * ld + i), key = load(chunk.k + t * ld + i);
    for (std::int64_t r = 0; r < together; ++r) {
      const Vector<T> next = load(g + r * ld + i) + query * dout[r];
      store(g + r * ld + i, next);
      sum[r] += next * key;
    }
  }
  for (std::int64_t r = 0; r < together; ++r) du[r] = sum_of<T>(sum[r]);
}

// G from that of the state after a position, but for its output, to that of the state before.
template <bool delta, class T>
void step_back(const ScanChunk<T>& chunk, std::int64_t t, std::int64_t column, T* g) {
  const std::int64_t ld = chunk.size.ld;
  T factor[together];
  if constexpr (delta) add_output(chunk, t, column, g, factor);
  for (std::int64_t r = 0; r < together; ++r)
    factor[r] = delta ? -chunk.beta[t] * factor[r] : chunk.dout[t * chunk.size.width + column + r];
  const T* added = (delta ? chunk.k : chunk.q) + t * ld;
  for (std::int64_t i = 0; i < ld; i += lanes_of<T>) {
    const Vector<T> decay = load(chunk.a + t * ld + i), row = load(added + i);
    for (std::int64_t r = 0; r < together; ++r) store(g + r * ld + i, decay * (load(g + r * ld + i) + row * factor[r]));
  }
}

// The same after add_output, with what these columns add to the gradients of the position.
template <bool delta, class T>
void add_gradients(const BackwardSpace<T>& space, std::int64_t t, std::int64_t column, const T* du) {
  const ScanChunk<T>& chunk = space.chunk;
  const std::int64_t ld = chunk.size.ld, at = t * chunk.size.width + column;
  const T *error = space.error + t * together, *before = space.states + t * together * ld,
          *after = before + together * ld;
  T u[together], dv[together];
  for (std::int64_t r = 0; r < together; ++r) {
    const T beta = delta ? chunk.beta[t] : T(1);
    u[r] = beta * error[r];
    space.dv[at + r] = dv[r] = beta * du[r];
    if (delta) space.dbeta[t] += du[r] * error[r];
  }
  for (std::int64_t i = 0; i < ld; i += lanes_of<T>) {
    const std::int64_t x = t * ld + i;
    const Vector<T> decay = load(chunk.a + x), key = load(chunk.k + x);
    Vector<T> dq = load(space.dq + x), dk = load(space.dk + x), da = load(space.da + x);
    for (std::int64_t r = 0; r < together; ++r) {
      Vector<T> g = load(space.g + r * ld + i);
      const Vector<T> decayed = decay * load(before + r * ld + i);
      dq += load(after + r * ld + i) * chunk.dout[at + r];
      dk += g * u[r];
      if constexpr (delta) dk -= decayed * dv[r], g -= key * dv[r];
      da += decayed * g;
      store(space.g + r * ld + i, decay * g);
    }
    store(space.dq + x, dq);
    store(space.dk + x, dk);
    store(space.da + x, da);
  }
}

template <class T>
void write_gradients(const ScanBackwardArgs& args, const BackwardSpace<T>& space, std::int64_t unit, std::int64_t first,
                     std::int64_t rows) {
  const ScanSizes<T>& size = space.chunk.size;
  const std::int64_t s = unit / size.heads, h = unit % size.heads;
  scatter(space.dq, size.ld, rows_of<T>(args.dq, s, h), first, rows);
  scatter(space.dk, size.ld, rows_of<T>(args.dk, s, h), first, rows);
  scatter(space.dv, size.width, rows_of<T>(args.dv, s, h), first, rows);
  for (std::int64_t t = 0; t < rows; ++t) {
    const std::int64_t at = (s * size.n + first + t) * size.heads + h;
    const T* da = space.da + t * size.ld;
    if (args.dbeta.given()) args.dbeta.as<T>()[at] = space.dbeta[t];
    if (args.ddecay.rank() == 3) args.ddecay.as<T>()[at] = std::accumulate(da, da + size.key_size, T(0));
    if (args.ddecay.rank() == 4) std::copy_n(da, size.key_size, args.ddecay.as<T>() + at * size.key_size);
  }
}

template <bool delta, class T>
void chunk_gradients(const ScanBackwardArgs& args, const BackwardSpace<T>& space, const T* behind, std::int64_t unit,
                     std::int64_t chunk) {
  const ScanSizes<T>& size = space.chunk.size;
  const std::int64_t first = chunk * scan_chunk, rows = size.rows_of(chunk), block = together * size.ld;
  space.chunk.gather(args, unit, first, rows);
  space.chunk.gather_dout(args, unit, first, rows);
  for (T* x : {space.dq, space.dk, space.da}) std::fill_n(x, rows * size.ld, T(0));
  std::fill_n(space.dbeta, rows, T(0));
  for (std::int64_t j = 0; j < size.width; j += together) {
    read_state(size, args.chunk_states, unit * scan_chunks(size.n) + chunk, j, together, space.states);
    for (std::int64_t t = 0; t < rows; ++t)
      advance<delta, false>(space.chunk, t, j, space.states + t * block, space.states + (t + 1) * block,
                            space.error + t * together, static_cast<T*>(nullptr));
    std::copy_n(behind + j * size.ld, block, space.g);
    for (std::int64_t t = rows; t-- > 0;) {
      T du[together];
      add_output(space.chunk, t, j, space.g, du);
      add_gradients<delta>(space, t, j, du);
    }
  }
  write_gradients(args, space, unit, first, rows);
}

template <bool delta, class T>
void scan_past_backward(const ScanBackwardArgs& args) {
  const ScanSizes<T> size(args);
  const BackwardScratch<T> scratch(size, args.scratch.as<std::byte>());
  const std::int64_t chunks = scan_chunks(size.n), share = size.columns_of_task(),
                     tasks = (size.width + share - 1) / share;
  for (std::int64_t end = chunks; end > 0; end -= wave) {
    const std::int64_t begin = std::max<std::int64_t>(0, end - wave);
#pragma omp parallel for schedule(dynamic) if (size.takes_threads())
    for (std::int64_t task = 0; task < size.units * tasks; ++task) {
      const BackwardSpace<T> space = scratch.space(size);
      const std::int64_t unit = task / tasks, column = task % tasks * share,
                         count = std::min(share, size.width - column);
      T* g = scratch.now + unit * scratch.state + column * size.ld;
      if (end == chunks) read_state(size, args.dlast_state, unit, column, count, g);
      for (std::int64_t chunk = end; chunk-- > begin;) {
        const std::int64_t rows = size.rows_of(chunk);
        std::copy_n(g, count * size.ld,
                    scratch.behind + (unit * wave + chunk - begin) * scratch.state + column * size.ld);
        space.chunk.gather(args, unit, chunk * scan_chunk, rows);
        space.chunk.gather_dout(args, unit, chunk * scan_chunk, rows);
        for (std::int64_t t = rows; t-- > 0;)
          for (std::int64_t j = 0; j < count; j += together)
            step_back<delta>(space.chunk, t, column + j, g + j * size.ld);
      }
      if (begin == 0) write_state(size, args.dfirst_state, unit, column, count, g);
    }
#pragma omp parallel for schedule(dynamic) collapse(2) if (size.takes_threads())
    for (std::int64_t unit = 0; unit < size.units; ++unit)
      for (std::int64_t chunk = begin; chunk < end; ++chunk)
        chunk_gradients<delta>(args, scratch.space(size),
                               scratch.behind + (unit * wave + chunk - begin) * scratch.state, unit, chunk);
  }
}

}  // namespace

std::size_t scan_scratch_bytes(const ScanBackwardArgs& args) {
  std::size_t bytes = 0;
  with_float_type(args.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const ScanSizes<T> size(args);
    bytes = args.direction == Direction::both ? both_bytes(size) * static_cast<std::size_t>(omp_get_max_threads())
                                              : BackwardScratch<T>(size, nullptr).bytes();
  });
  return bytes;
}

void scan_backward(const ScanBackwardArgs& args, const Launch&) {
  with_float_type(args.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if (args.direction == Direction::both)
      scan_both_backward<T>(args);
    else if (args.form == ScanForm::delta)
      scan_past_backward<true, T>(args);
    else
      scan_past_backward<false, T>(args);
  });
}

}  // namespace longstride::kernels::cpu
