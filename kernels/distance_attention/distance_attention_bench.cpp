// Transformer-XL's attention of a segment to itself and its memory. The counter `flops` counts the operations of Cost.
#include "kernels/distance_attention/distance_attention.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "kernels/base/bench_array.h"

namespace longstride::kernels {
namespace {

// The tensors of one call, for state's (queries, keys, heads, size).
struct BenchTensors {
  std::int64_t n_q, n_k, heads, size;
  BenchArray q, k, v, o, dout, dq, dk, dv, table, dtable, biases, lse;
  std::vector<std::byte> memory;
  DistanceAttentionArgs forward;
  DistanceAttentionBackwardArgs backward;

  explicit BenchTensors(const benchmark::State& state)
      : n_q(state.range(0)),
        n_k(state.range(1)),
        heads(state.range(2)),
        size(state.range(3)),
        q(n_q, heads * size),
        k(n_k, heads * size),
        v(n_k, heads * size),
        o(n_q, heads * size),
        dout(n_q, heads * size),
        dq(n_q, heads * size),
        dk(n_k, heads * size),
        dv(n_k, heads * size),
        table(n_k, heads * size),
        dtable(n_k, heads * size),
        biases(4, heads * size),
        lse(heads, n_q) {
    const auto bias = [&](std::int64_t row) {
      return Tensor(biases.data() + row * heads * size, Dtype::f32, {heads, size});
    };
    const auto distances = [&](BenchArray& x) { return Tensor(x.data(), Dtype::f32, {n_k, heads, size}); };
    DistanceScores scores{.q = rows(q), .k = rows(k)};
    scores.table = distances(table);
    scores.content_bias = bias(0);
    scores.position_bias = bias(1);
    scores.scale = 0.125;
    const Tensor lse_view(lse.data(), Dtype::f32, {1, heads, n_q});
    forward = {scores, rows(v), rows(o), lse_view};
    backward = {scores, rows(v), rows(o), lse_view, rows(dout), rows(dq), rows(dk), rows(dv)};
    backward.dtable = distances(dtable);
    backward.dcontent_bias = bias(2);
    backward.dposition_bias = bias(3);
    memory.resize(std::max(forward.scratch_on(Device::cpu).bytes(), backward.scratch_on(Device::cpu).bytes()) + 64);
    const std::size_t past = reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
    forward.scratch = backward.scratch = Tensor(memory.data() + 64 - past, Dtype::u8, {std::ssize(memory) - 64});
  }

  Tensor rows(BenchArray& x) const {
    const Tensor m = x.matrix();
    return {m.data(), m.dtype(), {1, m.size(0), heads, size}};
  }
};

template <class Args>
void count(benchmark::State& state, const Args& args) {
  state.counters["flops"] = benchmark::Counter(args.cost().operations, benchmark::Counter::kIsIterationInvariantRate);
}

void distance_attention_forward(benchmark::State& state) {
  BenchTensors p(state);
  for (auto _ : state) cpu::distance_attention(p.forward, {});
  count(state, p.forward);
}

void distance_attention_backward(benchmark::State& state) {
  BenchTensors p(state);
  cpu::distance_attention(p.forward, {});
  for (auto _ : state) cpu::distance_attention_backward(p.backward, {});
  count(state, p.backward);
}

void shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"queries", "keys", "heads", "size"})
      ->Args({64, 128, 4, 16})
      ->Args({512, 1024, 8, 64})
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

BENCHMARK(distance_attention_forward)->Apply(shapes);
BENCHMARK(distance_attention_backward)->Apply(shapes);

}  // namespace
}  // namespace longstride::kernels
