// Encoders: every property of models, and that no score depends on what is hidden from it.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "framework/mixers/scan/config.h"
#include "framework/models/encoder/encoder.h"
#include "tests/models/encoder_toys.h"
#include "tests/support/model_properties.h"

namespace longstride::test {
namespace {

INSTANTIATE_TYPED_TEST_SUITE_P(Encoder, ModelProperties, EncoderConfig);

// The rows of toys, with scores of all possible answers.
struct Scored {
  std::vector<std::uint16_t> tokens;
  std::vector<double> scores;
};

Scored scored(ToyModel<double>& toy, const std::vector<std::uint8_t>& bytes,
              const std::function<void(const Batch&)>& change = {}) {
  const auto& predicts = required<Predicts>(toy.model(), "predict");
  const auto seq = static_cast<std::int64_t>(bytes.size());
  const Shape asked = predicts.scores_shape(seq);
  Scored out;
  out.scores.resize(static_cast<std::size_t>(asked.count()));
  toy.with_batch(bytes, 1, [&](const Batch& rows, const Shape&) {
    if (change) change(rows);
    const auto* tokens = rows.tokens.as<const std::uint16_t>();
    out.tokens.assign(tokens, tokens + seq);
    toy.run([&](Context& ctx) {
      predicts.predict(ctx, rows, Tensor(out.scores.data(), Dtype::f64, {1, asked[0], asked[1]}));
    });
    EXPECT_EQ(toy.planned(), toy.used());
  });
  return out;
}

TEST(Encoder, EveryScoreReadsBothSidesAndNotOnlyItsOwnToken) {
  EncoderConfig config = encoder_toy();
  ToyModel<double> toy(config);
  toy.randomise();
  const std::vector<std::uint8_t> bytes = toy_tokens(config.context);
  const Scored before = scored(toy, bytes);
  for (const std::int64_t changed : {std::int64_t{0}, config.context / 2, config.context - 1}) {
    const Scored after = scored(toy, bytes, [&](const Batch& rows) {
      auto& token = rows.tokens.as<std::uint16_t>()[changed];
      token = static_cast<std::uint16_t>((token + 1) % ids::all);
    });
    for (std::int64_t i = 0; i < config.context; ++i)
      EXPECT_NE(before.scores[static_cast<std::size_t>(i * ids::all)],
                after.scores[static_cast<std::size_t>(i * ids::all)])
          << changed << " read at " << i;
  }
}

TEST(Encoder, WindowsLimitWhatIsReadOnBothSides) {
  EncoderConfig config = encoder_toy();
  config.layers = 1;
  config.attention.parts = {kernels::PartKind::local};
  config.attention.window = 5;
  ToyModel<double> toy(config);
  toy.randomise();
  const std::vector<std::uint8_t> bytes = toy_tokens(config.context);
  constexpr std::int64_t changed = 11;
  const Scored before = scored(toy, bytes),
               after = scored(toy, bytes, [](const Batch&rows) { rows.tokens.as<std::uint16_t>()[changed] ^= 1; });
  for (std::int64_t i = 0; i < config.context; ++i)
    EXPECT_EQ(
        before.scores[static_cast<std::size_t>(i * ids::all)] != after.scores[static_cast<std::size_t>(i * ids::all)],
        std::abs(i - changed) <= 2)
        << i;
}

// One layer's reads are those that its mixer tells, for `show pattern` and the count of pairs.
TEST(Encoder, ReadsWhatItsPatternShows) {
  for (auto [name, config] : encoder_toys()) {
    if (!config.mixers.empty() || config.query_key_norm || config.objective->kind() != std::string("masked")) continue;
    config.layers = 1;
    ToyModel<double> toy(config);
    toy.randomise();
    const Mixer& mixer = required<MixesPositions>(toy.model(), "mixer").mixer(0);
    const std::vector<std::uint8_t> bytes = toy_tokens(config.context);
    const Scored before = scored(toy, bytes);
    const std::int64_t before_rows = mixer.key_rows().before();
    const std::int64_t added = config.global.added, seen_by_added = config.global.own_group ? 1 : added;
    double pairs =
        static_cast<double>(config.heads * (added * (added + config.context) + seen_by_added * config.context));
    for (std::int64_t j = 0; j < config.context; ++j) {
      const bool read = j % 16 < 2;  // the model is run once for every one of these
      const Scored after =
          !read ? Scored{} : scored(toy, bytes, [&](const Batch& rows) { rows.tokens.as<std::uint16_t>()[j] ^= 1; });
      for (std::int64_t i = 0; i < config.context; ++i) {
        bool seen = i == j;
        for (std::int64_t head = 0; head < config.heads; ++head) {
          const bool by_head = mixer.pair_weight(head, 0)(i, before_rows + j) > 0;
          pairs += by_head;
          seen |= by_head;
        }
        const auto at = static_cast<std::size_t>(i * ids::all);
        if (read) {
          ASSERT_EQ(before.scores[at] != after.scores[at], seen) << name << ": " << j << " read at " << i;
        }
      }
    }
    EXPECT_EQ(mixer.cost(config.context).pairs, pairs) << name;
  }
}

// Global rows begin with the projections of the others.
TEST(Encoder, ProjectionsOfGlobalRowsBeginAsTheOthers) {
  EncoderConfig config = encoder_toy();
  config.attention.parts = {kernels::PartKind::local};
  config.attention.window = 5;
  config.global = {.first = 2, .own = true};
  ToyModel<double> toy(config);
  EncoderConfig shared = config;
  shared.global.own = false;
  ToyModel<double> same(shared);
  const std::vector<std::uint8_t> bytes = toy_tokens(config.context);
  EXPECT_EQ(scored(toy, bytes).scores, scored(same, bytes).scores);
}

// Documents, and padding, which is a group of its own.
TEST(Encoder, OtherDocumentsOfARowChangeNoBit) {
  for (const auto& [name, toy_of] : encoder_toys()) {
    EncoderConfig config = toy_of;
    if (config.objective->kind() != std::string("masked") || config.global.added > 0) continue;
    config.documents = {true, true, false};
    ToyModel<double> toy(config);
    toy.randomise();
    toy.set_documents({0, 5, 16, config.context});
    const std::vector<std::uint8_t> bytes = toy_tokens(config.context);
    const Scored before = scored(toy, bytes), after = scored(toy, bytes, [&](const Batch&rows) {
                                                auto* tokens = rows.tokens.as<std::uint16_t>();
                                                for (std::int64_t i = 0; i < config.context; ++i)
                                                  if (i < 5 || i >= 16)
                                                    tokens[i] = static_cast<std::uint16_t>((511 - i) % 256);
                                              });
    for (std::int64_t i = 5 * ids::all; i < 16 * ids::all; ++i)
      ASSERT_EQ(before.scores[static_cast<std::size_t>(i)], after.scores[static_cast<std::size_t>(i)]) << name;
    EXPECT_NE(before.scores.front(), after.scores.front()) << name;
  }
}

// Added rows see the row's own positions alone. OpenBLAS rounds a row of a product by its place in a tile, so sequences
// and added rows are 48, which fill the tiles of all its kernels.
TEST(Encoder, PaddingAndTheOrderOfRowsChangeNoBit) {
  for (const auto& [name, toy_of] : encoder_toys()) {
    EncoderConfig config = toy_of;
    if (config.objective->kind() != std::string("masked") || config.global.added == 0) continue;
    config.documents = {true, false, true};
    config.context = config.global.added = 48;
    ToyModel<double> toy(config);
    toy.randomise();
    constexpr std::int64_t length = 13;
    toy.set_length(length);
    const std::vector<std::uint8_t> bytes = toy_tokens(config.context);
    const Scored before = scored(toy, bytes), after = scored(toy, bytes, [&](const Batch&rows) {
                                                for (std::int64_t i = length; i < config.context; ++i)
                                                  rows.tokens.as<std::uint16_t>()[i] = static_cast<std::uint16_t>(i);
                                              });
    for (std::int64_t i = 0; i < length * ids::all; ++i)
      ASSERT_EQ(before.scores[static_cast<std::size_t>(i)], after.scores[static_cast<std::size_t>(i)]) << name;
    EXPECT_NE(before.scores.back(), after.scores.back()) << name;
    const std::vector<std::uint8_t> both = toy_tokens(2 * config.context);
    const std::vector<double> losses = toy.losses(both, 2);
    toy.context().first_row = 1;  // the second row's masks
    const std::vector<double> second = toy.losses({both.begin() + config.context, both.end()}, 1);
    toy.context().first_row = 0;
    EXPECT_EQ(second, std::vector<double>(losses.begin() + config.context, losses.end())) << name;
  }
}

// The contrast of hidden groups adds its own loss and gradients, a mean over sequences, whatever the micro-batches.
TEST(Encoder, ContrastAddsItsGradients) {
  EncoderConfig config = encoder_toy({.unit = MaskedUnit::group, .share = 0.4});
  config.attention.parts = {kernels::PartKind::local};
  config.attention.window = 5;
  config.attention_heads.labels = 2;
  config.global = {.added = 4, .of_groups = true};
  config.contrast = 0.3;
  ToyModel<double> toy(config);
  toy.randomise();
  ASSERT_EQ(toy.model().auxiliary_losses(), std::vector<std::string>{"contrast"});
  std::vector<double> sums(1);
  toy.context().auxiliary = {Tensor(sums.data(), Dtype::f64, {1}), 1.0, true};
  const std::vector<std::uint8_t> tokens = toy_tokens(2 * config.context);
  const auto total = [&] {  // run() plans first, which adds nothing
    sums[0] = 0;
    const double loss = toy.loss_and_gradients(tokens, 2);
    return loss + sums[0];
  };
  total();
  const std::vector<double> gradients = toy.gradients();
  EXPECT_GT(sums[0], 0.01);
  for (const Parameter& p : toy.model().parameters().all()) {
    if (p.name == "embedding.token.weight") continue;  // constant in the contrast
    const std::int64_t i = p.shape.count() / 3;
    double& x = toy.values()[static_cast<std::size_t>(p.offset + i)];
    const double h = 1e-5, before = x;
    x = before + h;
    const double above = total();
    x = before - h;
    const double difference = (above - total()) / (2 * h);
    x = before;
    EXPECT_NEAR(gradients[static_cast<std::size_t>(p.offset + i)], difference, 1e-6 * (1 + std::abs(difference)))
        << p.name;
  }
  ToyModel<double> parts(config);
  parts.randomise();
  std::vector<double> of_parts(1);
  parts.context().auxiliary = {Tensor(of_parts.data(), Dtype::f64, {1}), 0.5, true};
  for (std::int64_t r = 0; r < 2; ++r) {
    parts.context().first_row = r;
    const auto first = tokens.begin() + r * config.context;
    parts.loss_and_gradients({first, first + config.context}, 1);
  }
  total();
  EXPECT_NEAR(of_parts[0], sums[0], 1e-12);
  for (std::size_t i = 0; i < gradients.size(); ++i) ASSERT_NEAR(parts.gradients()[i], gradients[i], 1e-10) << i;
}

// Each position reads the added row of its group by another vector than the others' rows.
TEST(Encoder, GroupsDecideOverLabelsAndOverWhatAddedRowsSee) {
  for (auto [name, config] : encoder_toys()) {
    if (!config.global.of_groups) continue;
    config.objective = std::make_shared<Masked>(MaskedSettings{});  // whose masks no group changes
    ToyModel<double> toy(config);
    toy.randomise();
    const std::vector<std::uint8_t> bytes = toy_tokens(config.context);
    const Scored before = scored(toy, bytes);
    toy.set_groups({0, 3, 5, 11, 18, config.context});
    const Scored after = scored(toy, bytes);
    EXPECT_NE(before.scores, after.scores) << name;
  }
}

// The same document at another place, with more padding: positions restart.
TEST(Encoder, HiddenRowsAreThoseOfTheDocumentAlone) {
  EncoderConfig config = encoder_toy();
  config.documents = {true, true, false};
  ToyModel<double> toy(config);
  toy.randomise();
  const std::vector<std::uint8_t> bytes = toy_tokens(config.context);
  const std::vector<std::uint8_t> own(bytes.begin() + 5, bytes.begin() + 16);
  const auto plain = [&](const std::vector<std::uint8_t>& of) {
    return [&](const Batch& rows) { std::copy(of.begin(), of.end(), rows.tokens.as<std::uint16_t>()); };
  };
  toy.set_documents({0, 5, 16, config.context});
  const Scored within = scored(toy, bytes, plain(bytes));
  toy.set_documents({});
  const Scored alone = scored(toy, own, plain(own));
  for (std::int64_t i = 0; i < 11 * ids::all; ++i)
    ASSERT_NEAR(within.scores[static_cast<std::size_t>(5 * ids::all + i)], alone.scores[static_cast<std::size_t>(i)],
                1e-12);
}

TEST(Encoder, HiddenRowsAndScoresOfItsHeadAgree) {
  for (const NamedConfig<EncoderConfig>& one : encoder_toys()) {
    const auto& name = one.name;  // which lambdas capture, unlike a binding
    const EncoderConfig& config = one.config;
    ToyModel<double> toy(config);
    toy.randomise();
    const std::vector<std::uint8_t> bytes = toy_tokens(config.context);
    const auto& encodes = required<Encodes>(toy.model(), "encode");
    std::vector<double> hidden(static_cast<std::size_t>(config.context * encodes.width()));
    toy.with_batch(bytes, 1, [&](const Batch& rows, const Shape&) {
      toy.run([&](Context& ctx) {
        encodes.encode(ctx, rows, Tensor(hidden.data(), Dtype::f64, {1, config.context, encodes.width()}));
      });
    });
    EXPECT_TRUE(std::all_of(hidden.begin(), hidden.end(), [](double x) { return std::isfinite(x); }));
    // With its final norm a row has the mean and deviation of that norm's bias and gain, so is never the same twice.
    EXPECT_NE(hidden[0], hidden[static_cast<std::size_t>(encodes.width())]) << name;
  }
}

// losses() and judge() agree, and "right" is what the scores say.
TEST(Encoder, JudgesByItsScores) {
  for (const NamedConfig<EncoderConfig>& one : encoder_toys()) {
    const auto& name = one.name;  // which lambdas capture, unlike a binding
    const EncoderConfig& config = one.config;
    ToyModel<double> toy(config);
    toy.randomise();
    const std::vector<std::uint8_t> bytes = toy_tokens(config.context);
    const Scored all = scored(toy, bytes);
    const std::vector<double> losses = toy.losses(bytes, 1);
    const auto& judges = required<Judges>(toy.model(), "judge");
    if (judges.judged() != Dtype::u8) continue;
    const Shape asked = required<Predicts>(toy.model(), "predict").scores_shape(config.context);
    std::vector<double> judged(losses.size());
    std::vector<std::uint8_t> right(losses.size());
    toy.with_batch(bytes, 1, [&](const Batch& rows, const Shape&) {
      const Shape shape{1, asked[0]};
      toy.run([&](Context& ctx) {
        judges.judge(ctx, rows, Tensor(judged.data(), Dtype::f64, shape), Tensor(right.data(), Dtype::u8, shape));
      });
      const auto* targets = rows.targets.as<const std::uint16_t>();
      for (std::int64_t i = 0; i < asked[0]; ++i) {
        const auto row = all.scores.begin() + i * asked[1];
        const bool best = asked[1] == 1 ? (*row >= 0) == (targets[i] == 1)  // an answer by itself
                                        : row[targets[i]] == *std::max_element(row, row + asked[1]);
        EXPECT_EQ(right[static_cast<std::size_t>(i)] != 0, best) << name << " " << i;
      }
    });
    EXPECT_EQ(judged, losses) << name;
  }
}

// The best span is that of the scores, whose losses are of its two ends.
TEST(Encoder, JudgesSpansByTheBestPair) {
  EncoderConfig config = encoder_toy();
  config.objective = std::make_shared<Spans>();
  ToyModel<double> toy(config);
  toy.randomise();
  const std::vector<std::uint8_t> bytes = toy_tokens(config.context);
  const Scored all = scored(toy, bytes);
  const auto& judges = required<Judges>(toy.model(), "judge");
  const std::int64_t n = config.context;
  const auto at = [&](std::int64_t i, std::int64_t end) { return all.scores[static_cast<std::size_t>(end * n + i)]; };
  std::int64_t first = 0, last = 0;
  for (std::int64_t j = 1; j < n; ++j)
    for (std::int64_t i = 1; i <= j; ++i)
      if (at(i, 0) + at(j, 1) > at(first, 0) + at(last, 1)) first = i, last = j;
  ASSERT_GT(last, 0);
  ASSERT_LT(last, n - 1);
  for (const bool right : {true, false}) {
    std::vector<double> losses(2);
    std::vector<float> judged(2);
    toy.with_batch(bytes, 1, [&](const Batch& rows, const Shape& shape) {
      rows.targets.as<std::uint16_t>()[0] = static_cast<std::uint16_t>(first);
      rows.targets.as<std::uint16_t>()[1] = static_cast<std::uint16_t>(right ? last : last + 1);
      toy.run([&](Context& ctx) {
        judges.judge(ctx, rows, Tensor(losses.data(), Dtype::f64, shape), Tensor(judged.data(), Dtype::f32, shape));
      });
      EXPECT_EQ(toy.planned(), toy.used());
    });
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += std::exp(at(i, 0));
    EXPECT_NEAR(losses[0], std::log(sum) - at(first, 0), 1e-12);
    const auto length = static_cast<float>(last - first + 1);
    EXPECT_EQ(judged[0], right ? 1 : 0);
    EXPECT_FLOAT_EQ(judged[1], right ? 1 : 2 * length / (2 * length + 1));
  }
}

TEST(Encoder, ATypeChangesEveryScore) {
  EncoderConfig config = encoder_toy();
  config.types = true;
  ToyModel<double> toy(config);
  toy.randomise();
  const std::vector<std::uint8_t> bytes = toy_tokens(config.context);
  const Scored before = scored(toy, bytes), after = scored(toy, bytes, [](const Batch&rows) {
                                              auto* types = rows.types.as<std::uint8_t>();
                                              EXPECT_EQ(types[3], 0);
                                              EXPECT_EQ(types[4], 1);
                                              types[4] = 0;
                                            });
  for (std::int64_t i = 0; i < config.context; ++i)
    EXPECT_NE(before.scores[static_cast<std::size_t>(i * ids::all)],
              after.scores[static_cast<std::size_t>(i * ids::all)]);
}

}  // namespace
}  // namespace longstride::test
