// Decoders whose layers have several mixers, one after another or side by side.
#include "tests/support/mixed_toys.h"
#include "tests/support/model_properties.h"

namespace longstride::test {

INSTANTIATE_TYPED_TEST_SUITE_P(Mixed, ModelProperties, MixedToy);

namespace {

const MixesPositions& mixes(ToyModel<double>& toy) { return required<MixesPositions>(toy.model(), "mix"); }

// The names and the order of all parameters, and so the bits.
TEST(Mixers, AListWithOneEntryIsTheShortForm) {
  for (const DecoderConfig& shorter : {DecoderConfig(transformer_xl_toy()), toy_config()}) {
    ToyModel<double> one(shorter), list(mixed_toy(shorter, shorter.entries()));
    ASSERT_EQ(one.model().parameters().all().size(), list.model().parameters().all().size());
    for (std::size_t k = 0; k < one.model().parameters().all().size(); ++k)
      EXPECT_EQ(one.model().parameters().all()[k].name, list.model().parameters().all()[k].name);
    for (auto* toy : {&one, &list}) toy->randomise();
    const std::vector<std::uint8_t> text = toy_tokens(2 * shorter.context);
    EXPECT_EQ(one.losses(text, 2), list.losses(text, 2));
  }
}

TEST(Mixers, EveryLayerHasTheMixerOfItsEntry) {
  ToyModel<double> toy{alternating_toy()};
  std::vector<std::string> kinds;
  for (std::int64_t layer = 0; layer < 5; ++layer) kinds.push_back(mixes(toy).mixer(layer).kind(0));
  EXPECT_EQ(kinds, (std::vector<std::string>{"all keys", "local", "local", "all keys", "local"}));
  ToyModel<double> beside{side_by_side_toy()};
  EXPECT_EQ(mixes(beside).mixer(1).kind(0), "local");
  EXPECT_EQ(mixes(beside).mixer(1).kind(3), "all keys");
}

// An interleaved pattern goes on where its own last layer was, not where the model's was.
TEST(Mixers, AnInterleavedPatternCountsItsOwnLayers) {
  kernels::PatternConfig pattern;
  pattern.parts = {kernels::PartKind::local, kernels::PartKind::column};
  pattern.stride = 4;
  MixedToy config = mixed_toy(toy_config(), {entry_of({MixerItem(std::make_unique<AttentionConfig>(pattern))}),
                                             entry_of({distance_item(house_toy())})});
  config.positions = Positions::none;
  config.layers = 4;
  config.context = 13;
  ToyModel<double> toy(config);
  EXPECT_EQ(mixes(toy).mixer(0).kind(0), "local");
  EXPECT_EQ(mixes(toy).mixer(2).kind(0), "column");
}

// A memory that one mixer lacks is neither changed nor a mistake while another has it.
TEST(Mixers, AnEvaluationChangesTheMemoriesThatThereAre) {
  MixedToy trained = many_memories_toy();
  const auto before = trained.with_distances();
  std::int64_t length = 0, compressed = 0;
  for (const auto& [d, m] : before)
    length = std::max(length, m->length), compressed = std::max(compressed, m->compressed);
  EXPECT_EQ(trained.evaluated_memory().length, length);
  EXPECT_EQ(trained.evaluated_memory().compressed, compressed);
  EvaluatedMemory longer;
  longer.length = 4 * trained.context;
  longer.compressed = 2 * compressed;
  const auto changed = std::dynamic_pointer_cast<DecoderConfig>(trained.with_memory(longer));
  const auto after = changed->with_distances();
  ASSERT_EQ(after.size(), before.size());
  for (std::size_t k = 0; k < after.size(); ++k) {
    EXPECT_EQ(after[k].memory->length, before[k].memory->length > 0 ? 4 * trained.context : 0);
    EXPECT_EQ(after[k].memory->compressed, 2 * (before[k].memory->compressed > 0 ? compressed : 0));
  }
}

// Bytes before the reach change no loss, and one at it does.
TEST(Mixers, ReachThroughTheMemoriesOfOtherLayers) {
  const MixedToy config = Toys<MixedToy>::without_dropout(alternating_toy());
  ToyModel<double> toy(config);
  toy.randomise();
  // Two layers remember 13 positions each; the windows of the others end where a segment begins.
  const LookBack reach = look_back(mixes(toy));
  EXPECT_EQ(reach.before_segment, 2 * 13);
  const std::int64_t n = config.context, segments = 6;
  const std::vector<std::uint8_t> text = toy_tokens(segments * n);
  const auto last_losses = [&](const std::vector<std::uint8_t>& bytes) {
    toy.forget();
    for (std::int64_t s = 0; s + 1 < segments; ++s)
      toy.remember({bytes.begin() + s * n, bytes.begin() + (s + 1) * n}, 1);
    return toy.losses({bytes.end() - n, bytes.end()}, 1);
  };
  const std::vector<double> expected = last_losses(text);
  const auto at = static_cast<std::size_t>((segments - 1) * n - reach.before_segment - 1);
  std::vector<std::uint8_t> earlier = text, first = text;
  for (std::size_t b = 0; b < at; ++b) earlier[b] ^= 1;
  first[at] ^= 1;
  EXPECT_EQ(last_losses(earlier), expected);
  EXPECT_NE(last_losses(first), expected);
}

TEST(Mixers, LossesOfAllMixersAreNamedOnce) {
  ToyModel<double> toy{many_memories_toy()};
  EXPECT_EQ(toy.model().auxiliary_losses(), (std::vector<std::string>{"reconstruction", "span"}));
}

}  // namespace
}  // namespace longstride::test
