// Losses and gradients equal an independent implementation's, for every pattern x integration (tests/golden).
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "framework/models/sparse_transformer.h"
#include "tests/models/golden_case.h"

namespace longstride::golden {
namespace {

// A model with the case's parameters and the memory that planning says it needs.
template <class T>
class GoldenModel {
 public:
  explicit GoldenModel(const GoldenCase& golden) : golden_(golden), model_(golden.config) {
    const Shape flat{model_.parameters().flat_size()};
    master_.resize(static_cast<std::size_t>(flat.count()));
    gradient_.resize(static_cast<std::size_t>(flat.count()));
    model_.parameters().bind(Tensor(master_.data(), dtype, flat), Tensor(gradient_.data(), dtype, flat));
  }

  Parameter& find(const GoldenParameter& wanted) {
    for (Parameter& parameter : model_.parameters().all())
      if (parameter.name == wanted.name) return parameter;
    throw std::invalid_argument("the model has no parameter " + wanted.name);
  }

  void fill() {
    for (const GoldenParameter& wanted : golden_.parameters) {
      T* values = find(wanted).master.template as<T>();
      for (std::int64_t i = 0; i < wanted.count(); ++i) values[i] = static_cast<T>(golden_.parameter(wanted, i));
    }
  }

  std::vector<T> losses() {
    return run([&](Context& ctx, const Tensor& tokens, const Tensor& losses) { model_.losses(ctx, tokens, losses); });
  }

  // Adds the gradient of scale * (mean loss).
  std::vector<T> losses_and_gradients(double scale) {
    const double each = scale / static_cast<double>(golden_.batch * golden_.positions);
    return run([&](Context& ctx, const Tensor& tokens, const Tensor& losses) {
      model_.loss_and_gradients(ctx, tokens, each, losses);
    });
  }

  std::size_t parameters() { return model_.parameters().all().size(); }

 private:
  static constexpr Dtype dtype = kernels::DtypeOf<T>::value;

  template <class F>
  std::vector<T> run(F&& f) {
    const Shape shape{golden_.batch, golden_.positions};
    std::vector<std::uint8_t> tokens = golden_.tokens();
    std::vector<T> losses(tokens.size());
    Arena plan;
    Context ctx;
    ctx.compute = ctx.residual = dtype;
    ctx.arena = &plan;
    f(ctx, Tensor(nullptr, Dtype::u8, shape), Tensor(nullptr, dtype, shape));
    const std::size_t bytes = Arena::rounded(plan.high_water());
    void* memory = std::aligned_alloc(Arena::alignment, bytes);
    std::unique_ptr<void, decltype(&std::free)> owner(memory, std::free);
    Arena arena(memory, bytes);
    ctx.arena = &arena;
    f(ctx, Tensor(tokens.data(), Dtype::u8, shape), Tensor(losses.data(), dtype, shape));
    return losses;
  }

  const GoldenCase& golden_;
  SparseTransformer model_;
  std::vector<T> master_, gradient_;
};

// The tensor's error relative to its norm: that of the stored elements, and an estimate of the whole from random
// projections (the mean square of a projection on numbers uniform in (-1, 1) is a third of the squared norm).
template <class T>
void expect_gradient(const GoldenParameter& expected, const T* gradient, double scale, double tolerance) {
  SCOPED_TRACE(expected.name);
  const std::int64_t count = expected.count();
  const double allowed = tolerance * scale * expected.norm;
  double squares = 0, sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    squares += static_cast<double>(gradient[i]) * static_cast<double>(gradient[i]);
    sum += static_cast<double>(gradient[i]);
  }
  EXPECT_NEAR(std::sqrt(squares), scale * expected.norm, allowed);
  EXPECT_NEAR(sum, scale * expected.sum, allowed * std::sqrt(static_cast<double>(count)));
  double error = 0;
  for (std::size_t k = 0; k < expected.projections.size(); ++k) {
    const std::vector<double> direction = units("projection" + std::to_string(k) + "/" + expected.name, count);
    double dot = -scale * expected.projections[k];
    for (std::size_t i = 0; i < direction.size(); ++i) dot += direction[i] * static_cast<double>(gradient[i]);
    error += dot * dot;
  }
  EXPECT_LE(std::sqrt(3 * error / static_cast<double>(expected.projections.size())), allowed);
  for (std::size_t k = 0; k < expected.values.size(); ++k) {
    const std::int64_t i = expected.indices.empty() ? static_cast<std::int64_t>(k) : expected.indices[k];
    EXPECT_NEAR(static_cast<double>(gradient[i]), scale * expected.values[k], allowed) << "element " << i;
  }
}

template <class T>
void expect_losses(const GoldenCase& golden, const std::vector<T>& losses, double tolerance) {
  double sum = 0;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(losses[i]), golden.losses[i], tolerance * golden.loss) << "position " << i;
    sum += static_cast<double>(losses[i]);
  }
  EXPECT_NEAR(sum / static_cast<double>(losses.size()), golden.loss, tolerance * golden.loss);
}

template <class T>
void expect_golden(const std::string& name, double tolerance) {
  const GoldenCase golden = load_case(name);
  GoldenModel<T> model(golden);
  ASSERT_EQ(model.parameters(), golden.parameters.size());
  for (const GoldenParameter& parameter : golden.parameters) {
    const Shape& shape = model.find(parameter).shape;
    ASSERT_EQ(std::vector<std::int64_t>(shape.size, shape.size + shape.rank), parameter.shape) << parameter.name;
  }
  model.fill();
  expect_losses(golden, model.losses(), tolerance);
  expect_losses(golden, model.losses_and_gradients(1.0), tolerance);
  for (const GoldenParameter& parameter : golden.parameters)
    expect_gradient(parameter, model.find(parameter).gradient.template as<T>(), 1.0, tolerance);
  // A second time, with another scale: gradients accumulate.
  model.losses_and_gradients(2.0);
  for (const GoldenParameter& parameter : golden.parameters)
    expect_gradient(parameter, model.find(parameter).gradient.template as<T>(), 3.0, tolerance);
}

class GoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, LossesAndGradientsEqualTheReferenceInFloat32) { expect_golden<float>(GetParam(), 1e-5); }

TEST_P(GoldenTest, LossesAndGradientsEqualTheReferenceInFloat64) { expect_golden<double>(GetParam(), 1e-11); }

INSTANTIATE_TEST_SUITE_P(Cases, GoldenTest, testing::ValuesIn(case_names()),
                         [](const testing::TestParamInfo<std::string>& test) { return test.param; });

}  // namespace
}  // namespace longstride::golden
