// Evaluations of trained decoders with another memory, a clamp of distances, and streams that read a minimum of context
// before what they score.
#include <gtest/gtest.h>

#include <cmath>

#include "framework/core/errors.h"
#include "framework/models/decoder/decoder.h"
#include "tests/support/distance_toys.h"
#include "tests/support/toy_evaluation.h"

namespace longstride::test {
namespace {

using Toy = ToyModel<double>;

double nats_of(Toy& toy, std::int64_t bytes, std::int64_t streams = 1, std::int64_t lead = 0, std::int64_t batch = 1) {
  EvaluationConfig config;
  config.context = toy.model().context();
  config.streams = streams;
  config.lead = lead;
  config.batch = batch;
  return nats_of(toy, config, bytes);
}

double* weights_of(Toy& toy, const std::string& name) {
  for (const Parameter& p : toy.model().parameters().all())
    if (p.name == name) return p.master.as<double>();
  ADD_FAILURE() << name;
  return nullptr;
}

// Random weights; `to` has those of `from` where their names and shapes agree.
void randomise(Toy& from, Toy& to) {
  from.randomise();
  to.randomise();
  for (const Parameter& p : from.model().parameters().all())
    for (const Parameter& other : to.model().parameters().all())
      if (p.name == other.name && p.shape == other.shape)
        std::copy_n(p.master.as<const double>(), p.shape.count(), other.master.as<double>());
}

void expect_equal(double found, double expected, const std::string& what) {
  EXPECT_NEAR(found, expected, 1e-12 * expected) << what;
}
void expect_different(double found, double expected, const std::string& what) {
  EXPECT_GT(std::abs(found - expected), 1e-9 * expected) << what;
}

TEST(EvaluatedMemory, ChangesNoParameter) {
  for (const auto& [name, config] : distance_toys()) {
    const auto own = config.make_model(), changed = config.with_memory({3 * config.context, {}})->make_model();
    const auto &before = own->parameters().all(), &after = changed->parameters().all();
    ASSERT_EQ(before.size(), after.size()) << name;
    for (auto p = before.begin(), q = after.begin(); p != before.end(); ++p, ++q) {
      EXPECT_EQ(p->name, q->name) << name;
      EXPECT_EQ(p->shape, q->shape) << name;
      EXPECT_EQ(p->offset, q->offset) << name;
    }
    EXPECT_EQ(config.with_memory({3 * config.context, {}})->evaluated_memory().length, 3 * config.context) << name;
    EXPECT_EQ(config.with_memory({config.memory.length > 0 ? 3 * config.context : 0, {}})->remembers(),
              config.remembers());
  }
}

// With all of the past in the memory nothing is compressed either.
TEST(EvaluatedMemory, OfTheWholeTextScoresItAsOneSequence) {
  for (const auto& [name, toy] : distance_toys()) {
    DistanceToy config = toy;
    config.memory.start = MemoryStart::empty;
    const std::int64_t bytes = 6 * config.context + 5;
    DistanceToy whole = config;
    whole.context = bytes;
    whole.memory = {};
    Toy longer(*config.with_memory({7 * config.context, {}})), trained(config), reference(whole);
    randomise(longer, reference);
    trained.randomise();
    const double expected = nats_of(reference, bytes);
    expect_equal(nats_of(longer, bytes), expected, name);
    const bool limited = !config.distance.window.empty() || config.distance.span.given();
    if (!limited) expect_different(nats_of(trained, bytes), expected, name);
  }
}

TEST(EvaluatedMemory, IsNoLongerThanAStreamUnlessItsZerosReceiveWeight) {
  for (const auto& [name, config] : distance_toys()) {
    if (!config.remembers()) continue;
    const std::int64_t bytes = 3 * config.context + 1;
    const auto long_memory = config.with_memory({40 * config.context, {}}), enough = long_memory->for_streams_of(bytes);
    const bool empty = config.memory.start == MemoryStart::empty;
    EXPECT_EQ(enough->evaluated_memory().length, (empty ? 4 : 40) * config.context) << name;
    EXPECT_EQ(config.for_streams_of(9 * config.memory.length)->evaluated_memory().length, config.memory.length) << name;
    Toy found(*enough), reference(*long_memory);
    for (Toy* toy : {&found, &reference}) toy->randomise();
    expect_equal(nats_of(found, bytes), nats_of(reference, bytes), name);
  }
}

// A memory that holds what windows look back to makes segments one sequence, although it forgets the rest.
TEST(EvaluatedMemory, OfAWindowScoresTheTextAsOneSequenceWithThatWindow) {
  for (const auto& [config, reach] :
       {std::pair{transformer_xl_toy(), 16}, {house_toy(), 16}, {remembering_longformer_toy(), (7 - 1) * 3}}) {
    DistanceToy windowed = config;
    if (windowed.distance.window.empty()) windowed.distance.window = {reach + 1};
    const std::int64_t bytes = 7 * config.context + 4;
    DistanceToy whole = windowed;
    whole.context = bytes;
    whole.memory = {};
    Toy enough(*windowed.with_memory({reach, {}})), short_of(*windowed.with_memory({reach - 1, {}})), reference(whole);
    for (Toy* toy : {&enough, &short_of, &reference}) toy->randomise();
    const double expected = nats_of(reference, bytes);
    expect_equal(nats_of(enough, bytes), expected, std::to_string(reach));
    expect_different(nats_of(short_of, bytes), expected, std::to_string(reach));
  }
}

TEST(EvaluatedMemory, EqualsThatOfAModelWithThisLength) {
  for (const auto& [name, config] : distance_toys()) {
    const std::int64_t bytes = 7 * config.context + 4, length = 2 * config.context;
    DistanceToy longer = config;
    longer.memory.length = length;
    Toy changed(*config.with_memory({length, {}})), reference(longer);
    for (Toy* toy : {&changed, &reference}) toy->randomise();
    EXPECT_EQ(nats_of(changed, bytes), nats_of(reference, bytes)) << name;
  }
}

// More rows than a segment becomes, a number of them that is no multiple, and fewer than in training.
TEST(EvaluatedMemory, OfOtherCompressedRowsEqualsThatOfAModelWithAsMany) {
  for (const Compression compress : {Compression::mean, Compression::convolution, Compression::most_used})
    for (const std::int64_t rows : {4, 7, 16}) {
      const DistanceToy config = compressive_toy(compress);
      const std::int64_t bytes = 9 * config.context + 4;
      DistanceToy other = config;
      other.memory.compressed = rows;
      const auto settings = config.with_memory({{}, {}, rows});
      EXPECT_EQ(settings->evaluated_memory(), (EvaluatedMemory{config.memory.length, {}, rows}));
      Toy changed(*settings), reference(other), trained(config);
      for (Toy* toy : {&changed, &reference, &trained}) toy->randomise();
      const double expected = nats_of(reference, bytes);
      EXPECT_EQ(nats_of(changed, bytes), expected) << rows;
      if (rows != config.memory.compressed) expect_different(nats_of(trained, bytes), expected, std::to_string(rows));
    }
}

TEST(EvaluatedMemory, OfNoneReadsWindowsByThemselves) {
  DistanceToy config = transformer_xl_toy(), without = config;
  without.memory = {};
  Toy changed(*config.with_memory({0, {}})), reference(without);
  for (Toy* toy : {&changed, &reference}) toy->randomise();
  EXPECT_TRUE(changed.model().states().empty());
  EXPECT_EQ(nats_of(changed, 60), nats_of(reference, 60));
}

// T of distance t in a learned table: W_r [sin(t w_0), .., cos(t w_0), ..], written out.
void write_waves(Toy& learned, Toy& waves, const DistanceToy& config, std::int64_t clamp) {
  const std::int64_t rows = config.distance.distances, size = config.heads * config.key_size(), half = config.width / 2;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string name = "layers." + std::to_string(layer) + ".attention.distance.";
    const double* weight = weights_of(waves, name + "weight");
    double* table = weights_of(learned, name + "table");
    for (std::int64_t t = 0; t < rows; ++t)
      for (std::int64_t i = 0; i < size; ++i) {
        double sum = 0;
        for (std::int64_t k = 0; k < half; ++k) {
          const double angle = static_cast<double>(std::min(t, clamp)) *
                               std::pow(10000.0, -2.0 * static_cast<double>(k) / static_cast<double>(config.width));
          sum += weight[i * config.width + k] * std::sin(angle) + weight[i * config.width + half + k] * std::cos(angle);
        }
        table[t * size + i] = sum;
      }
  }
}

TEST(EvaluatedClamp, OfASinusoidMakesFartherDistancesReadItsRow) {
  DistanceToy clamped = transformer_xl_toy();
  clamped.distance.distances = 9;  // an evaluation may clamp nearer or farther than training
  for (const DistanceToy& config : {transformer_xl_toy(), clamped})
    for (const std::int64_t clamp : {1, 5, 20}) {
      const std::int64_t bytes = 5 * config.context + 3, length = 2 * config.context + 1;
      DistanceToy tabled = config;
      tabled.memory.length = length;
      tabled.distance.table = DistanceTable::learned;
      tabled.distance.distances = length + config.context;
      const auto changed = config.with_memory({length, clamp});
      EXPECT_EQ(changed->evaluated_memory(), (EvaluatedMemory{length, clamp}));
      Toy found(*changed), reference(tabled), unclamped(*transformer_xl_toy().with_memory({length, {}}));
      randomise(found, reference);
      unclamped.randomise();
      write_waves(reference, found, tabled, clamp);
      const double expected = nats_of(reference, bytes);
      EXPECT_NEAR(nats_of(found, bytes), expected, 1e-10 * expected) << clamp;
      expect_different(nats_of(unclamped, bytes), expected, std::to_string(clamp));
    }
}

// One table per layer, and one for all without a row of distance 0.
TEST(EvaluatedClamp, OfALearnedTableMakesFartherDistancesReadItsRow) {
  for (const bool shared : {false, true}) {
    DistanceToy config = distance_toy(toy_config());
    config.context = 13;
    config.memory.length = 7;
    config.distance.table = DistanceTable::learned;
    config.distance.distances = 20;
    config.distance.shared_table = shared;
    config.distance.self = !shared;
    if (shared) config.distance.biases = BiasSharing::none;
    const std::int64_t bytes = 5 * config.context + 3, length = 2 * config.context, first = shared ? 1 : 0,
                       size = shared ? config.key_size() : config.heads * config.key_size();
    for (const std::int64_t clamp : {std::int64_t{1}, std::int64_t{5}, 19 + first}) {
      DistanceToy longer = config;
      longer.memory.length = length;
      longer.distance.distances = length + config.context;
      Toy found(*config.with_memory({length, clamp})), reference(longer);
      randomise(found, reference);
      for (Parameter& p : reference.model().parameters().all()) {
        if (!p.name.ends_with("distance.table")) continue;
        for (std::int64_t row = 0; row < longer.distance.distances; ++row)
          std::copy_n(weights_of(found, p.name) + std::min(row, clamp - first) * size, size,
                      p.master.as<double>() + row * size);
      }
      expect_equal(nats_of(found, bytes), nats_of(reference, bytes), std::to_string(clamp));
    }
  }
}

std::string refusal_of(const DecoderConfig& config, const EvaluatedMemory& changed) {
  try {
    config.with_memory(changed);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(EvaluatedMemory, ATableThatIsTooShortNeedsAClampUnlessItsLastRowHasLearnedToStandForAll) {
  DistanceToy config = distance_toy(toy_config());
  config.context = 13;
  config.memory.length = 7;
  config.distance.table = DistanceTable::learned;
  config.distance.distances = 22;
  EXPECT_EQ(refusal_of(config, {9, {}}), "");
  EXPECT_EQ(refusal_of(config, {10, {}}),
            "--memory is 10, which makes distances of up to 22, but the learned table has rows for distances up to 21 "
            "only, the last of which was trained for no farther one; choose a shorter memory, or let it stand for all "
            "of them with --clamp 21");
  EXPECT_EQ(refusal_of(config, {10, 21}), "");
  EXPECT_EQ(refusal_of(config, {{}, 22}),
            "--clamp is 22, but the learned table has rows for distances up to 21 only; choose at most 21");
  DistanceToy windowed = config, clamped = config;
  windowed.distance.window = {22};
  EXPECT_EQ(refusal_of(windowed, {1000, {}}), "") << "nothing is farther than the window";
  clamped.distance.distances = 19;
  EXPECT_EQ(refusal_of(clamped, {1000, {}}), "") << "the last row is that of distances 18 and 19";
  EXPECT_EQ(clamped.with_memory({1000, {}})->evaluated_memory(), (EvaluatedMemory{1000, 18}));
  EXPECT_EQ(refusal_of(adaptive_span_toy(), {1000, {}}), "") << "nothing is farther than the spans";
}

TEST(EvaluatedMemory, WhatTheMechanismLacksIsRefused) {
  EXPECT_EQ(refusal_of(house_toy(), {{}, 5}),
            "--clamp cannot be used with this model, whose scores have no table of distances (model.distance.table is "
            "none); leave it out");
  for (const std::int64_t length : {0, 13})
    EXPECT_EQ(refusal_of(compressive_toy(), {length, {}}),
              fmt::format("--memory is {}, but before a compressed memory must be a positive multiple of the context "
                          "of 12, because whole segments leave it; choose {}",
                          length, length == 0 ? 12 : 24));
  EXPECT_EQ(refusal_of(compressive_toy(), {48, {}}), "");
  EXPECT_EQ(refusal_of(compressive_toy(), {{}, {}, 3}),
            "--compressed is 3, but must be at least 4, the rows that a segment becomes");
  EXPECT_EQ(refusal_of(compressive_toy(), {{}, {}, std::int64_t{1} << 40}),
            "--compressed is 1099511627776, but must be at most 16777191 rows");
  EXPECT_EQ(refusal_of(transformer_xl_toy(), {{}, {}, 8}),
            "--compressed cannot be used with this model, which has no compressed memory (model.memory.compressed); "
            "leave it out");
  EXPECT_EQ(
      refusal_of(toy_config(), {{}, {}, 8}),
      "--compressed cannot be used with this model, which has no compressed memory that an evaluation could set; leave "
      "it out");
  EXPECT_EQ(refusal_of(house_toy(), {(1 << 23) + 1, {}}), "--memory is 8388609, but must be at most 8388608 positions");
  DistanceToy wide = house_toy();
  wide.context = 10000000;
  EXPECT_EQ(refusal_of(wide, {8000000, {}}), "--memory is 8000000, but must be at most 6777215 positions");
}

// Every window from scratch: the stream's own ones before it, and of the sequence as many more as hold `lead` bytes.
double nats_from_scratch(Toy& toy, std::int64_t bytes, std::int64_t streams, std::int64_t lead) {
  const std::int64_t n = toy.model().context(), windows = (bytes + n - 1) / n;
  std::vector<std::uint8_t> text(static_cast<std::size_t>(windows * n));
  Text(bytes).read(0, 0, bytes, text.data());
  const auto window = [&](std::int64_t w) {
    return std::vector<std::uint8_t>(text.begin() + w * n, text.begin() + (w + 1) * n);
  };
  double nats = 0;
  for (std::int64_t w = 0; w < windows; ++w) {
    std::int64_t own = w;  // the first window of its stream
    for (std::int64_t s = 0; s < streams; ++s)
      if (s * windows / streams <= w) own = s * windows / streams;
    const std::int64_t begin = std::max<std::int64_t>(0, own - (lead + n - 1) / n);
    toy.forget();
    for (std::int64_t before = begin; before < w; ++before) toy.remember(window(before), 1);
    const std::vector<double> losses = toy.losses(window(w), 1);
    for (std::int64_t i = 0; i < std::min(n, bytes - w * n); ++i) nats += losses[static_cast<std::size_t>(i)];
  }
  return nats;
}

TEST(StreamsWithContext, ScoreEveryByteAsItsContextReadFromScratch) {
  for (const auto& [name, config] : distance_toys()) {
    if (!config.remembers()) continue;
    const std::int64_t n = config.context, bytes = 9 * n + 5;
    Toy toy(config);
    toy.randomise();
    for (const std::int64_t streams : {3, 10})
      for (const std::int64_t lead : {std::int64_t{0}, std::int64_t{1}, n + 1, 100 * n}) {
        const double expected = nats_from_scratch(toy, bytes, streams, lead);
        for (const std::int64_t batch : {std::int64_t{1}, streams})
          expect_equal(nats_of(toy, bytes, streams, lead, batch), expected, fmt::format("{} {}", name, lead));
      }
  }
}

// Also with memories that are no multiple of a segment.
TEST(StreamsWithContext, ScoreAsOneStreamFromTheReachOfTheMemoryOnAndNotBefore) {
  for (DistanceToy config : {transformer_xl_toy(), house_toy(), compressive_toy(), house_compressive_toy()})
    for (const std::int64_t length : {0, 1, 7, 16}) {
      if (length > 0 && config.memory.compressed > 0) continue;
      if (length > 0) config.memory.length = length;
      Toy toy(config);
      toy.randomise();
      const std::int64_t reach = toy.model().reach_of_memory(), n = config.context, bytes = 12 * n, streams = 12;
      ASSERT_LT(reach, bytes);
      const double whole = nats_of(toy, bytes);
      expect_equal(nats_of(toy, bytes, streams, reach), whole, std::to_string(length));
      expect_different(nats_of(toy, bytes, streams, (reach - 1) / n * n), whole, std::to_string(length));
    }
}

// A compressed row stays or goes by the attention that it received next to all rows compressed before it.
TEST(StreamsWithContext, ScoreAsOneStreamOnlyFromItsBeginningWhereTheMostUsedRowsStay) {
  Toy toy(compressive_toy(Compression::most_used)), bounded(compressive_toy(Compression::max));
  toy.randomise();
  const std::int64_t n = toy.model().context(), bytes = 30 * n, streams = 30;
  const double whole = nats_of(toy, bytes);
  expect_different(nats_of(toy, bytes, streams, bounded.model().reach_of_memory()), whole, "most used");
  EXPECT_GE(toy.model().reach_of_memory(), bytes);
  expect_equal(nats_of(toy, bytes, streams, bytes), whole, "most used");
}

}  // namespace
}  // namespace longstride::test
