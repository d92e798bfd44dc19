// Generation with a compressed memory against segments that training reads, over several times what it holds.
#include "tests/support/distance_toys.h"
#include "tests/support/model_properties.h"

namespace longstride::test::compressive_decoding_test {
namespace {

constexpr Compression all_compressions[] = {Compression::mean, Compression::max, Compression::convolution,
                                            Compression::dilated, Compression::most_used};

// Published and house form of every compression; and what else may be combined with it.
std::vector<NamedConfig<DistanceToy>> compressive_forms() {
  std::vector<NamedConfig<DistanceToy>> all;
  for (const Compression compress : all_compressions) {
    const std::string number = std::to_string(static_cast<int>(compress));
    all.push_back({"published " + number, compressive_toy(compress)});
    DistanceToy house = house_compressive_toy();
    house.memory.compress = compress;
    all.push_back({"house " + number, house});
    // Zeros have keys and values of their own, because these projections have biases.
    for (DistanceToy zeros : {house, compressive_toy(compress)}) {
      zeros.attention_bias = true;
      zeros.memory.start = MemoryStart::zeros;
      all.push_back({(zeros.rotary_base > 0 ? "rotated zeros " : "zeros ") + number, zeros});
    }
    DistanceToy long_memory = compressive_toy(compress);
    long_memory.memory.length = 24;
    long_memory.memory.compressed = 3;
    long_memory.memory.rate = 12;
    all.push_back({"memory of two segments, one row for each " + number, long_memory});
    DistanceToy dilated = house;
    dilated.distance.window = {7, 14};
    dilated.distance.dilation = {1, 3};
    dilated.distance.dilated_heads = 1;
    all.push_back({"windows " + number, dilated});
    DistanceToy spans = house;
    spans.distance.span = {.longest = 26, .ramp = 5, .initial = 0.7, .loss = 0.1};
    all.push_back({"spans " + number, spans});
  }
  return all;
}

TEST(CompressiveDecoding, GivesTheLossesOfSegmentsWithBothMemories) {
  for (const auto& [name, config] : compressive_forms()) {
    SCOPED_TRACE(name);
    ToyModel<double> toy(config);
    toy.randomise();
    const std::int64_t length = 9 * config.context + 5;
    const std::vector<std::uint8_t> tokens = toy_tokens(3 * length);
    const std::vector<double> whole = losses_in_segments(toy, tokens, 3),
                              decoded = decoded_losses(toy, *capability<Decodes>(toy.model()), tokens, 3);
    EXPECT_EQ(toy.planned(), toy.used());
    for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(decoded[i], whole[i], 1e-11) << i;
  }
}

// Streams that end before a row is compressed, with the first one and after it: the cache has rows for as many.
TEST(CompressiveDecoding, StreamsOfAnyLengthHaveTheSamePositions) {
  for (const auto& [name, config] : compressive_forms()) {
    SCOPED_TRACE(name);
    ToyModel<double> toy(config);
    toy.randomise();
    const std::int64_t all = 5 * config.context, first_row = config.memory.length + config.context;
    const std::vector<std::uint8_t> tokens = toy_tokens(all);
    const auto& decoder = *capability<Decodes>(toy.model());
    const std::vector<double> whole = decoded_losses(toy, decoder, tokens, 1);
    for (const std::int64_t n : {std::int64_t{1}, config.context, first_row, first_row + 1, all - 1}) {
      const std::vector<double> part = decoded_losses(toy, decoder, {tokens.begin(), tokens.begin() + n}, 1);
      for (std::size_t i = 0; i < part.size(); ++i) ASSERT_NEAR(part[i], whole[i], 1e-12) << n << " " << i;
    }
  }
}

// Both in fp32, each compared with the segments in double: the root mean squares of their errors.
TEST(CompressiveDecoding, IsAsExactAsSegmentsInSinglePrecision) {
  for (const Compression compress : all_compressions)
    for (DistanceToy config : {compressive_toy(compress), house_compressive_toy()}) {
      config.memory.compress = compress;
      SCOPED_TRACE(static_cast<int>(compress));
      ToyModel<float> toy(config);
      ToyModel<double> exact(config);
      toy.randomise();
      std::copy(toy.values().begin(), toy.values().end(), exact.values().begin());
      const std::vector<std::uint8_t> tokens = toy_tokens(2 * (7 * config.context + 5));
      const std::vector<double> right = losses_in_segments(exact, tokens, 2);
      const auto error = [&](const std::vector<float>& losses) {
        double sum = 0;
        for (std::size_t i = 0; i < right.size(); ++i) sum += std::pow(losses[i] - right[i], 2);
        return std::sqrt(sum / static_cast<double>(right.size()));
      };
      const double of_segments = error(losses_in_segments(toy, tokens, 2)),
                   of_decoding = error(decoded_losses(toy, *capability<Decodes>(toy.model()), tokens, 2));
      EXPECT_GT(of_segments, 0);
      EXPECT_LE(of_decoding, 2 * of_segments);
    }
}

// Bytes that only a row of the compressed memory can tell: those of a segment that has left the memory.
TEST(CompressiveDecoding, ReadsWhatHasLeftTheMemory) {
  for (const Compression compress : all_compressions) {
    DistanceToy config = compressive_toy(compress);
    config.layers = 1;
    ToyModel<double> toy(config);
    toy.randomise();
    const auto& decoder = *capability<Decodes>(toy.model());
    const std::int64_t n = config.context;
    std::vector<std::uint8_t> tokens = toy_tokens(6 * n);
    const std::vector<double> before = decoded_losses(toy, decoder, tokens, 1);
    for (std::int64_t i = 0; i < n; ++i) tokens[static_cast<std::size_t>(i)] ^= 0x2a;
    const std::vector<double> after = decoded_losses(toy, decoder, tokens, 1);
    // A memory of one segment has segment 0 in segment 1, and its four rows are among the eight of segments 2 and 3.
    const auto changes = [&](std::int64_t segment) {
      for (std::int64_t i = segment * n; i < (segment + 1) * n; ++i)
        if (before[static_cast<std::size_t>(i)] == after[static_cast<std::size_t>(i)]) return false;
      return true;
    };
    for (const std::int64_t segment : {1, 2, 3}) EXPECT_TRUE(changes(segment)) << segment;
    // Position n reads the last of these bytes, so segment 1 passes on a little of it. Which rows are the most used may
    // depend on rows that are not kept.
    if (compress != Compression::most_used) {
      EXPECT_FALSE(changes(5));
    }
  }
}

}  // namespace
}  // namespace longstride::test::compressive_decoding_test
