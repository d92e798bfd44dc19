// Losses and gradients equal an independent implementation's, for every pattern x integration (tests/golden).
#include <gtest/gtest.h>

#include <vector>

#include "tests/models/golden_model.h"

namespace longstride::golden {
namespace {

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
void expect_golden(const std::string& name, double tolerance, const std::string& file = "cases") {
  const GoldenCase golden = load_case(name, file);
  GoldenModel<T> model(golden);
  const double each = 1.0 / static_cast<double>(golden.batch * golden.positions);
  const auto expect_gradients = [&](double scale) {
    for (const GoldenParameter& parameter : golden.parameters)
      expect_tensor(parameter, model.find(parameter.name).gradient.template as<T>(), scale, tolerance);
  };
  expect_losses(golden, model.losses(golden.tokens()), tolerance);
  expect_losses(golden, model.losses_and_gradients(golden.tokens(), each), tolerance);
  expect_gradients(1.0);
  // Run again with another scale: gradients accumulate.
  model.losses_and_gradients(golden.tokens(), 2 * each);
  expect_gradients(3.0);
}

class GoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, LossesAndGradientsEqualTheReferenceInFloat32) { expect_golden<float>(GetParam(), 1e-5); }

TEST_P(GoldenTest, LossesAndGradientsEqualTheReferenceInFloat64) { expect_golden<double>(GetParam(), 1e-11); }

INSTANTIATE_TEST_SUITE_P(Cases, GoldenTest, testing::ValuesIn(names_in("cases")),
                         [](const testing::TestParamInfo<std::string>& test) { return test.param; });

class GoldenGlobalTest : public testing::TestWithParam<std::string> {};

TEST_P(GoldenGlobalTest, LossesAndGradientsEqualTheReferenceInFloat32) {
  expect_golden<float>(GetParam(), 1e-5, "global");
}

TEST_P(GoldenGlobalTest, LossesAndGradientsEqualTheReferenceInFloat64) {
  expect_golden<double>(GetParam(), 1e-11, "global");
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenGlobalTest, testing::ValuesIn(names_in("global")),
                         [](const testing::TestParamInfo<std::string>& test) { return test.param; });

}  // namespace
}  // namespace longstride::golden
