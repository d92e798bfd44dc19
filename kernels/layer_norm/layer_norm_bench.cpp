#include "kernels/layer_norm/layer_norm.h"

#include <benchmark/benchmark.h>

#include "kernels/base/bench_array.h"

namespace longstride::kernels {
namespace {

void layer_norm_forward(benchmark::State& state) {
  const std::int64_t rows = state.range(0), width = state.range(1);
  BenchArray x(rows, width), y(rows, width), gain(1, width), bias(1, width), mean(1, rows), rstd(1, rows);
  for (auto _ : state)
    cpu::layer_norm({x.matrix(), gain.flat(), bias.flat(), y.matrix(), mean.flat(), rstd.flat(), 1e-5f}, {});
  state.SetBytesProcessed(state.iterations() * rows * width * 8);
}

void layer_norm_backward(benchmark::State& state) {
  const std::int64_t rows = state.range(0), width = state.range(1);
  BenchArray x(rows, width), dy(rows, width), dx(rows, width), gain(1, width), mean(1, rows), rstd(1, rows);
  BenchArray dgain(1, width), dbias(1, width), partials(2 * row_chunks(rows).chunks, width);
  for (auto _ : state)
    cpu::layer_norm_backward({dy.matrix(), x.matrix(), gain.flat(), mean.flat(), rstd.flat(), dx.matrix(), true,
                              dgain.flat(), dbias.flat(), partials.flat()},
                             {});
  state.SetBytesProcessed(state.iterations() * rows * width * 16);
}

BENCHMARK(layer_norm_forward)->Args({4096, 128})->Args({16384, 512})->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(layer_norm_backward)->Args({4096, 128})->Args({16384, 512})->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace longstride::kernels
