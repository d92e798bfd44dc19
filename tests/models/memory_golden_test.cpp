// Losses and gradients of segments of streams equal an independent implementation's, and so does what rows remember at
// the end: Transformer-XL, Adaptive-Span, Longformer's language model, the Compressive Transformer and mixtures of them
// (tests/golden/memory.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "framework/models/decoder/config.h"
#include "framework/ops/state.h"
#include "tests/models/golden_model.h"

namespace longstride::golden {
namespace {

// Rows that read their segments in order, with what they remember between them.
template <class T>
class Streams {
 public:
  Streams(const GoldenStreams& golden, GoldenModel<T>& model) : golden_(golden), model_(model) {
    now_.resize(static_cast<std::size_t>(model.model().states().row_bytes(types) * golden.start.batch) / sizeof(T),
                T(7));
    next_ = now_;  // nothing may be read that no stream has written
  }

  std::vector<T> losses(std::size_t segment) {
    return run(segment, golden_.start.batch,
               [&](Context& c, const Batch& batch, const Tensor& out) { model_.model().losses(c, batch, out); });
  }

  // Adds the gradients of the mean loss and of the auxiliary ones, `micro` rows at a time.
  std::vector<T> losses_and_gradients(std::size_t segment, std::int64_t micro) {
    const double scale = 1.0 / static_cast<double>(golden_.start.batch * golden_.start.positions);
    const std::vector<std::string> names = model_.model().auxiliary_losses();
    auxiliary_.assign(names.size(), 0.0);
    return run(segment, micro, [&](Context& c, const Batch& batch, const Tensor& out) {
      if (!names.empty()) c.auxiliary.sums = Tensor(auxiliary_.data(), Dtype::f64, {std::ssize(names)});
      c.auxiliary.share = static_cast<double>(micro) / static_cast<double>(golden_.start.batch);
      c.auxiliary.once = c.first_row == 0;
      model_.model().loss_and_gradients(c, batch, scale, out);
    });
  }

  // The last segment's auxiliary losses, by name.
  std::map<std::string, double> auxiliary() const {
    std::map<std::string, double> made;
    const std::vector<std::string> names = model_.model().auxiliary_losses();
    for (std::size_t i = 0; i < names.size(); ++i) made[names[i]] = auxiliary_.at(i);
    return made;
  }

  // (batch, shape of the state)
  const T* state(const std::string& name) {
    for (const State& state : model_.model().states().all())
      if (state.name == name) return states().now(state).template as<T>();
    throw std::invalid_argument("the model has no state " + name);
  }

 private:
  RowStates states() {
    if (now_.empty()) return {};
    const auto flat = [](std::vector<T>& values) {
      return Tensor(values.data(), Dtype::u8, {std::ssize(values) * static_cast<std::int64_t>(sizeof(T))});
    };
    return {golden_.start.batch, types, flat(now_), flat(next_)};
  }

  template <class F>
  std::vector<T> run(std::size_t segment, std::int64_t micro, F&& f) {
    const Shape shape{golden_.start.batch, golden_.start.positions};
    std::vector<std::uint8_t> previous = golden_.previous(segment), targets = golden_.targets(segment),
                              starts = golden_.segments[segment].starts;
    std::vector<T> out(targets.size());
    const Batch batch{.tokens = Tensor(previous.data(), Dtype::u8, shape),
                      .targets = Tensor(targets.data(), Dtype::u8, shape),
                      .starts = Tensor(starts.data(), Dtype::u8, {golden_.start.batch})};
    const Tensor losses(out.data(), GoldenModel<T>::dtype, shape);
    Context ctx;
    ctx.compute = ctx.exact = GoldenModel<T>::dtype;
    with_arena(ctx, [&](Context& c) {
      if (states().given()) ops::begin_states(c, model_.model().states(), states(), batch.starts);
      for (std::int64_t row = 0; row < golden_.start.batch; row += micro) {
        if (states().given()) c.state = states().slice(row, row + micro);
        c.first_row = row;
        f(c, batch.slice(row, row + micro), losses.slice(0, row, row + micro));
      }
      c.state = {};
      ops::keep_states(c, states());
    });
    return out;
  }

  static constexpr StateTypes types{GoldenModel<T>::dtype, GoldenModel<T>::dtype};

  const GoldenStreams& golden_;
  GoldenModel<T>& model_;
  std::vector<T> now_, next_;
  std::vector<double> auxiliary_;
};

template <class T>
void expect_losses(const std::vector<double>& expected, const std::vector<T>& losses, double tolerance) {
  const double mean = std::accumulate(expected.begin(), expected.end(), 0.0) / static_cast<double>(expected.size());
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(static_cast<double>(losses[i]), expected[i], tolerance * mean) << "position " << i;
}

// Reconstruction that trains nothing is no loss of the model's.
void expect_auxiliary(std::map<std::string, double> expected, const std::map<std::string, double>& found,
                      const DecoderConfig& config, double tolerance) {
  if (!config.memory.learns_to_compress()) expected.erase("reconstruction");
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, value] : expected) EXPECT_NEAR(found.at(name), value, tolerance * value) << name;
}

template <class T>
void expect_streams(const std::string& name, std::int64_t micro, double tolerance) {
  const GoldenStreams golden = load_streams(name);
  GoldenModel<T> model(golden.start);
  Streams<T> training(golden, model), evaluation(golden, model);
  for (std::size_t s = 0; s < golden.segments.size(); ++s) {
    SCOPED_TRACE("segment " + std::to_string(s));
    const GoldenStreams::Segment& segment = golden.segments[s];
    std::fill_n(model.gradients().template as<T>(), model.size(), T(0));
    expect_losses(segment.losses, evaluation.losses(s), tolerance);
    expect_losses(segment.losses, training.losses_and_gradients(s, micro > 0 ? micro : golden.start.batch), tolerance);
    expect_auxiliary(segment.auxiliary, training.auxiliary(), dynamic_cast<const DecoderConfig&>(*golden.start.config),
                     tolerance);
    for (const GoldenParameter& parameter : segment.parameters)
      expect_tensor(parameter, model.find(parameter.name).gradient.template as<T>(), 1.0, tolerance);
  }
  for (const GoldenParameter& state : golden.states) expect_tensor(state, training.state(state.name), 1.0, tolerance);
}

class MemoryGoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(MemoryGoldenTest, SegmentsEqualTheReferenceInFloat32) { expect_streams<float>(GetParam(), 0, 1e-5); }

TEST_P(MemoryGoldenTest, SegmentsEqualTheReferenceInFloat64) { expect_streams<double>(GetParam(), 0, 1e-11); }

TEST_P(MemoryGoldenTest, MicroBatchesOfOneEqualTheReferenceToo) { expect_streams<double>(GetParam(), 1, 1e-11); }

INSTANTIATE_TEST_SUITE_P(Cases, MemoryGoldenTest, ::testing::ValuesIn(names_in("memory")),
                         [](const ::testing::TestParamInfo<std::string>& test) { return test.param; });

}  // namespace
}  // namespace longstride::golden
