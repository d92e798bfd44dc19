#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"

#include <benchmark/benchmark.h>

#include "kernels/base/bench_array.h"

namespace longstride::kernels {
namespace {

void softmax_cross_entropy(benchmark::State& state) {
  const std::int64_t rows = state.range(0), vocabulary = state.range(1);
  const bool with_gradient = state.range(2) != 0;
  BenchArray logits(rows, vocabulary), losses(1, rows);
  std::vector<std::uint8_t> targets(static_cast<std::size_t>(rows), 7);
  const Tensor target_view{targets.data(), Dtype::u8, {rows}};
  for (auto _ : state)
    cpu::softmax_cross_entropy(
        {logits.matrix(), target_view, losses.flat(), with_gradient ? logits.matrix() : Tensor{}, 1.0}, {});
  state.SetItemsProcessed(state.iterations() * rows);
}

BENCHMARK(softmax_cross_entropy)
    ->ArgNames({"rows", "vocabulary", "gradient"})
    ->Args({4096, 256, 0})
    ->Args({4096, 256, 1})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace longstride::kernels
