// Settings of attention with a distance term, a memory and learned spans (kernels/distance_attention), as a recipe's
// `model.distance` and `model.memory` give them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace longstride {

// The vectors T of distances. sinusoid: W_r R, where R_t has the sines and cosines of distance t (Dai et al. 2019).
enum class DistanceTable : std::uint8_t { none, sinusoid, learned };
// Layers that share the biases u and v.
enum class BiasSharing : std::uint8_t { none, layer, model };
// A row's memory where its stream starts: nothing, or zeros that receive weight.
enum class MemoryStart : std::uint8_t { empty, zeros };

// A span per head, learned between 0 and 1 times `longest` (Sukhbaatar et al. 2019).
struct LearnedSpans {
  std::int64_t longest = 0;  // 0: none
  std::int64_t ramp = 32;    // distances over which a weight falls from 1 to 0
  double initial = 0;
  double loss = 0;  // times the sum of all layers' mean spans in positions: added to a step's loss, reported apart

  bool given() const { return longest > 0; }
};

struct DistanceConfig {
  bool given = false;
  DistanceTable table = DistanceTable::sinusoid;
  bool shared_table = false;   // a learned table for all layers and heads
  std::int64_t distances = 0;  // rows of a learned table; a sinusoid's farther distances read the last. 0: all
  std::int64_t clamp = 0;  // only in evaluations: distances beyond it read its row of a learned table; 0: the last one
  std::int64_t longest_window = 0;  // only in evaluations: no layer's window is longer; 0: no limit
  BiasSharing biases = BiasSharing::layer;
  std::vector<std::int64_t> window;    // each layer's window, or one for all; empty: all keys
  std::vector<std::int64_t> dilation;  // likewise, the dilation of the first `dilated_heads` heads; empty: none
  std::int64_t dilated_heads = 0;
  bool self = true;          // a position attends to itself
  double dropout = 0;        // dropout rate of probabilities
  double table_dropout = 0;  // dropout rate of a sinusoid's R, alike in all layers and for all rows
  LearnedSpans span;

  // A learned table's first row belongs to distance 1 where no position attends to itself.
  std::int64_t first_distance() const { return table == DistanceTable::learned && !self ? 1 : 0; }
  // The distance that the last row belongs to, if `distances` sets one.
  std::int64_t last_distance() const { return first_distance() + distances - 1; }
  static std::int64_t of_layer(const std::vector<std::int64_t>& values, std::int64_t layer, std::int64_t otherwise) {
    if (values.size() < 2) return values.empty() ? otherwise : values[0];
    return values.at(static_cast<std::size_t>(layer));
  }
  std::int64_t dilation_of(std::int64_t layer, std::int64_t head) const {
    return head < dilated_heads ? of_layer(dilation, layer, 1) : 1;
  }
};

// The windows in effect, which all layers share: those of the settings, or of a stage of training.
struct Windows {
  std::vector<std::int64_t> of_layers;  // as DistanceConfig::window
  std::int64_t longest = 0;             // as DistanceConfig::longest_window

  std::int64_t of(std::int64_t layer) const {
    const std::int64_t own = DistanceConfig::of_layer(of_layers, layer, 0);
    return longest > 0 && (own == 0 || own > longest) ? longest : own;
  }
};

// How `rate` rows that leave the memory become one (Rae et al. 2020, section 3.2). mean, max: over neighbours.
// convolution: a learned map of `rate` neighbours. dilated: the same of rows that lie as far apart as there are
// results. most_used: of all rows, those that received the most attention stay.
enum class Compression : std::uint8_t { mean, max, convolution, dilated, most_used };

struct MemoryConfig {
  std::int64_t length = 0;  // positions before the segment whose inputs a layer remembers
  MemoryStart start = MemoryStart::empty;
  std::int64_t compressed = 0;  // rows before the memory, made of what leaves it
  std::int64_t rate = 0;
  Compression compress = Compression::convolution;
  double reconstruction = 1;  // factor of the attention-reconstruction loss

  std::int64_t rows() const { return compressed + length; }
  // A compressed row is made of `rate` neighbours, whatever else leaves with them.
  bool compresses_neighbours() const { return compress != Compression::dilated && compress != Compression::most_used; }
  bool learns_to_compress() const {
    return compressed > 0 && (compress == Compression::convolution || compress == Compression::dilated);
  }
};

}  // namespace longstride
