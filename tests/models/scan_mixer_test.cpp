// The answers of a layer that scans, and when it draws its features.
#include "framework/mixers/scan/mixer.h"

#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>

#include "framework/models/decoder/decoder.h"
#include "framework/ops/basic.h"
#include "tests/support/model_properties.h"
#include "tests/support/scan_toys.h"
#include "tests/support/test_tensors.h"

namespace longstride::test {
namespace {

const Mixer& mixer_of(const Model& model, std::int64_t layer = 0) {
  return required<MixesPositions>(model, "mix").mixer(layer);
}

double sum_of(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

ScanToy one_layer(const ScanSettings& settings) {
  ScanToy toy(toy_config(), {entry_of({scan_item(settings)})});
  toy.layers = 1;
  return toy;
}

TEST(ScanMixer, ReadsEveryPositionBeforeAndWithAMemoryAllThatWasRead) {
  for (const auto& [name, config] : scan_toys()) {
    if (config.heads != 2 || name == "side_by_side" || name == "memory_beside") continue;
    const Decoder model(config);
    const Mixer& mixer = mixer_of(model);
    double pairs = 0;
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t i = 0; i < config.context; ++i)
        for (std::int64_t j = 0; j < config.context; ++j) pairs += mixer.pair_weight(h, 0)(i, j);
    EXPECT_EQ(mixer.cost(config.context).pairs, pairs) << name;
    Reach reach(config.context);
    mixer.extend(reach);
    EXPECT_EQ(reach.earliest_of(config.context - 1) < 0, mixer.remembers_without_end()) << name;
    EXPECT_EQ(mixer.remembers_without_end(), name.ends_with("_memory")) << name;
    const auto& scan = dynamic_cast<const ScanConfig&>(config.mixers.front().beside.front().config()).settings;
    EXPECT_EQ(mixer.problem_of_ranks(2).empty(), !scan.memory && scan.key_heads != 1) << name;
    EXPECT_FALSE(mixer.problem_of_ranks(3).empty()) << name;
  }
}

// Costs are linear in the positions.
TEST(ScanMixer, OperationsGrowWithThePositions) {
  const Decoder model(one_layer(performer()));
  const PairCost one = mixer_of(model).cost(1000), ten = mixer_of(model).cost(10000);
  EXPECT_DOUBLE_EQ(ten.forward_flops, 10 * one.forward_flops);
  EXPECT_DOUBLE_EQ(ten.backward_flops, 10 * one.backward_flops);
  EXPECT_DOUBLE_EQ(ten.training_flops, 10 * one.training_flops);
}

// A probability of a key is the weight that its value has in the output, and the rest of what heads have is none.
TEST(ScanMixer, ProbabilitiesAreTheWeightsOfValues) {
  for (const auto& settings : {performer(), performer(ScanFeatures::relu), [] {
                                 ScanSettings s = performer();
                                 s.form = kernels::ScanForm::gated, s.decay = ScanDecay::head;
                                 return s;
                               }()}) {
    ToyModel<float> toy(one_layer(settings));
    toy.randomise();
    const Mixer& mixer = mixer_of(toy.model());
    EXPECT_EQ(mixer.problem_of_probabilities(), "");
    const std::int64_t n = 23, width = 16, size = 8;
    const testing::OwnedTensor x = testing::normals({1, n, width}, Dtype::f32, 4);
    const testing::OwnedTensor y = testing::zeros({1, n, width}, Dtype::f32);
    const auto parameter = [&](const std::string& own) {
      for (Parameter& p : toy.model().parameters().all())
        if (p.name == "layers.0.attention." + own) return p.master.as<float>();
      throw std::invalid_argument(own);
    };
    const float *map = parameter("query_key_value.weight"), *bias = parameter("query_key_value.bias");
    for (std::int64_t i = 0; i < width * width; ++i)  // out = o + b_p
      parameter("output.weight")[i] = i % (width + 1) == 0 ? 1.0F : 0.0F;
    std::vector<std::vector<std::vector<double>>> seen;
    toy.run([&](Context& ctx) {
      seen.clear();
      std::vector<std::int64_t> queries(static_cast<std::size_t>(n));
      std::iota(queries.begin(), queries.end(), 0);
      mixer.show_probabilities(ctx, x, queries, [&](std::size_t, const auto& heads) { seen.push_back(heads); });
      mixer.forward(ctx, x, *y, nullptr);
    });
    ASSERT_EQ(std::ssize(seen), n);
    const auto value = [&](std::int64_t j, std::int64_t c) {
      double sum = static_cast<double>(bias[2 * width + c]);
      for (std::int64_t d = 0; d < width; ++d)
        sum += static_cast<double>(map[(2 * width + c) * width + d]) * x.at(j * width + d);
      return sum;
    };
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t c = 0; c < width; ++c) {
        const std::vector<double>& p = seen[static_cast<std::size_t>(i)][static_cast<std::size_t>(c / size)];
        ASSERT_EQ(std::ssize(p), i + 1);
        EXPECT_NEAR(sum_of(p), 1, 1e-5);
        double expected = static_cast<double>(parameter("output.bias")[c]);
        for (std::int64_t j = 0; j <= i; ++j) {
          EXPECT_GE(p[static_cast<std::size_t>(j)], 0);
          expected += p[static_cast<std::size_t>(j)] * value(j, c);
        }
        EXPECT_NEAR(y.at(i * width + c), expected, 1e-4) << i << " " << c;
      }
  }
}

TEST(ScanMixer, ItsKernelsRunByThemselves) {
  for (const auto& [name, config] : scan_toys()) {
    if (name == "side_by_side" || name == "memory_beside") continue;
    ToyModel<float> toy(config);
    toy.run([&](Context& ctx) {
      Scratch scratch(ctx);
      for (const MixerBench& bench : mixer_of(toy.model()).bench(ctx, scratch, 2, 20)) {
        for (const auto& tensors : {bench.inputs, bench.zeros})
          for (const Tensor& t : tensors) ops::fill_zero(ctx, t);
        bench.forward(ctx);
        bench.backward(ctx);
        EXPECT_FALSE(bench.name.empty()) << name;
      }
    });
    EXPECT_EQ(toy.planned(), toy.used()) << name;
  }
}

TEST(ScanMixer, SaysWhichFormsHaveNoProbabilities) {
  for (const auto& settings : {delta_scan(), gated_scan(ScanDecay::head), performer(ScanFeatures::trigonometric)}) {
    const Decoder model(one_layer(settings));
    EXPECT_NE(mixer_of(model).problem_of_probabilities(), "");
  }
  const Decoder beside(ScanToy(toy_config(), {entry_of({local_item(4, 1), scan_item(delta_scan(), 1)})}));
  EXPECT_NE(mixer_of(beside).problem_of_probabilities(), "");
  EXPECT_FALSE(mixer_of(beside).summary().empty());
}

// Features are new at every step that `redraw` divides. Evaluation and generation have those of the weights' step.
TEST(ScanMixer, FeaturesAreAFunctionOfTheStep) {
  ScanSettings settings = performer();
  settings.redraw = 5;
  ToyModel<double> toy(one_layer(settings));
  toy.randomise();
  const std::vector<std::uint8_t> tokens = toy_tokens(23);
  const auto evaluated = [&](std::int64_t trained) {
    toy.context().trained = trained;
    return toy.losses(tokens, 1);
  };
  const std::vector<double> first = evaluated(0), second = evaluated(5);
  EXPECT_EQ(evaluated(4), first);
  EXPECT_EQ(evaluated(9), second);
  EXPECT_NE(second, first);
  const std::int64_t step = 7;
  toy.context().step = &step;
  toy.context().trained = 0;
  const double training = toy.loss_and_gradients(tokens, 1);
  toy.context().step = nullptr;
  EXPECT_NEAR(training, sum_of(second), 1e-9);
  toy.context().trained = step;
  const std::vector<double> decoded = decoded_losses(toy, required<Decodes>(toy.model(), "decode"), tokens, 1);
  for (std::size_t i = 0; i < decoded.size(); ++i) EXPECT_NEAR(decoded[i], second[i], 1e-11);
  toy.context().seed += 1;
  EXPECT_NE(evaluated(step), second);
}

// The published stabiliser cancels as the running one does: it shows in the rounding alone, and where it makes all that
// was before a strong key 0.
TEST(ScanMixer, ThePublishedStabiliserLooksAhead) {
  ScanSettings published = performer();
  published.stabiliser = Stabiliser::published;
  ToyModel<double> running(one_layer(performer())), other(one_layer(published));
  for (auto* toy : {&running, &other}) toy->randomise();
  const std::vector<std::uint8_t> tokens = toy_tokens(23);
  const std::vector<double> expected = running.losses(tokens, 1), found = other.losses(tokens, 1);
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-9);
  EXPECT_NE(mixer_of(other.model()).summary().find("later keys"), std::string::npos);
  const auto first_outputs = [](ScanSettings settings, float strong) {
    ToyModel<float> toy(one_layer(settings));
    toy.randomise(3);
    testing::OwnedTensor x = testing::normals({1, 8, 16}, Dtype::f32, 4), y = testing::zeros({1, 8, 16}, Dtype::f32);
    for (std::int64_t c = 0; c < 16; ++c) x->as<float>()[7 * 16 + c] *= strong;
    toy.run([&](Context& ctx) { mixer_of(toy.model()).forward(ctx, x, *y, nullptr); });
    return std::vector<float>(y->as<float>(), y->as<float>() + 7 * 16);
  };
  EXPECT_EQ(first_outputs(performer(), 0), first_outputs(performer(), 1));
  EXPECT_NE(first_outputs(published, 0), first_outputs(published, 1));
}

}  // namespace
}  // namespace longstride::test
