// The model of a golden file, with its parameters, in exactly the memory that planning counted.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "datasets/objectives/kinds.h"
#include "framework/models/model.h"
#include "tests/models/golden_case.h"

namespace longstride::golden {

// f(ctx), first planned and then run in an arena of exactly the planned size.
template <class F>
void with_arena(Context ctx, F&& f) {
  Arena plan;
  ctx.arena = &plan;
  f(ctx);
  const std::size_t bytes = Arena::rounded(std::max<std::size_t>(plan.high_water(), 1));
  const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(Arena::alignment, bytes), std::free);
  Arena arena(memory.get(), bytes);
  ctx.arena = &arena;
  f(ctx);
}

template <class T>
class GoldenModel {
 public:
  static constexpr Dtype dtype = kernels::DtypeOf<T>::value;

  explicit GoldenModel(const GoldenCase& golden) : golden_(golden), model_(golden.config->make_model()) {
    master_.resize(size());
    gradient_.resize(size());
    model_->parameters().bind(masters(), gradients());
    EXPECT_EQ(model_->parameters().all().size(), golden.parameters.size());
    for (const GoldenParameter& wanted : golden.parameters) fill(find(wanted.name), wanted);
  }

  Tensor masters() { return flat(master_); }
  Tensor gradients() { return flat(gradient_); }
  Tensor flat(std::vector<T>& values) const {
    return Tensor(values.data(), dtype, {static_cast<std::int64_t>(values.size())});
  }
  std::size_t size() { return static_cast<std::size_t>(model_->parameters().flat_size()); }  // flat elements
  const Model& model() const { return *model_; }
  ParameterSet& parameters() { return model_->parameters(); }

  Parameter& find(const std::string& name) {
    for (Parameter& parameter : model_->parameters().all())
      if (parameter.name == name) return parameter;
    throw std::invalid_argument("the model has no parameter " + name);
  }

  // `tokens` are the bytes of rows, written as the objective asks.
  std::vector<T> losses(std::vector<std::uint8_t> tokens, const Context& settings = {}) {
    return run(settings, std::move(tokens),
               [&](Context& ctx, const Batch& in, const Tensor& out) { model_->losses(ctx, in, out); });
  }

  // Adds the gradient of scale * (sum of losses). `settings` may have a step, a seed and a first row.
  std::vector<T> losses_and_gradients(std::vector<std::uint8_t> tokens, double scale, const Context& settings = {}) {
    return run(settings, std::move(tokens), [&](Context& ctx, const Batch& in, const Tensor& out) {
      model_->loss_and_gradients(ctx, in, scale, out);
    });
  }

 private:
  void fill(Parameter& parameter, const GoldenParameter& wanted) {
    const std::vector<std::int64_t> shape(parameter.shape.size, parameter.shape.size + parameter.shape.rank);
    ASSERT_EQ(shape, wanted.shape) << wanted.name;
    T* values = parameter.master.template as<T>();
    for (const double x : golden_.parameter(wanted)) *values++ = static_cast<T>(x);
  }

  template <class F>
  std::vector<T> run(Context ctx, std::vector<std::uint8_t> tokens, F&& f) {
    const auto rows = static_cast<std::int64_t>(tokens.size()) / golden_.positions;
    const BatchLayout layout(model_->fields(), rows, golden_.positions);
    std::vector<std::byte> block(layout.bytes());
    const Batch batch = layout.at(block.data());
    const std::int64_t first = (ctx.step != nullptr ? *ctx.step * golden_.batch : 0) + ctx.first_row;
    const Objective& objective = golden_.config->objective ? *golden_.config->objective : default_objective();
    for (std::int64_t r = 0; r < rows; ++r) {
      RowBytes of{tokens.data() + r * golden_.positions};
      if (!golden_.lengths.empty()) of.length = golden_.lengths.at(static_cast<std::size_t>(r));
      if (!golden_.group_ends.empty()) of.groups = {golden_.group_ends.at(static_cast<std::size_t>(r)), 0};
      objective.write_row_of(batch, r, of, {ctx.seed, first + r});
    }
    std::vector<T> out(tokens.size());
    ctx.compute = ctx.exact = dtype;
    with_arena(ctx, [&](Context& c) {
      f(c, layout.at(c.planning() ? nullptr : block.data()),
        Tensor(c.planning() ? nullptr : out.data(), dtype, {rows, golden_.positions}));
    });
    return out;
  }

  const GoldenCase& golden_;
  std::unique_ptr<Model> model_;
  std::vector<T> master_, gradient_;
};

// The error relative to the tensor's norm: for the stored elements, and for the whole tensor as an estimate from random
// projections (the mean square of a projection on numbers uniform in (-1, 1) is a third of the squared norm).
template <class T>
void expect_tensor(const GoldenParameter& expected, const T* values, double scale, double tolerance) {
  SCOPED_TRACE(expected.name);
  const std::int64_t count = expected.count();
  const double allowed = tolerance * scale * expected.norm;
  double squares = 0, sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    squares += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    sum += static_cast<double>(values[i]);
  }
  EXPECT_NEAR(std::sqrt(squares), scale * expected.norm, allowed);
  EXPECT_NEAR(sum, scale * expected.sum, allowed * std::sqrt(static_cast<double>(count)));
  double error = 0;
  for (std::size_t k = 0; k < expected.projections.size(); ++k) {
    const std::vector<double> direction = units("projection" + std::to_string(k) + "/" + expected.name, count);
    double dot = -scale * expected.projections[k];
    for (std::size_t i = 0; i < direction.size(); ++i) dot += direction[i] * static_cast<double>(values[i]);
    error += dot * dot;
  }
  EXPECT_LE(std::sqrt(3 * error / static_cast<double>(expected.projections.size())), allowed);
  for (std::size_t k = 0; k < expected.values.size(); ++k) {
    const std::int64_t i = expected.indices.empty() ? static_cast<std::int64_t>(k) : expected.indices[k];
    EXPECT_NEAR(static_cast<double>(values[i]), scale * expected.values[k], allowed) << "element " << i;
  }
}

}  // namespace longstride::golden
