// Every pattern x integration x option that attention is tested over.
#pragma once
#include <string>
#include <vector>

#include "kernels/attention/pattern/pattern.h"

namespace longstride::kernels {

struct NamedPattern {
  std::string name;
  PatternConfig pattern;
  std::int64_t heads = 1;
};

inline PatternConfig pattern_of(Integration integration, std::vector<PartKind> parts, std::int64_t stride,
                                std::vector<std::int64_t> summary = {}, std::int64_t window = 0) {
  PatternConfig p;
  p.integration = integration;
  p.parts = std::move(parts);
  p.stride = stride;
  p.summary = std::move(summary);
  p.window = window;
  return p;
}

inline PatternConfig with_options(PatternConfig p, bool distinct, bool inclusive) {
  p.distinct_heads = distinct;
  p.summary_inclusive = inclusive;
  return p;
}

inline PatternConfig with_first(PatternConfig p, std::int64_t keys) {
  p.first = keys;
  return p;
}

inline PatternConfig dilated_by(std::vector<std::int64_t> distances, std::int64_t window,
                                const std::vector<PartKind>& parts) {
  PatternConfig p = pattern_of(parts.size() > 1 ? Integration::multihead : Integration::merged, parts, 0, {}, window);
  p.dilation = std::move(distances);
  return p;
}

inline PatternConfig with_block(PatternConfig p, std::int64_t positions) {
  p.block = positions;
  return p;
}

// In both directions only.
inline PatternConfig shifted_by(std::int64_t blocks, std::vector<std::int64_t> heads_of_shifts) {
  PatternConfig p = pattern_of(Integration::merged, {PartKind::shifted_block}, 0);
  p.blocks = blocks;
  p.shifts = std::move(heads_of_shifts);
  p.direction = Direction::both;
  return p;
}

inline std::vector<NamedPattern> all_patterns() {
  using enum Integration;
  using enum PartKind;
  std::vector<NamedPattern> all = {
      {"dense", pattern_of(interleaved, {dense}, 0), 1},
      {"local without stride", pattern_of(interleaved, {local}, 0, {}, 11), 1},
      {"local of one key", pattern_of(merged, {local}, 0, {}, 1), 1},
      {"first keys", with_first(pattern_of(interleaved, {first, dense}, 0), 3), 1},
      {"window and first keys", with_first(pattern_of(merged, {local, first}, 0, {}, 9), 4), 2},
      {"window and many first keys", with_first(pattern_of(merged, {local, first}, 0, {}, 3), 70), 1},
      {"block and first keys", with_first(pattern_of(merged, {fixed_block, first}, 16), 20), 1},
      {"a head of first keys", with_first(pattern_of(multihead, {local, first}, 7), 5), 2},
      {"dilated", dilated_by({1, 2, 5}, 4, {dilated}), 3},
      {"dilated far", dilated_by({1000}, 3, {dilated}), 1},
      {"dilated heads", dilated_by({3}, 9, {local, dilated}), 2},
      {"block window", with_block(pattern_of(merged, {block_window}, 0), 4), 1},
      {"block window and first keys", with_first(with_block(pattern_of(merged, {first, block_window}, 0), 7), 9), 1},
      {"wide block window", with_block(pattern_of(interleaved, {block_window}, 0), 64), 2},
  };
  for (std::int64_t l : {1, 2, 7, 16, 100}) {
    const std::string name = ", stride " + std::to_string(l);
    const std::int64_t c = l / 3 + 1;  // does not divide l, except 1 and 2
    all.push_back({"strided interleaved" + name, pattern_of(interleaved, {column, local, dense}, l), 1});
    all.push_back({"strided merged" + name, pattern_of(merged, {local, column}, l), 1});
    all.push_back({"strided merged, window l" + name, pattern_of(merged, {local, column}, l, {}, l), 1});
    all.push_back({"strided merged, window 20" + name, pattern_of(merged, {column, local}, l, {}, 20), 1});
    all.push_back({"block and column" + name, pattern_of(merged, {fixed_block, column}, l), 1});
    all.push_back({"strided multihead" + name, pattern_of(multihead, {local, column}, l), 3});
    for (bool distinct : {false, true})
      for (bool inclusive : {false, true}) {
        const std::string options = name + (distinct ? ", distinct" : "") + (inclusive ? ", inclusive" : "");
        const auto add = [&](const std::string& what, const PatternConfig& p, std::int64_t heads) {
          all.push_back({what + options, with_options(p, distinct, inclusive), heads});
        };
        add("fixed interleaved", pattern_of(interleaved, {fixed_block, fixed_summary}, l, {c}), distinct ? 4 : 1);
        add("fixed merged", pattern_of(merged, {fixed_block, fixed_summary}, l, {c}), distinct ? 4 : 1);
        add("fixed merged, width 1", pattern_of(merged, {fixed_summary, fixed_block}, l, {1}), distinct ? 3 : 1);
        add("fixed merged, whole block", pattern_of(merged, {fixed_block, fixed_summary}, l, {l}), 1);
        add("fixed, one width per head", pattern_of(merged, {fixed_block, fixed_summary}, l, {c, 1, l, (l + 1) / 2}),
            4);
        add("window and summary", pattern_of(merged, {local, fixed_summary}, l, {c}), distinct ? 4 : 1);
        add("fixed multihead", pattern_of(multihead, {fixed_block, fixed_summary}, l, {c}), 4);
      }
  }
  return all;
}

// The same in both directions, with windows of the next odd width.
inline std::vector<NamedPattern> patterns_of_both_directions() {
  std::vector<NamedPattern> all = all_patterns();
  for (NamedPattern& p : all) {
    p.name += ", both";
    p.pattern.direction = Direction::both;
    p.pattern.window = window_of(p.pattern) / 2 * 2 + 1;
  }
  all.push_back({"shifted blocks", shifted_by(2, {2, 1}), 3});
  all.push_back({"many shifted blocks", shifted_by(5, {1, 0, 1, 0, 1}), 3});
  all.push_back({"a block", shifted_by(1, {1}), 1});
  return all;
}

}  // namespace longstride::kernels
