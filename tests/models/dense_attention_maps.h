// Probabilities of a decoder's attention with a distance term by their definition, pair by pair in double, for layers
// whose input follows from the text alone: the first, and the second where the first adds nothing to the stream.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/core/parameters.h"
#include "framework/models/decoder/config.h"
#include "kernels/attention/naive.h"

namespace longstride::test {

// The outputs of the first layer's branches become 0.
inline void silence_first_layer(ParameterSet& parameters) {
  for (Parameter& p : parameters.all())
    if (p.name.starts_with("layers.0.attention.output.") || p.name.starts_with("layers.0.feed_forward.outer."))
      std::fill_n(p.master.as<double>(), p.shape.count(), 0.0);
}

class DenseAttentionMaps {
 public:
  // Maps of the last segment of the text, whose first byte starts a stream.
  DenseAttentionMaps(const DecoderConfig& config, ParameterSet& parameters, const std::vector<std::uint8_t>& text)
      : c_(config), parameters_(parameters) {
    const bool post = c_.norm == NormOrder::post;
    std::vector<Row> stream;
    for (std::size_t t = 0; t < text.size(); ++t) {
      const Row table = values(t == 0 ? "embedding.start" : "embedding.token.weight");
      const std::size_t first = t == 0 ? 0 : text[t - 1] * width();
      Row x(table.begin() + at(first), table.begin() + at(first + width()));
      if (c_.embedding_scale)
        for (double& v : x) v *= std::sqrt(static_cast<double>(c_.width));
      stream.push_back(x);
    }
    for (int layer = 0; layer < 2; ++layer) {
      const std::string name = "layers." + std::to_string(layer);
      std::vector<Row> inputs;
      for (Row& x : stream) {
        inputs.push_back(post ? x : norm(x, name + ".attention_norm"));
        if (post) x = norm(norm(x, name + ".attention_norm"), name + ".feed_forward_norm");
      }
      inputs_.push_back(joined(inputs));
    }
  }

  std::vector<double> probabilities(std::int64_t layer, std::int64_t head, std::int64_t query) const {
    const auto& rows = inputs_[static_cast<std::size_t>(layer)];
    const std::string name = "layers." + std::to_string(layer) + ".attention";
    const std::string shared = c_.distance.biases == BiasSharing::model ? "distance" : name;
    const std::int64_t position = c_.memory.rows() + query, keys = position + 1, size = c_.key_size();
    const Row q = projected(name, 0, head, rows[static_cast<std::size_t>(position)]),
              u = values(shared + ".content_bias"), v = values(shared + ".position_bias");
    Row k, table, each(static_cast<std::size_t>(keys * keys)), none(static_cast<std::size_t>(keys));
    std::vector<kernels::NaivePair<double>> pairs;
    for (std::int64_t j = 0; j < keys; ++j) {
      const Row& other = rows[static_cast<std::size_t>(j)];
      const Row key = other.empty() ? Row(q.size()) : projected(name, 1, head, other);
      k.insert(k.end(), key.begin(), key.end());
      const Row t = distance_row(name, head, j);
      table.insert(table.end(), t.begin(), t.end());
      each[static_cast<std::size_t>(j * keys + j)] = 1;  // so that the output is the probabilities
      const double w = other.empty() ? 0 : weight(layer, head, position - j);
      if (w > 0) pairs.push_back({.key = j, .distance = position - j, .weight = w});
    }
    const auto of_head = [&](const Row& bias) { return bias.empty() ? nullptr : bias.data() + head * size; };
    kernels::NaiveAttention<double> naive({1, 1, keys, 1, size, keys, 1 / std::sqrt(static_cast<double>(size)),
                                           q.data(), k.data(), each.data(), none.data(), table.empty() ? 0 : keys, 1,
                                           table.data(), of_head(u), of_head(v)});
    return naive.run([&](std::int64_t, std::int64_t, std::int64_t) { return pairs; }).o;
  }

 private:
  using Row = std::vector<double>;
  static std::ptrdiff_t at(std::size_t i) { return static_cast<std::ptrdiff_t>(i); }
  std::size_t width() const { return static_cast<std::size_t>(c_.width); }

  const Parameter* find(const std::string& name) const {
    for (const Parameter& p : parameters_.all())
      if (p.name == name) return &p;
    return nullptr;
  }
  // Empty if there is none.
  Row values(const std::string& name) const {
    const Parameter* p = find(name);
    if (p == nullptr) return {};
    return {p->master.as<double>(), p->master.as<double>() + p->shape.count()};
  }

  Row norm(const Row& x, const std::string& name) const {
    const Row gain = values(name + ".weight"), bias = values(name + ".bias");
    double mean = 0, variance = 0;
    for (double v : x) mean += v / static_cast<double>(x.size());
    for (double v : x) variance += (v - mean) * (v - mean) / static_cast<double>(x.size());
    Row y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      y[i] = (x[i] - mean) / std::sqrt(variance + static_cast<double>(1e-5F)) * gain[i] + bias[i];
    return y;
  }

  // [compressed memory | memory | last segment]; hidden rows are empty, rows of a memory of zeros are zeros.
  std::vector<Row> joined(const std::vector<Row>& inputs) const {
    const MemoryConfig& m = c_.memory;
    const std::int64_t segment = std::ssize(inputs) - c_.context;
    const Row absent = m.start == MemoryStart::zeros ? Row(width(), 0.0) : Row{};
    std::vector<Row> out;
    for (std::int64_t r = 0; r < m.compressed; ++r) {
      const std::int64_t first = segment - m.length - (m.compressed - r) * m.rate;
      if (first < 0) {
        out.push_back(absent);
        continue;
      }
      Row mean(width(), 0.0);
      for (std::int64_t t = first; t < first + m.rate; ++t)
        for (std::size_t i = 0; i < width(); ++i)
          mean[i] += inputs[static_cast<std::size_t>(t)][i] / static_cast<double>(m.rate);
      out.push_back(mean);
    }
    for (std::int64_t t = segment - m.length; t < std::ssize(inputs); ++t)
      out.push_back(t < 0 ? absent : inputs[static_cast<std::size_t>(t)]);
    return out;
  }

  // 0 where a distance is not seen.
  double weight(std::int64_t layer, std::int64_t head, std::int64_t distance) const {
    const std::int64_t step = c_.distance.dilation_of(layer, head),
                       window = DistanceConfig::of_layer(c_.distance.window, layer, 0);
    if (distance % step != 0 || (window > 0 && distance / step >= window) || (distance == 0 && !c_.distance.self))
      return 0;
    const LearnedSpans& s = c_.distance.span;
    if (!s.given()) return 1;
    const double z = values("layers." + std::to_string(layer) + ".attention.span")[static_cast<std::size_t>(head)];
    const double ramp = static_cast<double>(s.ramp),
                 w = (ramp + z * static_cast<double>(s.longest) - static_cast<double>(distance)) / ramp;
    return w < 1.0 / 1024 ? 0 : std::min(w, 1.0);
  }

  // Row `which` (0: query, 1: key) of the head's projection.
  Row projected(const std::string& name, int which, std::int64_t head, const Row& x) const {
    const Row matrix = values(name + ".query_key_value.weight"), bias = values(name + ".query_key_value.bias");
    const auto size = static_cast<std::size_t>(c_.key_size());
    const std::size_t first =
        (static_cast<std::size_t>(which) * static_cast<std::size_t>(c_.heads) + static_cast<std::size_t>(head)) * size;
    Row y(size);
    for (std::size_t r = 0; r < size; ++r) {
      y[r] = bias.empty() ? 0 : bias[first + r];
      for (std::size_t i = 0; i < width(); ++i) y[r] += matrix[(first + r) * width() + i] * x[i];
    }
    return y;
  }

  // T of the head at a distance; empty without a table.
  Row distance_row(const std::string& name, std::int64_t head, std::int64_t distance) const {
    const DistanceConfig& d = c_.distance;
    const auto size = static_cast<std::size_t>(c_.key_size()), heads = static_cast<std::size_t>(c_.heads),
               h = static_cast<std::size_t>(head);
    if (d.table == DistanceTable::none) return {};
    if (d.table == DistanceTable::learned) {
      const Row table = values(d.shared_table ? "distance.table" : name + ".distance.table");
      const std::int64_t row = std::clamp<std::int64_t>(d.self ? distance : distance - 1, 0, d.distances - 1);
      const std::size_t first =
          d.shared_table ? static_cast<std::size_t>(row) * size : (static_cast<std::size_t>(row) * heads + h) * size;
      return {table.begin() + at(first), table.begin() + at(first + size)};
    }
    const double t = static_cast<double>(d.distances > 0 ? std::min(distance, d.distances - 1) : distance);
    const Row matrix = values(name + ".distance.weight");
    Row y(size, 0.0);
    for (std::size_t r = 0; r < size; ++r)
      for (std::size_t i = 0; i < width(); ++i) {
        const std::size_t wave = i % (width() / 2);
        const double angle = t * std::pow(10000.0, -2.0 * static_cast<double>(wave) / static_cast<double>(width()));
        y[r] += matrix[(h * size + r) * width() + i] * (i < width() / 2 ? std::sin(angle) : std::cos(angle));
      }
    return y;
  }

  DecoderConfig c_;
  ParameterSet& parameters_;
  std::vector<std::vector<Row>> inputs_;  // by layer
};

}  // namespace longstride::test
