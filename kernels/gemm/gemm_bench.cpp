// The products of a linear layer and their backward forms, compared with multithreaded OpenBLAS.
#include "kernels/gemm/gemm.h"

#include <benchmark/benchmark.h>
#include <cblas.h>
#include <omp.h>

#include "kernels/base/bench_array.h"

namespace longstride::kernels {
namespace {

// rows, in, out
void shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"rows", "in", "out"})->UseRealTime()->Unit(benchmark::kMicrosecond);
  for (const auto& [in, out] : {std::pair{128, 128}, {128, 384}, {128, 512}, {512, 128}, {128, 256}})
    b->Args({4096, in, out});
  b->Args({16384, 512, 2048});
  b->Args({1, 512, 2048});
}

void report(benchmark::State& state) {
  const double operations = 2.0 * static_cast<double>(state.range(0) * state.range(1) * state.range(2));
  state.counters["GFLOP/s"] = benchmark::Counter(operations * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

struct Arrays {
  BenchArray x, w, y, bias, activated;
  explicit Arrays(const benchmark::State& s)
      : x(s.range(0), s.range(1)),
        w(s.range(2), s.range(1)),
        y(s.range(0), s.range(2)),
        bias(1, s.range(2)),
        activated(s.range(0), s.range(2)) {}
};

void run(benchmark::State& state, const GemmArgs& args) {
  for (auto _ : state) cpu::gemm(args, {});
  report(state);
}

void forward(benchmark::State& state) {
  Arrays a(state);
  run(state, {.a = a.x.matrix(), .b = a.w.transposed(), .c = a.y.matrix()});
}

void forward_bias_gelu(benchmark::State& state) {
  Arrays a(state);
  run(state, {.a = a.x.matrix(),
              .b = a.w.transposed(),
              .c = a.y.matrix(),
              .bias = a.bias.flat(),
              .activated = a.activated.matrix(),
              .epilogue = Epilogue::bias_gelu});
}

void backward_input(benchmark::State& state) {
  Arrays a(state);
  run(state, {.a = a.y.matrix(), .b = a.w.matrix(), .c = a.x.matrix()});
}

void backward_weight(benchmark::State& state) {
  Arrays a(state);
  run(state, {.a = a.y.transposed(), .b = a.x.matrix(), .c = a.w.matrix(), .accumulate = true});
}

// One call of cblas_sgemm with as many threads as OpenMP has.
template <class F>
void run_openblas(benchmark::State& state, F&& multiply) {
  openblas_set_num_threads(omp_get_max_threads());
  for (auto _ : state) multiply();
  openblas_set_num_threads(1);
  report(state);
}

void openblas_forward(benchmark::State& state) {
  Arrays a(state);
  const auto rows = static_cast<int>(state.range(0)), in = static_cast<int>(state.range(1)),
             out = static_cast<int>(state.range(2));
  run_openblas(state, [&] {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, out, in, 1, a.x.data(), in, a.w.data(), in, 0,
                a.y.data(), out);
  });
}

void openblas_backward_input(benchmark::State& state) {
  Arrays a(state);
  const auto rows = static_cast<int>(state.range(0)), in = static_cast<int>(state.range(1)),
             out = static_cast<int>(state.range(2));
  run_openblas(state, [&] {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, in, out, 1, a.y.data(), out, a.w.data(), in, 0,
                a.x.data(), in);
  });
}

void openblas_backward_weight(benchmark::State& state) {
  Arrays a(state);
  const auto rows = static_cast<int>(state.range(0)), in = static_cast<int>(state.range(1)),
             out = static_cast<int>(state.range(2));
  run_openblas(state, [&] {
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, out, in, rows, 1, a.y.data(), out, a.x.data(), in, 1,
                a.w.data(), in);
  });
}

BENCHMARK(forward)->Apply(shapes);
BENCHMARK(openblas_forward)->Apply(shapes);
BENCHMARK(forward_bias_gelu)->Apply(shapes);
BENCHMARK(backward_input)->Apply(shapes);
BENCHMARK(openblas_backward_input)->Apply(shapes);
BENCHMARK(backward_weight)->Apply(shapes);
BENCHMARK(openblas_backward_weight)->Apply(shapes);

}  // namespace
}  // namespace longstride::kernels
