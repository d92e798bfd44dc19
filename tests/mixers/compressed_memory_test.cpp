// A layer's compressed memory against plain loops, while the memories fill and after.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "framework/mixers/distance/mixer.h"
#include "tests/mixers/naive_compression.h"
#include "tests/support/finite_differences.h"
#include "tests/support/test_tensors.h"

namespace longstride {
namespace {

using testing::NaiveCompression;
using testing::NaiveWeights;
using testing::OwnedTensor;
using testing::Rows;

constexpr std::int64_t batch = 2, segment = 6, width = 8, heads = 2, key_size = 3, value_size = 4, distances = 9;

// A layer in double with its parameters and what its rows remember.
class Layer {
 public:
  explicit Layer(const MemoryConfig& memory, Dtype dtype = Dtype::f64) : Layer(memory, dtype, dtype) {}
  Layer(const MemoryConfig& memory, Dtype dtype, Dtype counts) : memory_(memory) {
    DistanceMixerConfig config;
    config.shape = {width, heads, key_size, 0.5};
    config.value_size = value_size;
    config.output_deviation = config.compress_deviation = 0.5;
    config.biased = config.output_biased = false;
    config.distance.table = DistanceTable::learned;
    config.distance.distances = distances;
    config.memory = memory;
    const SharedDistance shared = declare_shared_distance(parameters, "", config.shape, config.distance);
    remembered_ = std::make_shared<RememberedPositions>(states_, "", memory);
    branch = std::make_unique<DistanceMixer>(parameters, states_, "a", config, shared, remembered_,
                                             std::make_shared<Windows>());
    parameters.lay_out();
    values = std::make_unique<OwnedTensor>(testing::normals({parameters.flat_size()}, dtype, 1, 0.5));
    gradients = std::make_unique<OwnedTensor>(Shape{parameters.flat_size()}, dtype);
    parameters.bind(*values, *gradients);
    ctx.compute = ctx.exact = dtype;
    const StateTypes types{dtype, counts};
    const std::int64_t bytes = batch * states_.row_bytes(types),
                       count = bytes / static_cast<std::int64_t>(kernels::bytes_of(dtype));
    for (auto& buffer : buffers_) buffer = std::make_unique<OwnedTensor>(Shape{count}, dtype);
    const auto flat = [&](const OwnedTensor& buffer) { return Tensor(buffer->data(), Dtype::u8, {bytes}); };
    ctx.state = RowStates(batch, types, flat(*buffers_[0]), flat(*buffers_[1]));
    for (std::int64_t i = 0; i < (*buffers_[1])->count(); ++i) buffers_[1]->set(i, 1e3);  // must be written
  }

  // Segment `number` of every row: the outputs. With a tape, what backward needs is on it.
  OwnedTensor forward(std::uint32_t number, Tape* tape = nullptr, std::int64_t positions = segment) {
    OwnedTensor out({batch, positions, width}, ctx.compute);
    input_ = std::make_unique<OwnedTensor>(testing::normals({batch, positions, width}, ctx.compute, 100 + number));
    branch->forward(ctx, *input_, *out, tape);
    remembered_->add(ctx, positions);
    return out;
  }
  // Makes the states that were written for the next step those that it reads.
  void keep() { std::memcpy((*buffers_[0])->data(), (*buffers_[1])->data(), (*buffers_[0])->bytes()); }
  // Row `row` starts a stream.
  void forget(std::int64_t row) {
    for (const State& state : states_.all()) {
      const Tensor now = ctx.state.now(state).slice(0, row, row + 1);
      std::fill_n(now.as<double>(), now.count(), 0.0);
    }
  }
  // Forward and backward of segment `number` with this gradient of the output: the reconstruction loss.
  double train(std::uint32_t number, double dout, double share = 1) {
    OwnedTensor total({1}, Dtype::f64);
    Tape tape(*ctx.arena);
    tape.open_frame();
    const OwnedTensor out = forward(number, &tape);
    OwnedTensor d({batch, segment, width}, ctx.compute);
    for (std::int64_t i = 0; i < d->count(); ++i) d.set(i, dout * std::cos(static_cast<double>(i)));
    ctx.auxiliary = {total, share};
    branch->backward(ctx, d, d, tape);
    ctx.auxiliary = {};
    tape.close_frame();
    return total.at(0);
  }
  Rows input_of(std::int64_t row) const {
    Rows rows;
    const std::int64_t positions = (*input_)->size(1);
    for (std::int64_t i = 0; i < positions; ++i) {
      rows.emplace_back();
      for (std::int64_t c = 0; c < width; ++c) rows.back().push_back(input_->at((row * positions + i) * width + c));
    }
    return rows;
  }
  const Parameter& parameter(const std::string& name) const {
    for (const Parameter& p : parameters.all())
      if (p.name == name) return p;
    throw std::runtime_error(name);
  }
  const State* state(const std::string& name) const {
    for (const State& s : states_.all())
      if (s.name == name) return &s;
    return nullptr;
  }
  NaiveWeights weights() const {
    NaiveWeights w;
    w.heads = heads;
    w.key_size = key_size;
    w.value_size = value_size;
    w.query_key_value = matrix("a.query_key_value.weight");
    w.output = matrix("a.output.weight");
    if (memory_.learns_to_compress()) w.compress = matrix("a.compress.weight");
    const double* table = parameter("a.distance.table").master.as<const double>();
    w.table = [table](std::int64_t t, std::int64_t h, std::int64_t e) {
      return table[(std::min(t, distances - 1) * heads + h) * key_size + e];
    };
    const double *u = parameter("a.content_bias").master.as<const double>(),
                 *v = parameter("a.position_bias").master.as<const double>();
    w.content_bias = [u](std::int64_t h, std::int64_t e) { return u[h * key_size + e]; };
    w.position_bias = [v](std::int64_t h, std::int64_t e) { return v[h * key_size + e]; };
    return w;
  }

  ParameterSet parameters;
  testing::TestContext ctx;
  std::unique_ptr<DistanceMixer> branch;
  std::unique_ptr<OwnedTensor> values, gradients;

 private:
  std::function<double(std::int64_t, std::int64_t)> matrix(const std::string& name) const {
    const Tensor m = parameter(name).master;
    return [m](std::int64_t row, std::int64_t column) { return m.as<const double>()[row * m.size(1) + column]; };
  }

  MemoryConfig memory_;
  StateSet states_;
  std::shared_ptr<const RememberedPositions> remembered_;
  std::unique_ptr<OwnedTensor> buffers_[2], input_;
};

constexpr Compression all_compressions[] = {Compression::mean, Compression::max, Compression::convolution,
                                            Compression::dilated, Compression::most_used};

MemoryConfig memory_of(Compression compress, std::int64_t segments_of_memory = 1) {
  MemoryConfig m;
  m.length = segments_of_memory * segment;
  m.compressed = 4;
  m.rate = 3;
  m.compress = compress;
  return m;
}

// The last `rows.size()` rows of a state.
void expect_rows(const Tensor& state, const Rows& rows, const std::string& name) {
  ASSERT_LE(std::ssize(rows), state.size(1)) << name;
  const std::int64_t first = state.size(1) - std::ssize(rows);
  for (std::int64_t r = 0; r < std::ssize(rows); ++r)
    for (std::int64_t c = 0; c < width; ++c)
      EXPECT_NEAR(state.as<const double>()[(first + r) * width + c],
                  rows[static_cast<std::size_t>(r)][static_cast<std::size_t>(c)], 1e-12)
          << name << " " << r << " " << c;
}

// Seven segments, of which the second row forgets the first three.
TEST(CompressedMemory, EveryCompressionIsThatOfPlainLoopsWhileTheMemoriesFillAndAfter) {
  for (const Compression compress : all_compressions)
    for (const std::int64_t segments_of_memory : {1, 2}) {
      const MemoryConfig memory = memory_of(compress, segments_of_memory);
      Layer layer(memory);
      std::vector<NaiveCompression> naive(batch, NaiveCompression(layer.weights(), memory));
      for (std::uint32_t s = 0; s < 7; ++s) {
        SCOPED_TRACE("compression " + std::to_string(static_cast<int>(compress)) + ", segment " + std::to_string(s));
        if (s == 3) {
          layer.forget(1);
          naive[1] = NaiveCompression(layer.weights(), memory);
        }
        const OwnedTensor out = layer.forward(s);
        layer.keep();
        for (std::int64_t row = 0; row < batch; ++row) {
          NaiveCompression& expected = naive[static_cast<std::size_t>(row)];
          const Rows rows = expected.step(layer.input_of(row));
          expect_rows(out->slice(0, row, row + 1), rows, "output");
          const auto of = [&](const char* name) {
            return layer.ctx.state.now(*layer.state(name)).slice(0, row, row + 1);
          };
          expect_rows(of("a.memory"), expected.memory, "memory");
          expect_rows(of("a.compressed_memory"), expected.compressed, "compressed memory");
          EXPECT_EQ(*of("remembered_positions").as<const double>(),
                    static_cast<double>(expected.memory.size() + expected.compressed.size()));
        }
        if (::testing::Test::HasFailure()) return;
      }
      EXPECT_EQ(std::ssize(naive[0].compressed), memory.compressed);
    }
}

// As in 16-bit training, where the count is wider than the memories.
TEST(CompressedMemory, ACountOfAnotherTypeChangesNoBit) {
  for (const Compression compress : all_compressions) {
    Layer same(memory_of(compress, 2), Dtype::f32), mixed(memory_of(compress, 2), Dtype::f32, Dtype::f64);
    for (std::uint32_t s = 0; s < 7; ++s) {
      EXPECT_TRUE(mixed.forward(s) == same.forward(s)) << s;
      for (Layer* layer : {&same, &mixed}) layer->keep();
      for (const char* name : {"a.memory", "a.compressed_memory"}) {
        const Tensor a = same.ctx.state.now(*same.state(name)), b = mixed.ctx.state.now(*mixed.state(name));
        EXPECT_EQ(std::memcmp(a.data(), b.data(), a.bytes()), 0) << name << " " << s;
      }
      const Tensor a = same.ctx.state.now(*same.state("remembered_positions")),
                   b = mixed.ctx.state.now(*mixed.state("remembered_positions"));
      for (std::int64_t row = 0; row < batch; ++row)
        EXPECT_EQ(b.as<const double>()[row], static_cast<double>(a.as<const float>()[row])) << s;
    }
  }
}

// The mean over rows of the batch, of which one has no rows to compress yet.
TEST(CompressedMemory, TheReconstructionLossIsThatOfPlainLoops) {
  for (const Compression compress : {Compression::convolution, Compression::dilated}) {
    MemoryConfig memory = memory_of(compress);
    memory.reconstruction = 0.7;
    Layer layer(memory);
    std::vector<NaiveCompression> naive(batch, NaiveCompression(layer.weights(), memory));
    for (std::uint32_t s = 0; s < 5; ++s) {
      if (s == 3) {
        layer.forget(1);
        naive[1] = NaiveCompression(layer.weights(), memory);
      }
      const double found = layer.train(s, 1, 0.25);
      layer.keep();
      double sum = 0;
      for (std::int64_t row = 0; row < batch; ++row) {
        naive[static_cast<std::size_t>(row)].step(layer.input_of(row));
        sum += naive[static_cast<std::size_t>(row)].loss;
      }
      EXPECT_NEAR(found, 0.7 * 0.25 * sum / batch, 1e-13) << s;
      EXPECT_EQ(found > 0, s > 0) << s;
    }
  }
}

// The gradient of the compression's weight is that of this loss alone, with any gradient of the output.
TEST(CompressedMemory, TheReconstructionLossAloneTrainsTheCompression) {
  for (const Compression compress : {Compression::convolution, Compression::dilated}) {
    Layer layer(memory_of(compress));
    layer.forward(0);
    layer.keep();
    const Parameter& weight = layer.parameter("a.compress.weight");
    const Tensor gradient = weight.gradient;
    const auto bits = [&] { return std::string(gradient.as<const char>(), gradient.bytes()); };
    const auto clear = [&] { std::fill_n((*layer.gradients)->as<double>(), layer.parameters.flat_size(), 0.0); };
    layer.train(1, 0);
    const std::string without_output = bits();
    OwnedTensor found(gradient.shape(), Dtype::f64);
    std::copy_n(gradient.as<const double>(), gradient.count(), found->as<double>());
    testing::expect_gradient("compress.weight", weight.master, found, [&] { return layer.train(1, 0); });
    clear();
    layer.train(1, 1);
    EXPECT_TRUE(bits() == without_output);
    EXPECT_TRUE(bits() != std::string(gradient.bytes(), '\0'));
  }
}

// Every other gradient has the same bits with and without it.
TEST(CompressedMemory, TheReconstructionLossTrainsNothingElse) {
  for (const Compression compress : {Compression::convolution, Compression::dilated}) {
    std::vector<std::vector<std::string>> gradients(2);
    for (const int with : {0, 1}) {
      MemoryConfig memory = memory_of(compress);
      memory.reconstruction = with;
      Layer layer(memory);
      for (std::uint32_t s = 0; s < 4; ++s) {
        layer.train(s, 1);
        layer.keep();
      }
      for (const Parameter& p : layer.parameters.all()) {
        if (p.name != "a.compress.weight") {
          gradients[static_cast<std::size_t>(with)].emplace_back(p.gradient.as<const char>(), p.gradient.bytes());
          continue;
        }
        const double* g = p.gradient.as<const double>();
        EXPECT_EQ(std::all_of(g, g + p.gradient.count(), [](double x) { return x == 0; }), with == 0);
      }
    }
    EXPECT_EQ(gradients[0], gradients[1]);
  }
}

// Equal inputs receive equal attention where positions do not count, which they do not if T and v are zero: of rows
// that are all equal, the first are kept.
TEST(CompressedMemory, OfEquallyUsedRowsTheEarliestStay) {
  const MemoryConfig memory = memory_of(Compression::most_used);
  Layer layer(memory);
  for (const char* name : {"a.distance.table", "a.query_key_value.weight"}) {
    const Tensor t = layer.parameter(name).master;
    std::fill_n(t.as<double>(), t.count(), 0.0);
  }
  layer.forward(0);
  layer.keep();
  layer.forward(1);
  layer.keep();
  Rows expected;
  for (std::int64_t r = 0; r < 2; ++r) {
    expected.emplace_back();
    for (std::int64_t c = 0; c < width; ++c)
      expected.back().push_back(testing::normals({batch, segment, width}, Dtype::f64, 100).at(r * width + c));
  }
  expect_rows(layer.ctx.state.now(*layer.state("a.compressed_memory")).slice(0, 0, 1), expected, "compressed memory");
}

// A shorter segment is the last of a stream if it makes no whole row; nothing is remembered of it.
TEST(CompressedMemory, NothingIsRememberedOfASegmentThatMakesNoWholeRow) {
  Layer layer(memory_of(Compression::convolution));
  for (std::uint32_t s = 0; s < 3; ++s) {
    layer.forward(s);
    layer.keep();
  }
  layer.forward(3, nullptr, 4);
  layer.keep();
  for (const char* name : {"a.memory", "a.compressed_memory", "remembered_positions"}) {
    const Tensor now = layer.ctx.state.now(*layer.state(name));
    for (std::int64_t i = 0; i < now.count(); ++i) ASSERT_EQ(now.as<const double>()[i], 0) << name;
  }
}

// One that makes whole rows is remembered.
TEST(CompressedMemory, AShorterSegmentOfWholeRowsIsRemembered) {
  const MemoryConfig memory = memory_of(Compression::dilated);
  Layer layer(memory);
  NaiveCompression naive(layer.weights(), memory);
  for (std::uint32_t s = 0; s < 5; ++s) {
    const OwnedTensor out = layer.forward(s, nullptr, s < 2 ? segment : 3);
    layer.keep();
    expect_rows(out->slice(0, 0, 1), naive.step(layer.input_of(0)), "output");
    expect_rows(layer.ctx.state.now(*layer.state("a.compressed_memory")).slice(0, 0, 1), naive.compressed,
                "compressed");
  }
}

}  // namespace
}  // namespace longstride
