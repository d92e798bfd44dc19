// Learned spans on the GPU, within the captured step, compared with the CPU's.
#include <gtest/gtest.h>

#include <cmath>

#include "framework/train/step/precision.h"
#include "tests/gpu/trained.h"

namespace longstride::test {
namespace {

DecoderConfig gpu_spans(double initial = 0.3) {
  DecoderConfig c = spans_config();
  c.context = small_config().context;
  c.width = 64;
  c.distance.distances = c.distance.span.longest = 40;
  c.distance.window = {41};
  c.distance.span.initial = initial;
  c.distance.span.loss = 0.01;
  c.distance.dropout = 0.1;
  return c;
}

struct Spans {
  std::vector<float> masters, averages, gradients;
};

Spans spans_of(Trained& run) {
  Spans out;
  const std::vector<float> gradients = run.gradients();
  run.step.with_host_tensors([&](const TrainingTensors& t) {
    for (const Parameter& p : run.model.parameters().all()) {
      if (!p.limits) continue;
      for (std::int64_t i = p.offset; i < p.offset + p.shape.count(); ++i) {
        out.masters.push_back(t.masters.as<const float>()[i]);
        out.averages.push_back(t.ema.as<const float>()[i]);
        out.gradients.push_back(gradients[static_cast<std::size_t>(i)]);
      }
    }
  });
  return out;
}

TEST(SpansOnTheGpu, AGraphChangesNoBitAndFollowsTheCpu) {
  LONGSTRIDE_NEEDS_GPU();
  for (Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    TrainConfig train = train_config(precision);
    const std::string replayed = bits_after(6, train, gpu_spans());
    EXPECT_TRUE(same_bits(bits_after(6, train, gpu_spans()), replayed)) << name_of(precision);
    train.graph = false;
    EXPECT_TRUE(same_bits(bits_after(6, train, gpu_spans()), replayed)) << name_of(precision);
    train.micro_batch = 1;  // the spans' loss is still added once
    train.graph = true;
    Trained micro(train, Device::cuda, gpu_spans()), cpu(train_config(Precision::fp32), Device::cpu, gpu_spans());
    for (Trained* run : {&micro, &cpu}) {
      run->step.start();
      run->go(1);
    }
    const double loss = cpu.step.report().auxiliary.at(0);
    EXPECT_NEAR(micro.step.report().auxiliary.at(0), loss, 1e-9 * loss) << name_of(precision);
  }
  Trained cpu(train_config(Precision::fp32), Device::cpu, gpu_spans()),
      gpu(train_config(Precision::fp32), Device::cuda, gpu_spans());
  for (Trained* run : {&cpu, &gpu}) run->step.start();
  for (int i = 0; i < 10; ++i) {
    for (Trained* run : {&cpu, &gpu}) run->go(1);
    const StepReport expected = cpu.step.report(), found = gpu.step.report();
    EXPECT_NEAR(found.loss, expected.loss, 1e-4 * expected.loss) << "step " << i;
    EXPECT_NEAR(found.auxiliary.at(0), expected.auxiliary.at(0), 1e-4 * expected.auxiliary.at(0)) << "step " << i;
  }
}

// The first step's gradient of every span without the loss of spans, and with it: the difference is its slope, times
// the loss scale.
TEST(SpansOnTheGpu, TheirLossHasTheLossScaleOfTheStep) {
  LONGSTRIDE_NEEDS_GPU();
  for (Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    DecoderConfig without = gpu_spans();
    without.distance.span.loss = 0;
    Trained a(train_config(precision), Device::cuda, gpu_spans()), b(train_config(precision), Device::cuda, without);
    for (Trained* run : {&a, &b}) {
      run->step.start();
      run->go(1);
    }
    const double scale = precision == Precision::fp16 ? static_cast<double>(kernels::LossScale::first) : 1;
    const double slope = scale * 0.01 * 40 / 2;
    const Spans with = spans_of(a), bare = spans_of(b);
    ASSERT_EQ(with.gradients.size(), 4u);
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(with.gradients[i] - static_cast<double>(bare.gradients[i]), slope,
                  1e-6 * (slope + std::abs(static_cast<double>(bare.gradients[i]))))
          << name_of(precision) << " " << i;
  }
}

// Updates that are larger than the interval, in both directions; the copy that products read is rounded from it.
TEST(SpansOnTheGpu, StayWithinTheirLimitsInEveryReplay) {
  LONGSTRIDE_NEEDS_GPU();
  for (Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16})
    for (const OptimizerKind kind : {OptimizerKind::adam, OptimizerKind::adagrad, OptimizerKind::muon}) {
      TrainConfig train = train_config(precision);
      train.optimizer = kind;
      train.lr = 0.7;
      train.warmup = 1;
      train.clip = 0.1;
      Trained run(train, Device::cuda, gpu_spans(0.5));
      run.step.start();
      bool end = false;
      for (int i = 0; i < 6; ++i) {
        run.go(1);
        const Spans spans = spans_of(run);
        for (const auto* values : {&spans.masters, &spans.averages})
          for (const float z : *values) ASSERT_TRUE(z >= 0 && z <= 1) << name_of(precision) << " " << z;
        for (const float z : spans.masters) end = end || z == 0 || z == 1;
      }
      EXPECT_TRUE(end) << name_of(precision);
      const Tensor& low = run.step.state().low_precision;
      if (!low.given()) continue;
      const Queue& queue = run.step.queue();
      const std::vector<float> masters = spans_of(run).masters;
      std::size_t at = 0;
      for (const Parameter& p : run.model.parameters().all()) {
        if (!p.limits) continue;
        std::vector<std::uint16_t> bits(static_cast<std::size_t>(p.shape.count()));
        queue.copy_to_host(bits.data(), low.slice(0, p.offset, p.offset + p.shape.count()).data(), 2 * bits.size());
        queue.synchronize();
        for (const std::uint16_t b : bits) {
          const float master = masters[at++];
          const int one = precision == Precision::bf16 ? 0x3f80 : 0x3c00;
          EXPECT_TRUE(master != 0 || b == 0) << name_of(precision) << " " << b;
          EXPECT_TRUE(master != 1 || b == one) << name_of(precision) << " " << b;
        }
      }
    }
}

}  // namespace
}  // namespace longstride::test
