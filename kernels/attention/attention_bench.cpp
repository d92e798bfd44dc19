// Attention over the paper's patterns, with q, k and v as slices of one array, as in a layer. The counter `flops`
// counts allowed pairs only (4 x key size per pair forward, 10 x backward), as the paper does: time spent on masked
// pairs shows as a lower rate.
#include "kernels/attention/attention.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>

#include "kernels/base/bench_array.h"

namespace longstride::kernels {
namespace {

enum Case : std::int64_t { fixed, strided, local, column, dense };

PatternConfig pattern_of(std::int64_t which, std::int64_t stride) {
  PatternConfig p;
  p.integration = Integration::merged;
  p.stride = stride;
  switch (which) {
    case fixed:
      p.parts = {PartKind::fixed_block, PartKind::fixed_summary};
      p.summary = {stride / 4};
      break;
    case strided:
      p.parts = {PartKind::local, PartKind::column};
      break;
    case local:
      p.parts = {PartKind::local};
      break;
    case column:
      p.parts = {PartKind::column};
      break;
    default:
      p.parts = {PartKind::dense};
  }
  return p;
}

// The tensors of one call, for state's (pattern, n, stride, heads, size).
struct BenchTensors {
  std::int64_t n, heads, size;
  PatternConfig pattern;
  std::shared_ptr<const AttentionPlan> plan;
  BenchArray qkv, gradients, o, dout, lse;
  std::vector<std::byte> memory;
  AttentionArgs forward;
  AttentionBackwardArgs backward;

  explicit BenchTensors(const benchmark::State& state)
      : n(state.range(1)),
        heads(state.range(3)),
        size(state.range(4)),
        pattern(pattern_of(state.range(0), state.range(2))),
        plan(make_plan(pattern, 0, heads, n)),
        qkv(n, 3 * heads * size),
        gradients(n, 3 * heads * size),
        o(n, heads * size),
        dout(n, heads * size),
        lse(heads, n) {
    const Tensor lse_view(lse.data(), Dtype::f32, {1, heads, n});
    forward = {plan.get(), slice(qkv, 0), slice(qkv, 1), slice(qkv, 2), slice(o, 0), lse_view, 0.2};
    backward = {plan.get(),     forward.q,           forward.k,           forward.v,           forward.o, lse_view,
                slice(dout, 0), slice(gradients, 0), slice(gradients, 1), slice(gradients, 2), 0.2};
    memory.resize(std::max(forward.scratch_on(Device::cpu).bytes(), backward.scratch_on(Device::cpu).bytes()) + 64);
    const std::size_t past = reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
    forward.scratch = backward.scratch = Tensor(memory.data() + 64 - past, Dtype::u8, {std::ssize(memory) - 64});
  }

  // Part `which` of a row.
  Tensor slice(BenchArray& x, std::int64_t which) const {
    const std::int64_t width = heads * size;
    return x.matrix().slice(1, which * width, (which + 1) * width).split_last(heads, size);
  }

  void count(benchmark::State& state, double per_pair) const {
    const auto pairs = static_cast<double>(heads * allowed_pairs(pattern, 0, heads, 0, n));
    state.counters["flops"] =
        benchmark::Counter(per_pair * pairs * static_cast<double>(size), benchmark::Counter::kIsIterationInvariantRate);
  }
};

void attention_forward(benchmark::State& state) {
  BenchTensors p(state);
  for (auto _ : state) cpu::attention(p.forward, {});
  p.count(state, 4);
}

void attention_backward(benchmark::State& state) {
  BenchTensors p(state);
  cpu::attention(p.forward, {});
  for (auto _ : state) cpu::attention_backward(p.backward, {});
  p.count(state, 10);
}

void attention_plan(benchmark::State& state) {
  const PatternConfig pattern = pattern_of(state.range(0), state.range(2));
  for (auto _ : state) benchmark::DoNotOptimize(make_plan(pattern, 0, state.range(3), state.range(1)));
}

void shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"pattern", "n", "stride", "heads", "size"})
      ->Args({fixed, 2048, 128, 8, 16})
      ->Args({fixed, 2048, 128, 4, 32})
      ->Args({fixed, 12288, 128, 2, 64})
      ->Args({strided, 4096, 64, 4, 32})
      ->Args({local, 3072, 96, 2, 64})
      ->Args({column, 3072, 96, 2, 64})
      ->Args({dense, 3072, 96, 2, 64})
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

BENCHMARK(attention_forward)->Apply(shapes);
BENCHMARK(attention_backward)->Apply(shapes);
BENCHMARK(attention_plan)
    ->ArgNames({"pattern", "n", "stride", "heads"})
    ->Args({strided, 1 << 20, 1024, 16})
    ->Args({fixed, 1 << 20, 1024, 16})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace longstride::kernels
