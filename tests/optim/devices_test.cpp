// Every optimizer on every device. After steps of which one has a gradient that is not finite, weights, moments and
// averages are as exact as plain arithmetic makes them.
#include <limits>

#include "tests/ops/op_test.h"
#include "tests/optim/trial.h"

namespace longstride::testing::devices_test {
namespace {

struct Case {
  const char* name;
  Optimizer::Config config;
  OptimizerParts parts;
};

// Matrices of every proportion, each at a multiple of 64.
struct Layout {
  OptimizerParts as_tensors, as_matrices;
  std::int64_t decayed = 0, size = 0;

  Layout() {
    std::int64_t factors = 0;
    for (const auto& [rows, columns] : {std::pair{1, 1}, {1, 5000}, {300, 1}, {65, 300}, {700, 129}}) {
      as_tensors.tensors.push_back({size, rows * columns});
      as_matrices.factored.push_back({size, rows, columns, factors, factors + rows});
      factors += rows + columns;
      size += (rows * columns + 63) / 64 * 64;
      if (as_tensors.tensors.size() == 3) decayed = size;
    }
  }
  bool in_a_tensor(std::int64_t i) const {
    for (const FlatRange& tensor : as_tensors.tensors)
      if (i >= tensor.begin && i < tensor.begin + tensor.count) return true;
    return false;
  }
};

Optimizer::Config config_of(OptimizerKind kind) {
  Optimizer::Config c;
  c.kind = kind;
  c.lr = 0.01;
  c.warmup = 2;
  c.steps = 20;
  c.weight_decay = 0.1;
  c.clip = 10;
  c.ema = 0.9;
  if (kind == OptimizerKind::adafactor) c.epsilon = 1e-30;
  return c;
}

std::vector<Case> cases() {
  const Layout layout;
  std::vector<Case> all = {{"adam", config_of(OptimizerKind::adam), {}},
                           {"adagrad", config_of(OptimizerKind::adagrad), {}},
                           {"adagrad, limited", config_of(OptimizerKind::adagrad), layout.as_tensors},
                           {"adafactor", config_of(OptimizerKind::adafactor), layout.as_matrices},
                           {"adafactor, unscaled", config_of(OptimizerKind::adafactor), layout.as_matrices}};
  all[2].config.tensor_clip = 3;  // the largest tensors have more
  all[3].config.beta1 = 0;
  all[4].config.scale_parameter = false;
  return all;
}

class OptimizerOnDevices : public OpTest {
 protected:
  static constexpr std::int64_t steps = 4;

  // Elements that no matrix has, which begin unaligned; on a GPU more than all threads take at once.
  std::int64_t count_of(const Case& c) const {
    return Layout().size + (c.parts.factored.empty() ? device() == Device::cpu ? 5003 : 3000003 : 0);
  }
  static std::int64_t decayed_of(const Case& c) { return Layout().decayed + (c.parts.factored.empty() ? 3 : 0); }

  // The copy in the compute type has the rounded weights. Elements between tensors that are limited apart are not
  // written.
  static void expect_rounded(const Case& c, const std::vector<double>& weights, const std::vector<double>& copy,
                             Dtype type) {
    const Layout layout;
    for (std::size_t i = 0; i < copy.size(); ++i) {
      if (!c.parts.tensors.empty() && !layout.in_a_tensor(static_cast<std::int64_t>(i))) continue;
      ASSERT_EQ(copy[i], rounded(weights[i], type)) << i;
    }
  }
  static double deviation(std::int64_t t) { return 0.01 * static_cast<double>(t + 1); }
  static constexpr std::int64_t wrong_step = 2, wrong_element = 70;

  static Trial trial_of(const Case& c, std::int64_t count, Dtype dtype) {
    Trial run(c.config, count, decayed_of(c), dtype, c.parts);
    for (std::int64_t t = 0; t < steps; ++t) {
      OwnedTensor gradient = testing::normals({count}, dtype, 10 + static_cast<std::uint32_t>(t), deviation(t));
      if (t == wrong_step) gradient.set(wrong_element, std::numeric_limits<double>::infinity());
      run.advance(gradient);
    }
    return run;
  }
};
LONGSTRIDE_OP_TESTS(OptimizerOnDevices);

TEST_P(OptimizerOnDevices, IsAsExactAsPlainArithmeticAndSkipsWhatIsNotFinite) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const std::int64_t count = count_of(c), decayed = decayed_of(c);
    const Trial right = trial_of(c, count, Dtype::f64), naive = trial_of(c, count, Dtype::f32);
    Operand weights = normals({count}, exact(), 1), m = normals({count}, exact(), 2), v = normals({count}, exact(), 3),
            average = normals({count}, exact(), 4), factors = normals(right.factors->shape(), exact(), 5),
            squares = result(right.tensor_squares->shape(), Dtype::f64), low = result({count}),
            scalars = filled({static_cast<std::int64_t>(Optimizer::scalars_bytes)}, Dtype::u8, 0),
            at = with_values({steps}, Dtype::i64, {0, 1, 2, 3});
    std::vector<Operand> gradients;
    for (std::int64_t t = 0; t < steps; ++t) {
      const Operand drawn = normals({count}, exact(), 10 + static_cast<std::uint32_t>(t), deviation(t));
      std::vector<double> values = drawn.values();
      if (t == wrong_step) values[wrong_element] = std::numeric_limits<double>::infinity();
      gradients.push_back(with_values({count}, exact(), std::move(values)));
    }
    Optimizer::State state{.m = c.config.first_moments() ? Tensor(m) : Tensor(),
                           .v = c.config.second_moments() ? Tensor(v) : Tensor(),
                           .ema = average,
                           .scalars = scalars};
    if (!c.parts.factored.empty()) state.factors = factors;
    if (c.config.tensor_clip > 0) state.tensor_squares = squares;
    Optimizer optimizer(c.config, state, {{0, decayed, true}, {decayed, count - decayed}}, c.parts);
    const bool rounds = compute() != exact();
    const auto train = [&](Context& run) {
      optimizer.start(run, weights);
      for (std::int64_t t = 0; t < steps; ++t) {
        const Tensor& gradient = gradients[static_cast<std::size_t>(t)];
        run.step = at->as<std::int64_t>() + t;
        optimizer.measure(run, gradient, {{0, count, false}});
        optimizer.update(run, weights, gradient, rounds ? Tensor(low) : Tensor());
      }
    };
    repeat(train, {&weights, &m, &v, &average, &factors, &low});
    const auto expect_exact = [&](const char* name, const Operand& found, OwnedTensor Trial::*member) {
      expect_as_exact_as_plain(name, found, [&](auto zero) {
        const OwnedTensor& expected = (std::is_same_v<decltype(zero), double> ? right : naive).*member;
        std::vector<double> values(static_cast<std::size_t>(found->count()));
        for (std::int64_t i = 0; i < found->count(); ++i) values[static_cast<std::size_t>(i)] = expected.at(i);
        return values;
      });
    };
    expect_exact("weights", weights, &Trial::weights);
    expect_exact("first moments", m, &Trial::m);
    expect_exact("second moments", v, &Trial::v);
    expect_exact("average", average, &Trial::ema);
    expect_exact("factors", factors, &Trial::factors);
    if (rounds && c.parts.factored.empty()) expect_rounded(c, weights.found(), low.found(), compute());
    const std::vector<std::byte> raw = scalars.raw();
    kernels::OptimizerScalars found;
    std::memcpy(&found, raw.data(), sizeof(found));
    const kernels::OptimizerScalars& expected = *right.optimizer.scalars();
    EXPECT_EQ(found.skipped, 1);
    EXPECT_EQ(found.good_steps, expected.good_steps);
    EXPECT_NEAR(found.learning_rate, expected.learning_rate, 1e-18);
    EXPECT_NEAR(found.gradient_norm, expected.gradient_norm, 1e-6 * expected.gradient_norm);
  }
}

// The loss scale of 16-bit training, by its state machine alone.
TEST_P(OptimizerOnDevices, ScalarsAreThoseOfTheCpu) {
  using kernels::OptimizerScalars;
  const Operand step = filled({1}, Dtype::i64, 77);
  const std::int64_t cpu_step = 77;
  for (const bool dynamic : {false, true})
    for (const double sum :
         {0.0, 1e-6, 4.0, 1e30, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
      for (const std::int64_t good : {std::int64_t{0}, kernels::LossScale::interval - 1})
        for (const float scale : {1.0f, 2.0f, 65536.0f, kernels::LossScale::most}) {
          OptimizerScalars expected, found;
          expected.sum_of_squares = sum;
          expected.loss_scale = scale;
          expected.good_steps = good;
          std::vector<double> bytes(sizeof(expected));
          for (std::size_t i = 0; i < bytes.size(); ++i)
            bytes[i] = reinterpret_cast<const unsigned char*>(&expected)[i];
          const Operand here = with_values({static_cast<std::int64_t>(bytes.size())}, Dtype::u8, bytes);
          const auto args_of = [&](OptimizerScalars* scalars, const std::int64_t* at) {
            return kernels::OptimizerScalarsArgs{scalars, at, {1e-3, 10, 1000}, 1.0, dynamic};
          };
          ops::run(ctx, args_of(here->as<OptimizerScalars>(), step->as<std::int64_t>()));
          kernels::cpu::optimizer_scalars(args_of(&expected, &cpu_step), {});
          const std::vector<std::byte> raw = here.raw();
          std::memcpy(&found, raw.data(), sizeof(found));
          EXPECT_NEAR(found.learning_rate, expected.learning_rate, 1e-18);
          EXPECT_EQ(found.finite, expected.finite);
          EXPECT_EQ(found.loss_scale, expected.loss_scale);
          EXPECT_EQ(found.good_steps, expected.good_steps);
          EXPECT_EQ(found.skipped, expected.skipped);
          EXPECT_EQ(found.skipped_in_row, expected.skipped_in_row);
          if (expected.finite == 0) continue;
          EXPECT_NEAR(found.gradient_norm, expected.gradient_norm, 1e-14 * expected.gradient_norm);
          EXPECT_NEAR(found.clip_coefficient, expected.clip_coefficient, 1e-14 * expected.clip_coefficient);
        }
}

}  // namespace
}  // namespace longstride::testing::devices_test
