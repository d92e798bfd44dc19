#include "kernels/dropout/dropout.h"

#include <benchmark/benchmark.h>

#include "kernels/base/bench_array.h"

namespace longstride::kernels {
namespace {

void dropout_add(benchmark::State& state) {
  const std::int64_t rows = state.range(0), width = state.range(1), step = 3;
  BenchArray branch(rows, width), residual(rows, width), y(rows, width);
  for (auto _ : state) cpu::dropout({branch.flat(), residual.flat(), y.flat(), 0.4f, 1, 2, &step, 0}, {});
  state.SetItemsProcessed(state.iterations() * rows * width);
}

BENCHMARK(dropout_add)->Args({4096, 128})->Args({16384, 512})->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace longstride::kernels
