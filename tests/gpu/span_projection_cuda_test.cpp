// A memory of which heads read a part, on the GPU: its projection by the kernels that skip rows (kernels/
// span_projection), compared with that of all rows and with the CPU.
#include <gtest/gtest.h>

#include <cmath>

#include "framework/train/step/precision.h"
#include "kernels/base/gpu_kind.h"
#include "kernels/span_projection/span_projection.h"
#include "tests/gpu/gpu.h"
#include "tests/support/distance_toys.h"
#include "tests/support/rounding.h"
#include "tests/support/stream_run.h"

namespace longstride::test {
namespace {

constexpr std::int64_t context = 64, memory = 448, width = 256, heads = 4;

// With a memory of `rows`. Two rows more give no tiles of 64 rows, so that all rows are projected; they are beyond the
// window.
DistanceToy spanning_config(bool house, std::int64_t rows) {
  DistanceToy c = Toys<DistanceToy>::without_dropout(house ? house_with_spans_toy() : adaptive_span_toy());
  c.attention_bias = false;  // the kernels that skip rows have none
  c.context = context;
  c.width = width;
  c.heads = heads;
  c.memory.length = rows;
  c.distance.window = {memory};
  c.distance.span = {.longest = memory - 1, .ramp = 32, .initial = 0.3, .loss = 0.01};
  if (c.distance.table != DistanceTable::none) c.distance.distances = memory;
  return c;
}

bool skips(std::int64_t rows) {
  const std::int64_t n_k = context + rows, size = width / heads;
  std::vector<float> spans(heads);
  kernels::DistanceScores read{.q = Tensor(nullptr, Dtype::bf16, {1, context, heads, size}),
                               .k = Tensor(nullptr, Dtype::bf16, {1, n_k, heads, size})};
  read.span = Tensor(spans.data(), Dtype::f32, {heads});
  return kernels::cuda::uses_panels(read, Tensor(nullptr, Dtype::bf16, {1, n_k, width}),
                                    Tensor(nullptr, Dtype::bf16, {1, n_k, 2 * width}));
}

struct Result {
  double loss;
  std::vector<float> gradients;
};

// Results of the fourth step of streams, whose weights have not changed: the memory has three segments.
Result fourth_step(const DistanceToy& config, const std::vector<double>& spans, Precision precision, Device device) {
  TrainConfig train = stream_training(0, still, 2);
  train.precision = precision;
  StreamRun run(train, config, device);
  run.step.start([&](ParameterSet& parameters) {
    parameters.initialise(train.seed);
    for (Parameter& p : parameters.all())
      if (p.limits)
        for (std::int64_t h = 0; h < heads; ++h)
          p.master.as<float>()[h] = static_cast<float>(spans[static_cast<std::size_t>(h)]);
  });
  run.go(4);
  const double loss = run.step.report().loss;
  return {loss, run.gradients()};
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
  return std::sqrt(sum);
}

// In bf16, so that an error of the gradients is a matter of rounding: twice that of the step which projects all rows.
TEST(SpanProjectionOnTheGpu, AStepIsAsExactAsOneThatProjectsAllRows) {
  LONGSTRIDE_NEEDS_GPU();
  ASSERT_EQ(skips(memory), kernels::cuda::is_hopper());
  ASSERT_FALSE(skips(memory + 2));
  for (const bool house : {false, true})
    for (const std::vector<double>& spans :
         std::vector<std::vector<double>>{{0, 0, 0, 0}, {0, 0.1, 0.4, 1}, {0.2, 0, 0.05, 0.5}, {1, 1, 1, 1}}) {
      SCOPED_TRACE(std::string(house ? "house, " : "published, ") + std::to_string(spans[1]));
      const DistanceToy skipping = spanning_config(house, memory), whole = spanning_config(house, memory + 2);
      const Result right = fourth_step(skipping, spans, Precision::fp32, Device::cpu);
      const Result all = fourth_step(whole, spans, Precision::bf16, Device::cuda);
      const Result read = fourth_step(skipping, spans, Precision::bf16, Device::cuda);
      ASSERT_EQ(read.gradients.size(), right.gradients.size());
      EXPECT_LE(distance(read.gradients, right.gradients), 2 * distance(all.gradients, right.gradients));
      EXPECT_NEAR(read.loss, right.loss, testing::half_step_of(Dtype::bf16) * right.loss);
    }
}

// The spans change from step to step, by up to 40 positions in all, and a graph follows them.
TEST(SpanProjectionOnTheGpu, AGraphFollowsSpansThatChange) {
  LONGSTRIDE_NEEDS_GPU();
  for (const Precision precision : {Precision::bf16, Precision::fp16})
    for (const bool house : {false, true}) {
      TrainConfig train = stream_training(0, 0.01, 2);
      train.precision = precision;
      std::vector<std::string> bits;
      for (const bool graph : {true, true, false}) {
        train.graph = graph;
        StreamRun run(train, spanning_config(house, memory), Device::cuda);
        run.step.start();
        run.go(8);
        bits.push_back(run.bits());
        EXPECT_TRUE(std::isfinite(run.step.report().loss)) << name_of(precision);
      }
      EXPECT_EQ(bits[1], bits[0]) << name_of(precision);
      EXPECT_EQ(bits[2], bits[0]) << name_of(precision);
    }
}

}  // namespace
}  // namespace longstride::test
