// The form of the blocks along a residual stream; the defaults are the Sparse Transformer's (Child et al. 2019, section
// 5).
#pragma once
#include <cmath>
#include <cstdint>

#include "kernels/activation/activation.h"
#include "kernels/attention/pattern/pattern.h"
#include "kernels/query_key/query_key.h"

namespace longstride {

// Results that backward computes again. selective: layers, except attention's outputs. automatic: the fastest that
// fits, which the planner chooses before training (framework/train/step/recompute_choice.h).
enum class Recompute : std::uint8_t { none, selective, block, attention_and_feed_forward, automatic };

// How to read N(0, 0.125 / fan_in): as a variance (the released code) or a standard deviation.
enum class InitReading : std::uint8_t { variance, deviation };

// pre: a branch reads the normalised stream. post: the stream is normalised after every branch.
enum class NormOrder : std::uint8_t { pre, post };

// Standard deviations of single tables, in place of the rule of the others; 0: that rule.
struct InitDeviations {
  double embedding = 0;       // tokens and the start vector
  double distance_table = 0;  // learned tables of distances

  bool given() const { return embedding > 0 || distance_table > 0; }
};

// Rows that see all others, and that all others see (Beltagy et al. 2020, Zaheer et al. 2020).
struct GlobalRows {
  // At both ends of a row: positions, or blocks where the pattern draws blocks. Only blocks may be at its end.
  std::int64_t first = 0, last = 0;
  bool own = false;  // they have projections of their own, for their queries and for the keys and values that they read
  // Rows of their own in front of a row's positions (Ainslie et al. 2020), which those at the ends exclude.
  std::int64_t added = 0;
  bool of_groups = false;  // each is that of a group of the row, the last one of all groups that are left
  bool own_group = false;  // and sees only the positions of its group, besides all global rows

  bool given() const { return first > 0 || last > 0 || added > 0; }
};

struct BlockForm {
  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;
  kernels::Direction direction = kernels::Direction::past;  // the positions that a mixer reads: earlier ones, or all
  GlobalRows global;
  double key_ratio = 1.0;           // key size per head = key_ratio * width / heads
  double feed_forward_ratio = 4.0;  // inner width = feed_forward_ratio * width
  double dropout = 0;               // dropout rate of branch outputs
  double inner_dropout = 0;         // dropout rate behind the activation of feed-forward branches
  double rotary_base = 0;           // above 0: queries and keys are rotated by their position
  bool query_key_norm = false;      // queries and keys are divided by their root mean square
  NormOrder norm = NormOrder::pre;
  kernels::Activation activation = kernels::Activation::sigmoid_gelu;
  bool attention_bias = true;     // in the maps to queries, keys and values, and in the output projection
  bool feed_forward_bias = true;  // in both maps
  Recompute recompute = Recompute::none;
  InitReading init = InitReading::variance;
  double init_deviation = 0;  // above 0: of every matrix and table, instead of the rule that `init` reads
  InitDeviations init_deviations;

  std::int64_t key_size() const {
    return static_cast<std::int64_t>(key_ratio * static_cast<double>(width) / static_cast<double>(heads) + 0.5);
  }
  std::int64_t value_size() const { return width / heads; }
  std::int64_t inner_width() const {
    return static_cast<std::int64_t>(feed_forward_ratio * static_cast<double>(width) + 0.5);
  }
  kernels::QueryKeyTransform transform() const { return {query_key_norm, rotary_base}; }

  // The standard deviation of initial weights: 0.125 / fan_in, as a variance or as a deviation; or the recipe's own.
  double deviation(double fan_in) const {
    if (init_deviation > 0) return init_deviation;
    const double value = 0.125 / fan_in;
    return init == InitReading::variance ? std::sqrt(value) : value;
  }
  double deviation_or(double own, double fan_in) const { return own > 0 ? own : deviation(fan_in); }
  // The two projections that write to the residual stream start smaller, by 1 / sqrt(2 N) (section 5.2).
  double shrink() const { return init_deviation > 0 ? 1.0 : 1.0 / std::sqrt(2.0 * static_cast<double>(layers)); }
};

}  // namespace longstride
