// Twenty steps of training equal an independent implementation's: gradients, dropout masks, clipping, schedules,
// optimizers, weight decay and the average of the weights (tests/golden/adam.py and philox.py). So do the initial
// values of a run.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/models/golden_model.h"
#include "tests/optim/trial.h"

namespace longstride::golden {
namespace {

struct Tolerance {
  double loss;     // relative
  double weights;  // relative to the tensor's norm; 0: not compared
};

template <class T>
class Training {
 public:
  explicit Training(const GoldenTraining& golden)
      : golden_(golden),
        model_(golden.start),
        layout_(factor_layout(model_.parameters())),
        parts_(optimizer_parts(model_.parameters(), golden.optimizer)),
        m_(golden.optimizer.first_moments() ? model_.size() : 0),
        v_(golden.optimizer.second_moments() ? model_.size() : 0),
        factors_(parts_.factored.empty() ? 0 : static_cast<std::size_t>(layout_.flat_size())),
        tensor_squares_(parts_.tensors.size()),
        average_(golden.optimizer.ema > 0 ? model_.size() : 0),
        optimizer_(golden.optimizer, state(), model_.parameters().everything(), parts_) {
    with_arena({}, [&](Context& ctx) { optimizer_.start(ctx, model_.masters()); });
  }

  // The mean loss of one step, its global batch cut into micro-batches.
  double step(std::int64_t step, std::int64_t micro_batch) {
    const std::vector<std::uint8_t> tokens = golden_.tokens(step);
    const std::int64_t positions = golden_.start.positions;
    const double each = 1.0 / static_cast<double>(tokens.size());
    std::fill_n(model_.gradients().template as<T>(), model_.size(), T(0));
    Context ctx;
    ctx.seed = golden_.seed;
    ctx.step = &step;
    double loss = 0;
    for (std::int64_t row = 0; row < golden_.start.batch; row += micro_batch) {
      ctx.first_row = row;
      const auto begin = tokens.begin() + row * positions;
      for (const T nats : model_.losses_and_gradients({begin, begin + micro_batch * positions}, each, ctx))
        loss += each * static_cast<double>(nats);
    }
    with_arena(ctx, [&](Context& c) { testing::take_step(optimizer_, c, model_.masters(), model_.gradients()); });
    return loss;
  }

  const kernels::OptimizerScalars& scalars() const { return *optimizer_.scalars(); }
  const T* weights(const std::string& name) { return model_.find(name).master.template as<T>(); }
  const T* average(const std::string& name) { return average_.data() + model_.find(name).offset; }

 private:
  Optimizer::State state() {
    Optimizer::State state;
    if (!m_.empty()) state.m = model_.flat(m_);
    if (!v_.empty()) state.v = model_.flat(v_);
    if (!factors_.empty()) state.factors = Tensor(factors_.data(), model_.masters().dtype(), {std::ssize(factors_)});
    if (!tensor_squares_.empty())
      state.tensor_squares = Tensor(tensor_squares_.data(), Dtype::f64, {std::ssize(tensor_squares_)});
    if (!average_.empty()) state.ema = model_.flat(average_);
    state.scalars = Tensor(&scalars_, Dtype::u8, {static_cast<std::int64_t>(Optimizer::scalars_bytes)});
    return state;
  }

  const GoldenTraining& golden_;
  GoldenModel<T> model_;
  ParameterSet layout_;
  OptimizerParts parts_;
  std::vector<T> m_, v_, factors_;
  std::vector<double> tensor_squares_;
  std::vector<T> average_;
  kernels::OptimizerScalars scalars_;
  Optimizer optimizer_;
};

template <class T>
void expect_training(const std::string& name, std::int64_t micro_batch, Tolerance tolerance) {
  const GoldenTraining golden = load_training(name);
  Training<T> training(golden);
  for (std::int64_t s = 0; s < golden.steps(); ++s) {
    SCOPED_TRACE("step " + std::to_string(s));
    const auto i = static_cast<std::size_t>(s);
    EXPECT_NEAR(training.step(s, micro_batch), golden.loss[i], tolerance.loss * golden.loss[i]);
    EXPECT_NEAR(training.scalars().gradient_norm, golden.gradient_norm[i], tolerance.loss * golden.gradient_norm[i]);
    EXPECT_DOUBLE_EQ(training.scalars().learning_rate, golden.lr[i]);
  }
  if (tolerance.weights == 0) return;
  for (const GoldenParameter& parameter : golden.start.parameters)
    expect_tensor(parameter, training.weights(parameter.name), 1.0, tolerance.weights);
  for (const GoldenParameter& parameter : golden.average)
    expect_tensor(parameter, training.average(parameter.name), 1.0, tolerance.weights);
}

TEST(GoldenModel, ScoresWithoutDropoutDuringTrainingToo) {
  const GoldenTraining golden = load_training("training_dropout");
  ASSERT_GT(golden.start.config->dropout, 0.0);
  GoldenModel<float> model(golden.start);
  const std::int64_t step = 3;
  Context training;
  training.step = &step;
  EXPECT_EQ(model.losses(golden.tokens(0), training), model.losses(golden.tokens(0)));
}

TEST(GoldenModel, ALossScaleMultipliesGradientsAndNotLosses) {
  const GoldenCase golden = load_case("fixed_merged");
  GoldenModel<double> plain(golden), scaled(golden);
  const float scale = 1024;
  Context ctx;
  ctx.loss_scale = &scale;
  EXPECT_EQ(scaled.losses_and_gradients(golden.tokens(), 0.5, ctx), plain.losses_and_gradients(golden.tokens(), 0.5));
  const double *a = scaled.gradients().as<double>(), *b = plain.gradients().as<double>();
  for (std::size_t i = 0; i < plain.size(); ++i) ASSERT_EQ(a[i], 1024 * b[i]) << "element " << i;
}

class GoldenInitialTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenInitialTest, InitialValuesEqualTheReference) {
  const GoldenInitial golden = load_initial(GetParam());
  GoldenModel<float> model(golden.start);
  model.parameters().initialise(golden.seed);
  for (const GoldenParameter& parameter : golden.start.parameters)
    expect_tensor(parameter, model.find(parameter.name).master.as<float>(), 1.0, 1e-7);
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenInitialTest, ::testing::ValuesIn(names_in("initial")),
                         [](const ::testing::TestParamInfo<std::string>& test) { return test.param; });

class GoldenTrainingTest : public ::testing::TestWithParam<std::string> {};

// Weights are not compared in fp32: softmax is invariant to the biases of the keys, so their gradients are pure
// rounding errors, which Adam scales up.
TEST_P(GoldenTrainingTest, LossesEqualTheReferenceInFloat32) { expect_training<float>(GetParam(), 2, {1e-5, 0}); }

TEST_P(GoldenTrainingTest, LossesAndWeightsEqualTheReferenceInFloat64) {
  expect_training<double>(GetParam(), 2, {1e-9, 1e-8});
}

TEST_P(GoldenTrainingTest, MicroBatchesOfOneEqualTheReferenceToo) {
  expect_training<double>(GetParam(), 1, {1e-9, 1e-8});
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenTrainingTest, ::testing::ValuesIn(names_in("training")),
                         [](const ::testing::TestParamInfo<std::string>& test) { return test.param; });

}  // namespace
}  // namespace longstride::golden
