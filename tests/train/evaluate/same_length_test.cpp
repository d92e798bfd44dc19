// `eval --same-length` compared with a decoder that is written out here, in double, with the mask of Transformer-XL's
// code (kimiyoung/transformer-xl at 44781ed, pytorch/mem_transformer.py).
#include <gtest/gtest.h>

#include <cmath>

#include "framework/core/errors.h"
#include "tests/support/distance_toys.h"
#include "tests/support/toy_evaluation.h"

namespace longstride::test::same_length_test {
namespace {

using Toy = ToyModel<double>;
using Row = std::vector<double>;
using Rows = std::vector<Row>;

// dec_attn_mask of query i and row j of [mlen remembered | qlen own]: triu(ones, 1 + mlen) + tril(ones, -shift).
bool is_masked(std::int64_t i, std::int64_t j, std::int64_t qlen, std::int64_t mlen, std::int64_t mem_len) {
  const std::int64_t mask_len = mlen + qlen - mem_len, shift = mask_len > 0 ? qlen - mask_len : qlen;
  return j - i >= 1 + mlen || j - i <= -shift;
}

double dot(const double* a, const double* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t k = 0; k < n; ++k) sum += a[k] * b[k];
  return sum;
}

// Pre-norm blocks with a learned table of distances for every layer, and one stream.
class WrittenOut {
 public:
  WrittenOut(Toy& toy, const DecoderConfig& config, std::int64_t mem_len)
      : toy_(toy), c_(config), mem_len_(mem_len), memory_(static_cast<std::size_t>(config.layers)) {
    if (c_.memory.start == MemoryStart::zeros)
      for (Rows& rows : memory_) rows.assign(static_cast<std::size_t>(mem_len), Row(size(c_.width), 0.0));
  }

  double nats(const std::vector<std::uint8_t>& window, int previous) {
    Rows h;
    for (const std::uint8_t token : window) {
      const double* x =
          previous < 0 ? weights("embedding.start") : weights("embedding.token.weight") + previous * c_.width;
      h.emplace_back(x, x + c_.width);
      previous = token;
    }
    for (std::int64_t layer = 0; layer < c_.layers; ++layer) {
      const std::string name = "layers." + std::to_string(layer);
      add(h, attention(name + ".attention", layer, norm(name + ".attention_norm", h)));
      Rows inner = linear(name + ".feed_forward.inner", norm(name + ".feed_forward_norm", h), c_.inner_width());
      for (Row& row : inner)
        for (double& z : row) z = std::max(z, 0.0);
      add(h, linear(name + ".feed_forward.outer", inner, c_.width));
    }
    double total = 0;
    const Rows last = norm("final_norm", h);
    for (std::size_t i = 0; i < window.size(); ++i) {
      double sum = 0;
      const auto logit = [&](std::int64_t b) {
        return dot(weights("output.weight") + b * c_.width, last[i].data(), c_.width);
      };
      for (std::int64_t b = 0; b < 256; ++b) sum += std::exp(logit(b));
      total += std::log(sum) - logit(window[i]);
    }
    return total;
  }
  std::int64_t most_keys = 0, fewest_keys = 1 << 20;  // keys of a query in the last window

 private:
  static std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }
  const double* weights(const std::string& name) {
    for (const Parameter& p : toy_.model().parameters().all())
      if (p.name == name) return p.master.as<double>();
    throw std::runtime_error(name);
  }
  static void add(Rows& to, const Rows& x) {
    for (std::size_t i = 0; i < to.size(); ++i)
      for (std::size_t k = 0; k < to[i].size(); ++k) to[i][k] += x[i][k];
  }
  Rows linear(const std::string& name, const Rows& x, std::int64_t out) {
    Rows y;
    for (const Row& row : x) {
      y.emplace_back(weights(name + ".bias"), weights(name + ".bias") + out);
      const auto in = static_cast<std::int64_t>(row.size());
      for (std::int64_t o = 0; o < out; ++o)
        y.back()[size(o)] += dot(weights(name + ".weight") + o * in, row.data(), in);
    }
    return y;
  }
  Rows norm(const std::string& name, const Rows& x) {
    Rows y = x;
    for (Row& row : y) {
      double mean = 0, variance = 0;
      for (const double v : row) mean += v / static_cast<double>(c_.width);
      for (const double v : row) variance += (v - mean) * (v - mean) / static_cast<double>(c_.width);
      for (std::size_t k = 0; k < row.size(); ++k)
        row[k] =
            (row[k] - mean) / std::sqrt(variance + 1e-5) * weights(name + ".weight")[k] + weights(name + ".bias")[k];
    }
    return y;
  }
  // The layer's memory and this window's rows; the last ones of both are its next memory.
  Rows joined(std::int64_t layer, const Rows& segment) {
    Rows& memory = memory_[size(layer)];
    Rows all = memory;
    all.insert(all.end(), segment.begin(), segment.end());
    memory.assign(all.end() - std::min<std::ptrdiff_t>(mem_len_, std::ssize(all)), all.end());
    return all;
  }
  Rows attention(const std::string& name, std::int64_t layer, const Rows& segment) {
    const std::int64_t d = c_.key_size(), width = c_.width, qlen = std::ssize(segment);
    const Rows all = joined(layer, segment), qkv = linear(name + ".query_key_value", all, 3 * width);
    const std::int64_t mlen = std::ssize(all) - qlen, first = c_.distance.self ? 0 : 1;
    Rows out(segment.size(), Row(size(width), 0.0));
    most_keys = 0, fewest_keys = 1 << 20;
    for (std::int64_t head = 0; head < c_.heads; ++head)
      for (std::int64_t i = 0; i < qlen; ++i) {
        Row q(qkv[size(mlen + i)].begin() + head * d, qkv[size(mlen + i)].begin() + (head + 1) * d), q_far = q;
        for (std::int64_t k = 0; k < d; ++k) {
          q[size(k)] += weights(name + ".content_bias")[head * d + k];
          q_far[size(k)] += weights(name + ".position_bias")[head * d + k];
        }
        double sum = 0;
        std::int64_t keys = 0;
        Row mixed(size(d), 0.0);
        for (std::int64_t j = 0; j < std::ssize(all); ++j) {
          // Where a position does not attend to itself, all its keys lie one position earlier.
          if (is_masked(i, j + first, qlen, mlen, mem_len_)) continue;
          const std::int64_t t = mlen + i - j;
          const double* far = weights(name + ".distance.table") + ((t - first) * c_.heads + head) * d;
          const double p =
              std::exp((dot(q.data(), &qkv[size(j)][size(width + head * d)], d) + dot(q_far.data(), far, d)) /
                       std::sqrt(static_cast<double>(d)));
          sum += p, ++keys;
          for (std::int64_t k = 0; k < d; ++k) mixed[size(k)] += p * qkv[size(j)][size(2 * width + head * d + k)];
        }
        for (std::int64_t k = 0; k < d; ++k) out[size(i)][size(head * d + k)] = keys > 0 ? mixed[size(k)] / sum : 0.0;
        most_keys = std::max(most_keys, keys), fewest_keys = std::min(fewest_keys, keys);
      }
    return linear(name + ".output", out, width);
  }

  Toy& toy_;
  DecoderConfig c_;
  std::int64_t mem_len_;
  std::vector<Rows> memory_;
};

double nats_of_text(Toy& toy, std::int64_t bytes) {
  EvaluationConfig config;
  config.context = toy.model().context();
  return nats_of(toy, config, bytes);
}

DistanceToy tabled_toy() {
  DecoderConfig form = toy_config();
  form.activation = kernels::Activation::relu;
  DistanceToy c = distance_toy(form);
  c.context = 13;
  c.memory.length = 13;
  c.distance.table = DistanceTable::learned;
  c.distance.distances = 60;
  return c;
}

struct Case {
  std::int64_t length;
  bool self;
  MemoryStart start;
};

// Memories shorter than a window, as long, and longer, of which the first windows fill a part.
TEST(SameLength, IsTheMaskOfTransformerXlsCode) {
  for (const auto& [length, self, start] :
       {Case{1, true, MemoryStart::empty}, Case{13, true, MemoryStart::empty}, Case{31, true, MemoryStart::empty},
        Case{5, false, MemoryStart::empty}, Case{31, true, MemoryStart::zeros}, Case{13, false, MemoryStart::zeros}}) {
    DistanceToy config = tabled_toy();
    config.distance.self = self;
    config.memory.start = start;
    const std::int64_t n = config.context, bytes = 4 * n + 5;
    EvaluatedMemory changed{length, {}};
    changed.same_length = true;
    Toy toy(*config.with_memory(changed)), longer(*config.with_memory({length, {}}));
    for (Toy* t : {&toy, &longer}) t->randomise();
    WrittenOut written(toy, config, length);
    std::vector<std::uint8_t> text(static_cast<std::size_t>(bytes));
    Text(bytes).read(0, 0, bytes, text.data());
    double expected = 0;
    for (std::int64_t at = 0; at < bytes; at += n)
      expected += written.nats({text.begin() + at, text.begin() + std::min(at + n, bytes)},
                               at > 0 ? text[static_cast<std::size_t>(at - 1)] : -1);
    EXPECT_EQ(written.most_keys, length);
    EXPECT_EQ(written.fewest_keys, length);
    EXPECT_NEAR(nats_of_text(toy, bytes), expected, 1e-12 * expected) << length;
    EXPECT_GT(std::abs(nats_of_text(longer, bytes) - expected), 1e-9 * expected) << length;
  }
}

// Also rows of a compressed memory count; windows and spans that are shorter stay; a memory that a short stream does
// not fill has no say.
TEST(SameLength, IsAWindowOfAsManyKeysAsRowsAreRemembered) {
  for (const auto& [name, toy] : distance_toys()) {
    if (!toy.remembers() || toy.distance.dilated_heads > 0) continue;
    const std::int64_t rows = toy.memory.rows() + (toy.distance.self ? 0 : 1), bytes = 3 * toy.context + 4;
    EvaluatedMemory changed;
    changed.same_length = true;
    const auto settings = toy.with_memory(changed);
    EvaluatedMemory expected = toy.evaluated_memory();
    expected.same_length = true;
    EXPECT_EQ(settings->evaluated_memory(), expected) << name;
    DistanceToy windowed = toy;
    if (windowed.distance.window.empty() || windowed.distance.window[0] > rows) windowed.distance.window = {rows};
    Toy found(*settings), reference(windowed), staged(*settings);
    for (Toy* t : {&found, &reference, &staged}) t->randomise();
    EXPECT_EQ(nats_of_text(found, bytes), nats_of_text(reference, bytes)) << name;
    // A stage of training may have had other windows.
    dynamic_cast<SetsWindows&>(staged.model()).set_windows({rows + 3});
    if (toy.distance.window.empty()) {
      EXPECT_EQ(nats_of_text(staged, bytes), nats_of_text(reference, bytes)) << name;
    }
    if (toy.memory.start == MemoryStart::empty) {
      Toy shorter(*settings->for_streams_of(3));
      shorter.randomise();
      EXPECT_EQ(nats_of_text(shorter, 3), nats_of_text(reference, 3)) << name;
    }
  }
}

std::string refusal_of(const DecoderConfig& config, const std::optional<std::int64_t>& length = {}) {
  try {
    EvaluatedMemory changed{length, {}};
    changed.same_length = true;
    config.with_memory(changed);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(SameLength, IsRefusedWithoutAMemoryAndWithDilatedHeads) {
  EXPECT_EQ(refusal_of(toy_config()),
            "--same-length cannot be used with this model, which remembers no positions (model.memory)");
  const std::string without =
      "--same-length cannot be used without a memory; give it a number of positions with --memory";
  EXPECT_EQ(refusal_of(transformer_xl_toy(), 0), without);
  DistanceToy forgetful = transformer_xl_toy();
  forgetful.memory = {};
  EXPECT_EQ(refusal_of(forgetful), without);
  EXPECT_EQ(refusal_of(forgetful, 20), "");
  for (const DistanceToy& config : {longformer_toy(), remembering_longformer_toy()})
    EXPECT_EQ(refusal_of(config),
              "--same-length cannot be used with this model, whose dilated heads (model.distance.dilation) do not read "
              "every key of the memory");
}

}  // namespace
}  // namespace longstride::test::same_length_test
