// Properties of every model. A model takes part with a list of its toy configurations and one line:
//   template <> struct Toys<BigramConfig> { ... };
//   INSTANTIATE_TYPED_TEST_SUITE_P(Bigram, ModelProperties, BigramConfig);
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/toys.h"

namespace longstride::test {

// The bytes that rows have read before: a model with states is tested with rows that continue others, so that they
// remember something.
inline std::vector<std::uint8_t> earlier_tokens(std::int64_t count) { return toy_tokens(count, 6); }

// True if positions predict their bytes from those before.
inline bool predicts_next_byte(const ModelConfig& config) {
  return config.objective == nullptr || config.objective->kind() == std::string("next_byte");
}

template <class Config>
class ModelProperties : public ::testing::Test {};
TYPED_TEST_SUITE_P(ModelProperties);

// The gradient of one element in the middle of every tensor equals the central difference of the loss, in double.
// (Every element of every tensor is compared with the golden vectors; every kernel has its own finite differences.)
TYPED_TEST_P(ModelProperties, GradientsEqualFiniteDifferences) {
  for (const auto& [name, config] : Toys<TypeParam>::configs()) {
    ToyModel<double> toy(config);
    toy.randomise();
    std::vector<std::uint8_t> tokens = toy_tokens(2 * config.context);
    toy.remember(earlier_tokens(2 * config.context), 2);
    toy.loss_and_gradients(tokens, 2);
    const std::vector<double> gradients = toy.gradients();
    for (const Parameter& p : toy.model().parameters().all()) {
      const std::int64_t i = p.shape.count() / 3;
      double& x = toy.values()[static_cast<std::size_t>(p.offset + i)];
      const double h = 1e-5, before = x;
      const auto loss_at = [&](double value) {
        x = value;
        double total = 0;
        for (double l : toy.losses(tokens, 2)) total += l;
        return total;
      };
      const double difference = (loss_at(before + h) - loss_at(before - h)) / (2 * h);
      x = before;
      const double gradient = gradients[static_cast<std::size_t>(p.offset + i)];
      EXPECT_NEAR(gradient, difference, 1e-6 * (1 + std::abs(difference))) << name << " " << p.name << "[" << i << "]";
    }
  }
}

TYPED_TEST_P(ModelProperties, TrainingAndEvaluationAgreeOnLossesWithoutDropout) {
  for (const auto& [name, config] : Toys<TypeParam>::configs()) {
    ToyModel<double> toy(config);
    toy.randomise();
    std::vector<std::uint8_t> tokens = toy_tokens(config.context);
    toy.remember(earlier_tokens(config.context), 1);
    double evaluated = 0;
    for (double l : toy.losses(tokens, 1)) evaluated += l;
    EXPECT_DOUBLE_EQ(toy.loss_and_gradients(tokens, 1), evaluated) << name;
  }
}

// Position i's loss does not depend on later bytes, through the mask or the shift.
TYPED_TEST_P(ModelProperties, LossesNeverLookAhead) {
  for (const auto& [name, config] : Toys<TypeParam>::configs()) {
    if (!predicts_next_byte(config)) continue;
    ToyModel<double> toy(config);
    toy.randomise();
    std::vector<std::uint8_t> tokens = toy_tokens(config.context);
    toy.remember(earlier_tokens(config.context), 1);
    const std::vector<double> before = toy.losses(tokens, 1);
    const std::size_t changed = tokens.size() / 2;
    tokens[changed] = static_cast<std::uint8_t>(tokens[changed] + 1);
    const std::vector<double> after = toy.losses(tokens, 1);
    for (std::size_t i = 0; i < changed; ++i) EXPECT_EQ(before[i], after[i]) << name << " at " << i;
    EXPECT_NE(before[changed], after[changed]) << name;
  }
}

// A short last window of an evaluation: any length up to the context, equal to the prefix of the whole.
TYPED_TEST_P(ModelProperties, ShorterSequencesGiveThePrefixOfTheLosses) {
  for (const auto& [name, config] : Toys<TypeParam>::configs()) {
    if (!predicts_next_byte(config)) continue;
    ToyModel<double> toy(config);
    toy.randomise();
    std::vector<std::uint8_t> tokens = toy_tokens(config.context);
    toy.remember(earlier_tokens(config.context), 1);
    const std::vector<double> whole = toy.losses(tokens, 1);
    for (std::size_t length : {std::size_t{1}, std::size_t{7}, tokens.size() - 1}) {
      std::vector<std::uint8_t> prefix(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(length));
      const std::vector<double> part = toy.losses(prefix, 1);
      for (std::size_t i = 0; i < length; ++i) EXPECT_NEAR(part[i], whole[i], 1e-12) << name << " " << length;
    }
  }
}

TYPED_TEST_P(ModelProperties, RecomputedGradientsAreBitIdenticalToStoredOnes) {
  for (auto [name, config] : Toys<TypeParam>::configs()) {
    config.dropout = 0.3;
    std::vector<std::vector<float>> gradients;
    for (const TypeParam& policy : Toys<TypeParam>::recompute_policies(config)) {
      ToyModel<float> toy(policy);
      toy.randomise();
      toy.remember(earlier_tokens(2 * config.context), 2);
      const std::int64_t step = 12;
      toy.context().step = &step;
      std::vector<std::uint8_t> tokens = toy_tokens(2 * config.context);
      toy.loss_and_gradients(tokens, 2);
      gradients.push_back(toy.gradients());
      gradients.back().insert(gradients.back().end(), toy.kept().begin(), toy.kept().end());
    }
    ASSERT_GT(gradients.size(), 1U);
    for (const std::vector<float>& other : gradients) EXPECT_EQ(other, gradients[0]) << name;
  }
}

TYPED_TEST_P(ModelProperties, PlannedBytesEqualUsedBytes) {
  for (const auto& [name, config] : Toys<TypeParam>::configs()) {
    for (const TypeParam& policy : Toys<TypeParam>::recompute_policies(config)) {
      ToyModel<float> toy(policy);
      std::vector<std::uint8_t> tokens = toy_tokens(3 * config.context);
      toy.loss_and_gradients(tokens, 3);
      EXPECT_EQ(toy.planned(), toy.used()) << name;
      toy.losses(tokens, 3);
      EXPECT_EQ(toy.planned(), toy.used()) << name;
    }
  }
}

// Splitting a batch into micro-batches or over ranks changes masks not at all and gradients only by rounding.
TYPED_TEST_P(ModelProperties, MicroBatchesAddUpToTheWholeBatchWithDropout) {
  TypeParam config = Toys<TypeParam>::configs().front().config;
  config.dropout = 0.4;
  std::vector<std::uint8_t> tokens = toy_tokens(4 * config.context);
  const std::int64_t step = 3;
  ToyModel<double> whole(config), parts(config);
  for (auto* toy : {&whole, &parts}) {
    toy->randomise();
    toy->context().step = &step;
  }
  const std::vector<std::uint8_t> earlier = earlier_tokens(4 * config.context);
  const auto row_of = [&](const std::vector<std::uint8_t>& all, std::int64_t r) {
    return std::vector<std::uint8_t>(all.begin() + r * config.context, all.begin() + (r + 1) * config.context);
  };
  whole.remember(earlier, 4);
  const double loss = whole.loss_and_gradients(tokens, 4);
  double sum = 0;
  for (std::int64_t r = 0; r < 4; ++r) {
    const std::vector<std::uint8_t> row = row_of(tokens, r);
    parts.forget();
    parts.remember(row_of(earlier, r), 1);
    parts.context().first_row = r;
    sum += parts.loss_and_gradients(row, 1);
  }
  EXPECT_NEAR(sum, loss, 1e-10 * loss);
  for (std::size_t i = 0; i < whole.gradients().size(); ++i)
    ASSERT_NEAR(parts.gradients()[i], whole.gradients()[i], 1e-10) << i;
}

// The losses of tokens (batch, n), of which each is given when it has been predicted; or up to `most` at once, where
// the model takes several.
template <class T>
std::vector<T> decoded_losses(ToyModel<T>& toy, const Decodes& decoder, const std::vector<std::uint8_t>& tokens,
                              std::int64_t batch, std::int64_t most = 1) {
  const std::int64_t n = std::ssize(tokens) / batch, vocabulary = toy.model().vocabulary();
  std::vector<T> losses;
  toy.run([&](Context& ctx) {
    losses.assign(tokens.size(), T(0));
    const auto state = decoder.begin_decoding(ctx, batch, n);
    for (std::int64_t first = 0, count = 0; first < n; first += count) {
      count = std::min({most, n - first, decoder.positions_together(first)});
      std::vector<std::uint8_t> previous(static_cast<std::size_t>(batch * count));
      for (std::int64_t i = 0; first > 0 && i < batch * count; ++i)
        previous[static_cast<std::size_t>(i)] = tokens[static_cast<std::size_t>(i / count * n + first + i % count - 1)];
      std::vector<T> logits(static_cast<std::size_t>(batch * count * vocabulary));
      decoder.decode(ctx, *state, first, Tensor(previous.data(), Dtype::u8, {batch, count}),
                     Tensor(logits.data(), kernels::DtypeOf<T>::value, {batch * count, vocabulary}));
      for (std::int64_t i = 0; i < batch * count; ++i) {
        const T* of_position = &logits[static_cast<std::size_t>(i * vocabulary)];
        const auto at = static_cast<std::size_t>(i / count * n + first + i % count);
        double total = 0;
        for (std::int64_t v = 0; v < vocabulary; ++v) total += std::exp(of_position[v]);
        losses[at] = static_cast<T>(std::log(total) - of_position[tokens[at]]);
      }
    }
  });
  return losses;
}

// The losses of tokens (batch, n), read in segments of the context that each continue the one before.
template <class T>
std::vector<T> losses_in_segments(ToyModel<T>& toy, const std::vector<std::uint8_t>& tokens, std::int64_t batch) {
  const std::int64_t n = std::ssize(tokens) / batch, context = toy.model().context();
  std::vector<T> all(tokens.size());
  toy.forget();
  for (std::int64_t first = 0; first < n; first += context) {
    const std::int64_t length = std::min(context, n - first);
    std::vector<std::uint8_t> segment;
    for (std::int64_t r = 0; r < batch; ++r)
      segment.insert(segment.end(), tokens.begin() + r * n + first, tokens.begin() + r * n + first + length);
    const std::vector<T> losses = toy.losses(segment, batch);
    for (std::int64_t r = 0; r < batch; ++r)
      std::copy_n(losses.begin() + r * length, length, all.begin() + r * n + first);
    toy.remember(segment, batch);
  }
  toy.forget();
  return all;
}

TYPED_TEST_P(ModelProperties, DecodingWithTheCacheGivesTheSameLossesAsTheWholeSequence) {
  for (const auto& [name, config] : Toys<TypeParam>::configs()) {
    ToyModel<double> toy(config);
    toy.randomise();
    const auto* decodes = capability<Decodes>(toy.model());
    if (decodes == nullptr) continue;
    const std::vector<std::uint8_t> tokens = toy_tokens(2 * config.context);
    const std::vector<double> whole = toy.losses(tokens, 2);
    for (const std::int64_t most : {1, 5}) {
      const std::vector<double> decoded = decoded_losses(toy, *decodes, tokens, 2, most);
      EXPECT_EQ(toy.planned(), toy.used()) << name;
      for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(decoded[i], whole[i], 1e-11) << name << " at " << i;
    }
  }
}

// A model that remembers generates longer sequences as it was trained, in segments that continue one another.
TYPED_TEST_P(ModelProperties, DecodingBeyondTheContextGivesTheLossesOfSegmentsWithTheirMemory) {
  for (const auto& [name, config] : Toys<TypeParam>::configs()) {
    ToyModel<double> toy(config);
    const auto* decodes = capability<Decodes>(toy.model());
    if (decodes == nullptr || toy.model().states().empty()) continue;
    toy.randomise();
    const std::vector<std::uint8_t> tokens = toy_tokens(2 * (4 * config.context + 3));
    const std::vector<double> whole = losses_in_segments(toy, tokens, 2);
    for (const std::int64_t most : {1, 5}) {
      const std::vector<double> decoded = decoded_losses(toy, *decodes, tokens, 2, most);
      EXPECT_EQ(toy.planned(), toy.used()) << name;
      for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(decoded[i], whole[i], 1e-11) << name << " at " << i;
    }
  }
}

REGISTER_TYPED_TEST_SUITE_P(ModelProperties, GradientsEqualFiniteDifferences,
                            TrainingAndEvaluationAgreeOnLossesWithoutDropout, LossesNeverLookAhead,
                            ShorterSequencesGiveThePrefixOfTheLosses, RecomputedGradientsAreBitIdenticalToStoredOnes,
                            PlannedBytesEqualUsedBytes, MicroBatchesAddUpToTheWholeBatchWithDropout,
                            DecodingWithTheCacheGivesTheSameLossesAsTheWholeSequence,
                            DecodingBeyondTheContextGivesTheLossesOfSegmentsWithTheirMemory);

}  // namespace longstride::test
