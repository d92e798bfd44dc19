// Decoders that keep documents apart: nothing of one reaches another, and each is scored as it is alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/mixed_toys.h"
#include "tests/support/scan_toys.h"

namespace longstride::test::documents_test {
namespace {

const std::vector<std::int64_t> ragged = {0, 5,  6,
                                          6, 14, 40};  // one of one byte, one of none, and one beyond the context

// Attention with a distance term, for which a row starts a stream.
std::vector<NamedConfig<DecoderConfig>> by_distance() {
  std::vector<NamedConfig<DecoderConfig>> out;
  for (const auto& toy : toys_of_documents()) out.push_back({toy.name + "_by_distance", toy.config});
  return out;
}

std::vector<NamedConfig<DecoderConfig>> by_scan() {
  std::vector<NamedConfig<DecoderConfig>> out;
  for (const auto& toy : scan_toys()) out.push_back({toy.name + "_by_scan", toy.config});
  return out;
}

// Forms whose parts and positions depend on distances alone, so that a document may be anywhere.
std::vector<NamedConfig<DecoderConfig>> movable() {
  std::vector<NamedConfig<DecoderConfig>> out;
  for (const auto& [name, config] : toy_configs())
    if (name == "dense" || name.starts_with("strided") || name == "beyond" || name == "transformer_xl" ||
        name == "geglu")
      out.push_back({name, config});
  for (const auto& toy : by_distance()) out.push_back(toy);
  for (const auto& toy : by_scan()) out.push_back(toy);
  return out;
}

std::vector<NamedConfig<DecoderConfig>> apart(std::vector<NamedConfig<DecoderConfig>> configs, bool restart = true) {
  for (auto& [_, config] : configs) config.documents = {true, restart};
  return configs;
}

std::vector<NamedConfig<DecoderConfig>> text_configs() {
  std::vector<NamedConfig<DecoderConfig>> out;
  for (const auto& toy : toy_configs())
    if (toy.config.geometry.rows == 0) out.push_back(toy);
  for (const auto& toy : by_distance()) out.push_back(toy);
  for (const auto& toy : by_scan()) out.push_back(toy);
  return out;
}

std::int64_t document_at(std::int64_t position) {
  return std::upper_bound(ragged.begin(), ragged.end(), position) - ragged.begin() - 1;
}

// Tokens of which every document has its own: its number, and 0 to 3.
std::vector<std::uint8_t> own_tokens(std::int64_t count) {
  std::vector<std::uint8_t> tokens = toy_tokens(count);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::uint8_t>(4 * document_at(static_cast<std::int64_t>(i)) + tokens[i] % 4);
  return tokens;
}

// Every loss of other documents, and every gradient at their input embeddings, keeps its bits.
TEST(SeparateDocuments, AChangedByteLeavesEveryBitOfOtherDocuments) {
  for (const bool restart : {true, false})
    for (const auto& [name, config] : apart(text_configs(), restart)) {
      if (config.tied_output) continue;  // then the token table has the output's gradient too
      ToyModel<double> toy(config);
      toy.set_documents(ragged);
      toy.randomise();
      const std::vector<std::uint8_t> tokens = own_tokens(config.context);
      const auto gradients = [&](const std::vector<std::uint8_t>& of) {
        std::fill(toy.gradients().begin(), toy.gradients().end(), 0.0);
        toy.loss_and_gradients(of, 1);
        return toy.gradients();
      };
      const std::vector<double> before = toy.losses(tokens, 1), gradient = gradients(tokens);
      for (const std::int64_t changed : {0, 4, 5, 6, 13, 14, 22}) {
        if (changed >= config.context) continue;
        std::vector<std::uint8_t> other = tokens;
        const std::int64_t document = document_at(changed);
        other[static_cast<std::size_t>(changed)] ^= 1;
        const std::vector<double> after = toy.losses(other, 1), moved = gradients(other);
        for (std::int64_t i = 0; i < config.context; ++i) {
          if (document_at(i) == document) continue;
          EXPECT_EQ(before[static_cast<std::size_t>(i)], after[static_cast<std::size_t>(i)])
              << name << " at " << i << " for " << changed;
        }
        EXPECT_NE(before[static_cast<std::size_t>(changed)], after[static_cast<std::size_t>(changed)]) << name;
        for (const Parameter& p : toy.model().parameters().all()) {
          if (p.name != "embedding.token.weight") continue;
          for (std::int64_t i = 0; i < p.shape.count(); ++i) {
            const std::int64_t row = i / config.width;
            if (row / 4 == document || row >= 20) continue;
            EXPECT_EQ(gradient[static_cast<std::size_t>(p.offset + i)], moved[static_cast<std::size_t>(p.offset + i)])
                << name << ", token " << row << " for " << changed;
          }
        }
      }
    }
}

TEST(SeparateDocuments, AreScoredAsEachIsAlone) {
  for (const auto& [name, config] : apart(movable())) {
    ToyModel<double> toy(config);
    toy.randomise();
    const std::vector<std::uint8_t> tokens = toy_tokens(config.context);
    toy.set_documents(ragged);
    const std::vector<double> together = toy.losses(tokens, 1);
    toy.set_documents({});
    std::vector<double> alone;
    for (std::size_t d = 0; d + 1 < ragged.size(); ++d) {
      const std::int64_t end = std::min(ragged[d + 1], config.context);
      if (end <= ragged[d]) continue;
      for (const double loss : toy.losses({tokens.begin() + ragged[d], tokens.begin() + end}, 1)) alone.push_back(loss);
    }
    ASSERT_EQ(alone.size(), together.size());
    for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(together[i], alone[i], 1e-12) << name << " at " << i;
  }
}

// Positions that continue need tables of positions to tell.
TEST(SeparateDocuments, PositionsContinueWhereAsked) {
  const std::vector<std::uint8_t> tokens = toy_tokens(23);
  std::vector<std::vector<double>> losses;
  for (const bool restart : {true, false}) {
    DecoderConfig config = toy_config();
    config.documents = {true, restart};
    ToyModel<double> toy(config);
    toy.randomise();
    toy.set_documents(ragged);
    losses.push_back(toy.losses(tokens, 1));
  }
  for (std::size_t i = 0; i < 23; ++i) EXPECT_EQ(losses[0][i] == losses[1][i], i < 5) << i;
}

// One document has the bits of a row without any.
TEST(SeparateDocuments, OneIsARowAsEver) {
  for (const auto& [name, config] : toy_configs()) {
    if (config.geometry.rows > 0) continue;
    DecoderConfig separate = config;
    separate.documents = {true, true};
    ToyModel<float> joined(config), one(separate);
    const std::vector<std::uint8_t> tokens = toy_tokens(2 * config.context);
    for (ToyModel<float>* toy : {&joined, &one}) toy->randomise();
    EXPECT_EQ(joined.losses(tokens, 2), one.losses(tokens, 2)) << name;
  }
}

// Sums of the losses of one row.
void expect_gradients(const std::string& name, ToyModel<double>& toy, const std::vector<std::uint8_t>& tokens) {
  toy.loss_and_gradients(tokens, 1);
  const std::vector<double> gradients = toy.gradients();
  for (const Parameter& p : toy.model().parameters().all())
    for (const std::int64_t i : {std::int64_t{0}, p.shape.count() / 3, p.shape.count() - 1}) {
      const auto at = static_cast<std::size_t>(p.offset + i);
      const double before = toy.values()[at], h = 1e-5;
      const auto loss_at = [&](double value) {
        toy.values()[at] = value;
        double total = 0;
        for (const double loss : toy.losses(tokens, 1)) total += loss;
        return total;
      };
      const double expected = (loss_at(before + h) - loss_at(before - h)) / (2 * h);
      toy.values()[at] = before;
      EXPECT_NEAR(gradients[at], expected, 1e-6 * std::max(1.0, std::abs(expected))) << name << ": " << p.name;
    }
}

TEST(SeparateDocuments, GradientsEqualFiniteDifferences) {
  for (const auto& [name, config] : apart(text_configs())) {
    if (name != "strided_merged" && name != "fixed_multihead" && name != "beyond" && !name.ends_with("_by_distance") &&
        !name.ends_with("_by_scan"))
      continue;
    ToyModel<double> toy(config);
    toy.randomise();
    toy.set_documents(ragged);
    expect_gradients(name, toy, own_tokens(config.context));
  }
}

TEST(SeparateDocuments, RecomputeGivesTheSameBitsInThePlannedMemory) {
  for (auto [name, config] : apart(text_configs())) {
    config.dropout = 0.3;
    std::vector<std::vector<float>> gradients;
    for (const Recompute policy :
         {Recompute::none, Recompute::selective, Recompute::block, Recompute::attention_and_feed_forward}) {
      config.recompute = policy;
      ToyModel<float> toy(config);
      toy.randomise();
      toy.set_documents(ragged);
      const std::int64_t step = 12;
      toy.context().step = &step;
      toy.loss_and_gradients(toy_tokens(2 * config.context), 2);
      EXPECT_EQ(toy.planned(), toy.used()) << name;
      gradients.push_back(toy.gradients());
      EXPECT_EQ(gradients.back(), gradients.front()) << name;
    }
  }
}

std::vector<NamedConfig<DecoderConfig>> remembering() {
  std::vector<NamedConfig<DecoderConfig>> out = by_distance();
  for (const auto& toy : by_scan()) out.push_back(toy);
  std::erase_if(out, [](const auto& toy) { return !toy.config.remembers(); });
  for (const auto& toy : Toys<MixedToy>::configs()) out.push_back({toy.name, toy.config});
  return apart(out);
}

// The losses of a stream of segments that are `first` and then `segment` long.
std::vector<double> losses_of_stream(ToyModel<double>& toy, const std::vector<std::uint8_t>& tokens, std::int64_t first,
                                     std::int64_t segment) {
  std::vector<double> out;
  toy.forget();
  for (auto at = tokens.begin(); at != tokens.end();) {
    const auto end = at + std::min<std::ptrdiff_t>(at == tokens.begin() ? first : segment, tokens.end() - at);
    for (const double loss : toy.losses({at, end}, 1)) out.push_back(loss);
    toy.remember({at, end}, 1);
    at = end;
  }
  return out;
}

// Documents that end within segments and with them, after fewer positions and more than all memories hold. Rows of a
// compressed memory are whole within each of them.
std::vector<std::int64_t> ends_in_stream(std::int64_t segment) {
  return {0, 3, segment, 2 * segment + 6, 2 * segment + 9, 7 * segment - 3, 8 * segment, 11 * segment};
}

TEST(SeparateDocuments, OfAStreamAreScoredAsEachIsAlone) {
  for (const auto& [name, config] : remembering()) {
    ToyModel<double> toy(config);
    toy.randomise();
    const std::int64_t n = config.context;
    const std::vector<std::int64_t> ends = ends_in_stream(n);
    const std::vector<std::uint8_t> tokens = toy_tokens(ends.back());
    toy.set_documents(ends);
    const std::vector<double> together = losses_of_stream(toy, tokens, n, n);
    toy.set_documents({});
    for (std::size_t d = 0; d + 1 < ends.size(); ++d) {
      const std::vector<double> alone =
          losses_of_stream(toy, {tokens.begin() + ends[d], tokens.begin() + ends[d + 1]}, n - ends[d] % n, n);
      for (std::size_t i = 0; i < alone.size(); ++i)
        ASSERT_NEAR(together[static_cast<std::size_t>(ends[d]) + i], alone[i], 1e-12) << name << " " << d << " " << i;
    }
  }
}

// Rows that are compressed from two documents are among them.
TEST(SeparateDocuments, AChangedByteOfAStreamLeavesEveryBitOfOtherDocuments) {
  const std::vector<std::int64_t> ends = {0, 4, 31, 50, 120};
  for (const auto& [name, config] : remembering()) {
    ToyModel<double> toy(config);
    toy.randomise();
    toy.set_documents(ends);
    const std::vector<std::uint8_t> tokens = toy_tokens(ends.back());
    const std::vector<double> before = losses_of_stream(toy, tokens, config.context, config.context);
    for (std::size_t d = 0; d + 1 < ends.size(); ++d) {
      std::vector<std::uint8_t> other = tokens;
      for (std::int64_t i = ends[d]; i < ends[d + 1]; ++i) other[static_cast<std::size_t>(i)] ^= 0x55;
      const std::vector<double> after = losses_of_stream(toy, other, config.context, config.context);
      for (std::int64_t i = 0; i < ends.back(); ++i)
        ASSERT_EQ(before[static_cast<std::size_t>(i)] == after[static_cast<std::size_t>(i)],
                  i < ends[d] || i >= ends[d + 1])
            << name << " at " << i << ", document " << d;
    }
  }
}

// With what a row remembers, which gets no gradient.
TEST(SeparateDocuments, GradientsBehindAMemoryEqualFiniteDifferences) {
  for (const auto& [name, config] : remembering()) {
    ToyModel<double> toy(config);
    toy.randomise();
    toy.set_documents({0, 20, 34, 100});
    const std::vector<std::uint8_t> tokens = toy_tokens(3 * config.context);
    const auto segment = [&](std::int64_t s) {
      return std::vector<std::uint8_t>(tokens.begin() + s * config.context, tokens.begin() + (s + 1) * config.context);
    };
    toy.remember(segment(0), 1);
    toy.remember(segment(1), 1);
    expect_gradients(name, toy, segment(2));
  }
}

}  // namespace
}  // namespace longstride::test::documents_test
