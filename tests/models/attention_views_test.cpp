// Views of attention with a distance term: masks, probabilities, and how far back it reads.
#include "framework/models/mixes_positions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/models/dense_attention_maps.h"
#include "tests/support/distance_toys.h"

namespace longstride::test {
namespace {

DistanceToy quiet(const DistanceToy& config) { return Toys<DistanceToy>::without_dropout(config); }

void set_spans(ToyModel<double>& toy, const std::vector<double>& of_heads) {
  for (const Parameter& p : toy.model().parameters().all())
    for (std::int64_t i = 0; p.limits && i < p.shape.count(); ++i)
      toy.values()[static_cast<std::size_t>(p.offset + i)] = of_heads[static_cast<std::size_t>(i) % of_heads.size()];
}

std::vector<std::int64_t> all_queries(const DecoderConfig& config) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < config.context; ++i) out.push_back(i);
  return out;
}

using Maps = std::map<std::int64_t, MixesPositions::Probabilities>;  // by layer

// The maps of the last segment of a text whose first one starts a stream.
Maps maps_of(ToyModel<double>& toy, const std::vector<std::uint8_t>& text) {
  const std::int64_t context = toy.model().context(), segments = std::ssize(text) / context,
                     half = toy.model().states().row_bytes(toy.context().state_types());
  toy.forget();
  const auto segment = [&](std::int64_t s) {
    return std::vector(text.begin() + s * context, text.begin() + (s + 1) * context);
  };
  for (std::int64_t s = 0; s + 1 < segments; ++s) toy.remember(segment(s), 1);
  const bool starts = segments == 1;
  std::vector<double> states(static_cast<std::size_t>(2 * half) / sizeof(double), 0.0);
  if (!starts) std::copy(toy.kept().begin(), toy.kept().end(), states.begin());
  const Tensor both(states.data(), Dtype::u8, {2, half});
  const BatchLayout layout(toy.model().fields(), 1, context);
  std::vector<std::byte> block(layout.bytes());
  const Batch rows = layout.at(block.data());
  const std::vector<std::uint8_t> last = segment(segments - 1);
  write_row(rows, 0, last.data(), starts ? 0 : text[text.size() - last.size() - 1], starts);
  if (half > 0)
    toy.context().state = RowStates(1, toy.context().state_types(), both.slice(0, 0, 1).reshape({half}),
                                    both.slice(0, 1, 2).reshape({half}));
  Maps out;
  std::vector<std::int64_t> queries;
  for (std::int64_t i = 0; i < context; ++i) queries.push_back(i);
  toy.run([&](Context& ctx) {
    required<MixesPositions>(toy.model(), "show")
        .visit_attention(ctx, rows, queries,
                         [&](std::int64_t layer, const auto& probabilities) { out[layer] = probabilities; });
  });
  toy.context().state = {};
  EXPECT_EQ(toy.planned(), toy.used());
  return out;
}

std::int64_t segments_to_fill(const DecoderConfig& config) {
  const MemoryConfig& m = config.memory;
  return (m.length + m.rate * m.compressed + config.context - 1) / config.context + 2;
}

// The command draws what attention does: a key row has a probability exactly where the mask has a weight.
TEST(AttentionViews, TheMaskIsWhereProbabilitiesAreNotZero) {
  for (const auto& [name, toy_config] : distance_toys()) {
    SCOPED_TRACE(name);
    const DistanceToy config = quiet(toy_config);
    ToyModel<double> toy(config);
    toy.randomise();
    const double share = 0.4375;  // exact in both types
    set_spans(toy, {share});
    const Maps maps = maps_of(toy, toy_tokens(segments_to_fill(config) * config.context));
    const auto& shows = required<MixesPositions>(toy.model(), "show");
    const double span = share * static_cast<double>(config.distance.span.longest);
    const std::int64_t before = shows.mixer(0).key_rows().before();
    ASSERT_EQ(std::ssize(maps), config.layers);
    std::int64_t hidden = 0;
    for (std::int64_t layer = 0; layer < config.layers; ++layer)
      for (std::int64_t head = 0; head < config.heads; ++head) {
        const Mixer::PairWeight weight = shows.mixer(layer).pair_weight(head, span);
        for (const std::int64_t query : all_queries(config)) {
          const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
          const std::vector<double>& p = maps.at(layer)[at(query)][at(head)];
          ASSERT_EQ(std::ssize(p), before + query + 1);
          double sum = 0;
          for (std::int64_t j = 0; j < std::ssize(p); ++j) {
            EXPECT_EQ(p[at(j)] > 0, weight(query, j) > 0) << layer << " " << head << " " << query << " " << j;
            hidden += weight(query, j) == 0;
            sum += p[at(j)];
          }
          for (std::int64_t j = before + query + 1; j < before + config.context; ++j) EXPECT_EQ(weight(query, j), 0);
          EXPECT_NEAR(sum, 1, before + query == 0 && !config.distance.self ? 1 : 1e-12);
        }
      }
    const bool hides = config.distance.window.size() + (config.distance.span.given() ? 1 : 0) > 0;
    EXPECT_EQ(hidden > 0, hides);
  }
}

// Both layers are compared; a first layer that adds nothing makes their inputs those of the text.
TEST(AttentionViews, ProbabilitiesAreThoseOfADenseComputation) {
  for (const auto& [name, toy_config] : distance_toys()) {
    if (toy_config.query_key_norm) continue;  // rotated: the dense computation has tables of distances
    if (toy_config.memory.compressed > 0 && toy_config.memory.compress != Compression::mean) continue;
    DistanceToy config = quiet(toy_config);
    config.layers = 2;
    config.adaptive = {};  // the dense computation has one table of tokens
    if (config.distance.window.size() > 1) config.distance.window = {4, 7}, config.distance.dilation = {1, 3};
    // A full memory, one that is not full yet, and none.
    for (const std::int64_t segments : {segments_to_fill(config), std::int64_t{2}, std::int64_t{1}}) {
      if (segments > 1 && config.memory.length == 0) continue;
      SCOPED_TRACE(name + ", segments " + std::to_string(segments));
      ToyModel<double> toy(config);
      toy.randomise();
      set_spans(toy, {0.21, 0.83});
      silence_first_layer(toy.model().parameters());
      const std::vector<std::uint8_t> text = toy_tokens(segments * config.context);
      const Maps maps = maps_of(toy, text);
      const DenseAttentionMaps dense(config, toy.model().parameters(), text);
      for (std::int64_t layer = 0; layer < 2; ++layer)
        for (const std::int64_t query : all_queries(config))
          for (std::int64_t head = 0; head < config.heads; ++head) {
            const auto& found = maps.at(layer)[static_cast<std::size_t>(query)][static_cast<std::size_t>(head)];
            const std::vector<double> expected = dense.probabilities(layer, head, query);
            ASSERT_EQ(found.size(), expected.size());
            for (std::size_t j = 0; j < found.size(); ++j)
              ASSERT_NEAR(found[j], expected[j], 1e-11) << layer << " " << head << " " << query << " " << j;
          }
    }
  }
}

std::vector<double> last_losses(ToyModel<double>& toy, const std::vector<std::uint8_t>& text) {
  const std::int64_t context = toy.model().context(), segments = std::ssize(text) / context;
  toy.forget();
  const auto segment = [&](std::int64_t s) {
    return std::vector(text.begin() + s * context, text.begin() + (s + 1) * context);
  };
  for (std::int64_t s = 0; s + 1 < segments; ++s) toy.remember(segment(s), 1);
  return toy.losses(segment(segments - 1), 1);
}

// Position p reads byte p - 1, so a reach of g positions is one of g + 1 bytes.
TEST(AttentionViews, NothingBeyondTheReachChangesALossAndSomethingAtItDoes) {
  for (const auto& [name, toy_config] : distance_toys()) {
    SCOPED_TRACE(name);
    const DistanceToy config = quiet(toy_config);
    ToyModel<double> toy(config);
    toy.randomise();
    set_spans(toy, {1.0});
    const LookBack reach = look_back(required<MixesPositions>(toy.model(), "look back"));
    const std::int64_t context = config.context,
                       segments = std::max(reach.farthest / context + 2, segments_to_fill(config)),
                       last = (segments - 1) * context;
    std::vector<std::uint8_t> text = toy_tokens(segments * context);
    const std::vector<double> expected = last_losses(toy, text);
    // Bytes that no position reads, because of the memory or of the distance, change nothing.
    std::vector<std::uint8_t> other = text;
    for (std::int64_t b = 0; b < last - reach.before_segment - 1; ++b) other[static_cast<std::size_t>(b)] ^= 1;
    EXPECT_EQ(last_losses(toy, other), expected);
    bool farthest = false, first = reach.before_segment == 0;
    for (std::int64_t i = 0; i < context; ++i) {
      other = text;
      for (std::int64_t b = 0; b < last + i - reach.farthest - 1; ++b) other[static_cast<std::size_t>(b)] ^= 1;
      EXPECT_EQ(last_losses(toy, other)[static_cast<std::size_t>(i)], expected[static_cast<std::size_t>(i)]) << i;
      // Without a memory the farthest position reads the start vector, and the next one a byte.
      const std::int64_t at = last + i - reach.farthest - (config.memory.length > 0 ? 1 : 0);
      if (at < 0) continue;
      other = text;
      other[static_cast<std::size_t>(at)] ^= 1;
      farthest |= last_losses(toy, other)[static_cast<std::size_t>(i)] != expected[static_cast<std::size_t>(i)];
    }
    if (const std::int64_t at = last - reach.before_segment - 1; at >= 0 && reach.before_segment > 0) {
      other = text;
      other[static_cast<std::size_t>(at)] ^= 1;
      first = last_losses(toy, other) != expected;
    }
    EXPECT_TRUE(first) << reach.before_segment;
    EXPECT_TRUE(farthest) << reach.farthest;
  }
}

DistanceToy with_memory(std::int64_t memory, std::int64_t layers) {
  DistanceToy c = transformer_xl_toy();
  c.memory.length = memory;
  c.layers = layers;
  return c;
}

// As the papers count it.
TEST(AttentionViews, EveryLayerReachesAMemoryFarther) {
  const auto reach = [](const DistanceToy& config) {
    return look_back(required<MixesPositions>(*config.make_model(), "look back"));
  };
  for (const std::int64_t layers : {1, 2, 5}) {
    const LookBack found = reach(with_memory(26, layers));
    EXPECT_EQ(found.before_segment, layers * 26);
    EXPECT_EQ(found.farthest, layers * 26 + 12);
  }
  DistanceToy compressive = compressive_toy();
  EXPECT_EQ(reach(compressive).before_segment, compressive.layers * (12 + 3 * 8));
  DistanceToy windows = with_memory(26, 3);
  windows.distance.window = {5};
  EXPECT_EQ(reach(windows).farthest, 3 * 4);
  windows.distance.dilation = {3};
  windows.distance.dilated_heads = 1;
  EXPECT_EQ(reach(windows).farthest, 3 * 4 * 3);
}

TEST(AttentionViews, MeanKeysAreTheMaskCountedPairByPair) {
  for (const auto& [name, config] : distance_toys()) {
    SCOPED_TRACE(name);
    const auto model = config.make_model();
    const auto& shows = required<MixesPositions>(*model, "show");
    const double longest = static_cast<double>(config.distance.span.longest);
    for (const double span : {0.25 * longest, longest}) {
      double pairs = 0;
      for (std::int64_t layer = 0; layer < config.layers; ++layer)
        for (std::int64_t head = 0; head < config.heads; ++head) {
          const Mixer::PairWeight weight = shows.mixer(layer).pair_weight(head, span);
          for (std::int64_t i = 0; i < config.context; ++i)
            for (std::int64_t j = 0; j < shows.mixer(layer).key_rows().all(); ++j) pairs += weight(i, j) > 0 ? 1 : 0;
        }
      if (span == longest) {
        EXPECT_EQ(model->cost(config.context).allowed_pairs, pairs);
      }
      const double queries = static_cast<double>(config.layers * config.heads * config.context);
      double mean = 0;
      for (std::int64_t layer = 0; layer < config.layers; ++layer) mean += *shows.mixer(layer).mean_keys(span);
      EXPECT_DOUBLE_EQ(mean / static_cast<double>(config.layers), pairs / queries);
    }
  }
}

}  // namespace
}  // namespace longstride::test
