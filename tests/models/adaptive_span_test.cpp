// Spans that heads learn (Sukhbaatar et al. 2019), in a whole model with a memory.
#include <cmath>

#include "framework/models/decoder/decoder.h"
#include "tests/support/distance_toys.h"
#include "tests/support/model_properties.h"

namespace longstride::test {
namespace {

std::vector<std::uint8_t> segment(const DecoderConfig& config, std::uint64_t seed) {
  return toy_tokens(2 * config.context, seed);
}

template <class T>
void set_spans(ToyModel<T>& toy, const std::vector<double>& of_heads) {
  std::size_t head = 0;
  for (const Parameter& p : toy.model().parameters().all())
    for (std::int64_t i = 0; p.limits && i < p.shape.count(); ++i)
      toy.values()[static_cast<std::size_t>(p.offset + i)] = static_cast<T>(of_heads[head++ % of_heads.size()]);
}

// Every span of every layer, within a segment that reads a memory of zeros and text: ramps that end in the segment, in
// the memory, before both and beyond both. The first span is below 0, as an update may leave it before it is limited.
TEST(AdaptiveSpan, EverySpansGradientIsItsFiniteDifference) {
  for (const DistanceToy& toy_config : {adaptive_span_toy(), house_with_spans_toy()}) {
    const DistanceToy config = Toys<DistanceToy>::without_dropout(toy_config);
    ToyModel<double> toy(config);
    toy.randomise();
    set_spans(toy, {-0.05, 0.213, 0.507, 0.97});
    toy.remember(segment(config, 8), 2);
    const std::vector<std::uint8_t> tokens = segment(config, 9);
    toy.loss_and_gradients(tokens, 2);
    const std::vector<double> gradients = toy.gradients();
    double largest = 0;
    for (const Parameter& p : toy.model().parameters().all())
      for (std::int64_t i = 0; p.limits && i < p.shape.count(); ++i) {
        const auto at = static_cast<std::size_t>(p.offset + i);
        const double before = toy.values()[at], h = 1e-6;
        const auto loss_at = [&](double z) {
          toy.values()[at] = z;
          double total = 0;
          for (const double l : toy.losses(tokens, 2)) total += l;
          toy.values()[at] = before;
          return total;
        };
        const double difference = (loss_at(before + h) - loss_at(before - h)) / (2 * h);
        EXPECT_NEAR(gradients[at], difference, 1e-7 * (1 + std::abs(difference))) << p.name << "[" << i << "]";
        largest = std::max(largest, std::abs(difference));
      }
    EXPECT_GT(largest, 1e-3);
  }
}

// The loss of spans is theirs alone, whatever the loss of predictions is multiplied by, and is reported apart from it.
TEST(AdaptiveSpan, TheLossOfSpansIsTheSumOfTheLayersMeansInPositions) {
  const DistanceToy config = adaptive_span_toy();
  ToyModel<double> with(config), without(config);
  double sum = 0;
  for (ToyModel<double>* toy : {&with, &without}) {
    toy->randomise();
    set_spans(*toy, {0.1, 0.25, 0.5, 1.0});
  }
  const std::vector<std::uint8_t> tokens = segment(config, 9);
  with.context().auxiliary.sums = Tensor(&sum, Dtype::f64, {1});
  EXPECT_EQ(with.loss_and_gradients(tokens, 2), without.loss_and_gradients(tokens, 2));
  EXPECT_EQ(with.model().auxiliary_losses(), std::vector<std::string>{"span"});
  const double longest = static_cast<double>(config.distance.span.longest), c = config.distance.span.loss;
  EXPECT_NEAR(sum, c * longest * (0.35 / 2 + 1.5 / 2), 1e-12);
  for (const Parameter& p : with.model().parameters().all())
    for (std::int64_t i = 0; i < p.shape.count(); ++i) {
      const auto at = static_cast<std::size_t>(p.offset + i);
      EXPECT_NEAR(with.gradients()[at] - without.gradients()[at], p.limits ? c * longest / 2 : 0, 1e-12) << p.name;
    }
  with.context().auxiliary.once = false;  // another micro-batch of the step
  const double before = sum;
  with.loss_and_gradients(tokens, 2);
  EXPECT_EQ(sum, before);
}

class OperationCounter : public kernels::Meter {
 public:
  void begin(const kernels::Cost& cost) override {
    if (depth_++ == 0 && cost.work == kernels::WorkKind::product) operations += cost.operations;
  }
  void end() override { --depth_; }
  double operations = 0;

 private:
  int depth_ = 0;
};

struct Counted {
  double products = 0;
  std::vector<double> losses, gradients;
};

// The second of two segments, with the same spans in positions.
Counted second_segment(DistanceToy config, std::int64_t memory, double span) {
  config = Toys<DistanceToy>::without_dropout(config);
  config.memory.length = memory;
  ToyModel<double> toy(config);
  toy.randomise();
  set_spans(toy, {span, span / 2});
  toy.remember(segment(config, 8), 2);
  const std::vector<std::uint8_t> tokens = segment(config, 9);
  OperationCounter counter;
  toy.context().launch.meter = &counter;
  toy.loss_and_gradients(tokens, 2);
  Counted out{counter.operations, {}, toy.gradients()};
  toy.context().launch.meter = nullptr;
  out.losses = toy.losses(tokens, 2);
  return out;
}

// Rows of the memory that a head does not look back to are not projected for it: products take as long as with a memory
// that lacks those that none looks back to, and the results are the same.
TEST(AdaptiveSpan, WorkShrinksWithTheSpansOfHeads) {
  for (DistanceToy config : {adaptive_span_toy(), house_with_spans_toy()}) {
    config.context = 13;
    config.distance.window = {};
    config.distance.span.longest = 40;
    config.distance.span.ramp = 4;
    if (config.distance.table == DistanceTable::learned) config.distance.distances = 20;
    const double width = 16, rows = 2, layers = 2;
    double before = 0;
    for (const double positions : {3.0, 8.0, 20.0, 40.0}) {
      const Counted found = second_segment(config, 40, positions / 40);
      // Ramps of 4 have weights of 1/8 at least at the farthest position. The second head's span is half as long.
      const auto reach = [&](double span) { return std::min<std::int64_t>(40, std::llround(std::floor(span + 3.9))); };
      const Counted shorter = second_segment(config, reach(positions), positions / 40);
      EXPECT_EQ(found.products, shorter.products) << positions;
      // Forward, and the gradient of the weights, for a head's keys and values: half of 2 width.
      const auto read = static_cast<double>(reach(positions) + reach(positions / 2));
      EXPECT_GT(found.products, 0);
      if (positions > 3)
        EXPECT_EQ(found.products - before, 2 * 2 * layers * rows * (read - (6 + 5)) * width * width);
      else
        before = found.products;
      for (std::size_t i = 0; i < found.losses.size(); ++i)
        EXPECT_NEAR(found.losses[i], shorter.losses[i], 1e-12) << positions << " " << i;
      for (std::size_t i = 0; i < found.gradients.size(); ++i)
        EXPECT_NEAR(found.gradients[i], shorter.gradients[i], 1e-11) << positions << " " << i;
    }
  }
}

DistanceToy published(std::int64_t layers, std::int64_t width, std::int64_t inner) {
  DistanceToy c = adaptive_span_toy();
  c.layers = layers;
  c.width = width;
  c.heads = 8;
  c.feed_forward_ratio = static_cast<double>(inner) / static_cast<double>(width);
  c.distance.distances = c.memory.length = 8192;
  c.vocabulary = 204;  // symbols in enwik8
  return c;
}

// 38.5 and 208.9 million; ours adds a vector that starts a stream.
TEST(AdaptiveSpan, HasThePublishedParameters) {
  EXPECT_EQ(Decoder(published(12, 512, 2048)).parameters().count() - 512, 38537516);
  EXPECT_EQ(Decoder(published(24, 768, 4096)).parameters().count() - 768, 208908684);
}

}  // namespace
}  // namespace longstride::test
