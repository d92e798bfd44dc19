#include "kernels/adam/adam.h"

#include <benchmark/benchmark.h>

#include "kernels/base/bench_array.h"

namespace longstride::kernels {
namespace {

void adam(benchmark::State& state) {
  const std::int64_t count = state.range(0), step = 3;
  BenchArray weights(1, count), gradient(1, count), m(1, count), v(1, count);
  OptimizerScalars scalars;
  scalars.learning_rate = 1e-9;
  for (std::int64_t i = 0; i < count; ++i) v.data()[i] = 1;
  AdamArgs args;
  args.weights = weights.flat();
  args.gradient = gradient.flat();
  args.m = m.flat();
  args.v = v.flat();
  args.decayed = count / 2;
  args.weight_decay = 0.01;
  args.scalars = &scalars;
  args.step = &step;
  for (auto _ : state) cpu::adam(args, {});
  state.SetBytesProcessed(state.iterations() * count * 28);
}

BENCHMARK(adam)->Arg(1 << 20)->Arg(1 << 24)->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace longstride::kernels
