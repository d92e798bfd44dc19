// Shapes for every CUDA kernel of attention, small enough for emulated blocks.
#pragma once
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "tests/kernels/attention_patterns.h"

namespace longstride::kernels {

// Labels of pairs, clipped distances or places from the end, of three groups or of all; none: of no pair.
struct EmulatedLabels {
  std::int64_t count = 0, tables = 1;
  std::int32_t clip = 0;
  bool grouped = false, from_end = false;
  std::int64_t block = 0;  // own blocks and the keys before them are parts with places of their own; 0: one part

  static std::int32_t group(std::int64_t sequence, std::int64_t position) {
    return static_cast<std::int32_t>((position + sequence) * position % 3);
  }
  // after: keys behind j in i's interval.
  std::int64_t of(std::int64_t sequence, std::int64_t i, std::int64_t j, std::int64_t after) const {
    const std::int64_t of_set = grouped ? count / 2 : count;
    const std::int64_t label =
        from_end ? std::min(after, of_set - 1) : std::clamp<std::int64_t>(j - i, -clip, clip) + clip;
    return grouped && group(sequence, i) != group(sequence, j) ? label + of_set : label;
  }
  std::string text() const {
    return count == 0 ? "" : ", " + std::to_string(count) + (from_end ? " places" : " labels");
  }
};

struct EmulatedShape {
  static constexpr std::int32_t intervals = -1;
  std::string name;
  PatternConfig pattern;
  std::int64_t n, heads, key_size, value_size;
  // Few short classes take turns with `automatic`, and keep dQ in shared memory with `sm90`.
  AttentionPath path = AttentionPath::sm90;
  std::vector<std::int32_t> ends = {};  // where documents end, to which rows are clamped; -1 alone: to intervals
  Dtype dtype = Dtype::bf16;
  std::int32_t block = 0;  // rows of drawn lists; 0: none
  EmulatedLabels labels = {};
  std::int64_t batch = 1;
  std::int64_t key_heads = 0;  // 0: as many
  std::int64_t queries = 0;    // 0: n

  std::string with_sizes() const {
    const std::string documents = ends.empty()                ? ""
                                  : ends.front() == intervals ? ", intervals"
                                                              : ", " + std::to_string(ends.size()) + " documents";
    const std::string lists = block == 0 ? "" : ", lists of " + std::to_string(block);
    const std::string shared = key_heads == 0 ? "" : ", " + std::to_string(heads) + " on " + std::to_string(key_heads);
    const std::string of = queries == 0 ? "" : ", queries " + std::to_string(queries);
    return name + documents + lists + labels.text() + shared + of + ", n " + std::to_string(n) + ", heads " +
           std::to_string(key_size) + "/" + std::to_string(value_size) +
           (path == AttentionPath::portable ? std::string(", ") + name_of(dtype) : "");
  }
  std::string test_name() const {
    std::string made;
    for (char c : with_sizes()) made += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
    return made;
  }
};

inline void PrintTo(const EmulatedShape& shape, std::ostream* out) { *out << shape.with_sizes(); }  // in ctest's lists

// The patterns that the shapes have.
namespace emulated_patterns {

using enum Integration;
using enum PartKind;
using enum AttentionPath;

inline PatternConfig window(std::int64_t keys) { return pattern_of(merged, {local}, 0, {}, keys); }
inline PatternConfig columns(std::int64_t stride) { return pattern_of(merged, {column}, stride); }
inline PatternConfig blocks(std::int64_t length) { return pattern_of(merged, {fixed_block}, length); }
inline PatternConfig fixed(std::int64_t l, std::int64_t c, bool inclusive = false) {
  return with_options(pattern_of(merged, {fixed_block, fixed_summary}, l, {c}), !inclusive, inclusive);
}
inline PatternConfig all() { return pattern_of(merged, {dense}, 0); }

}  // namespace emulated_patterns

inline std::vector<EmulatedShape> long_band_shapes() {
  using namespace emulated_patterns;
  return {
      // Long bands: sums of dQ in shared memory, and in turns.
      {"local 330", window(330), 700, 1, 64, 64},
      {"column 2", columns(2), 700, 1, 64, 64},
      {"dense", all(), 450, 1, 64, 64},
      {"dense", all(), 600, 1, 48, 40},
      {"dense", all(), 530, 1, 32, 32},
      // Own blocks and summary rows, by boxes and in pieces.
      {"fixed 64, 16", fixed(64, 16), 333, 2, 64, 64},
      {"fixed 128, 32", fixed(128, 32), 450, 2, 64, 64},
      {"fixed 100, 25", fixed(100, 25), 450, 2, 64, 64},
      {"fixed 128, 31", fixed(128, 31), 450, 1, 24, 32},
      {"fixed 128, 32", fixed(128, 32), 450, 1, 32, 24},
      {"fixed 100, 25", fixed(100, 25), 333, 1, 128, 96},
      {"fixed 128, 32", fixed(128, 32), 450, 1, 128, 128},
      // The same of heads of up to 32, whose key tiles have 192 rows: the last one is full, or has one strip or two,
      // and all of n may be less.
      {"dense", all(), 321, 1, 32, 24, automatic},
      {"dense", all(), 384, 2, 32, 32, automatic},
      {"dense", all(), 385, 1, 16, 32, automatic},
      {"dense", all(), 450, 1, 32, 32, automatic},
      {"dense", all(), 576, 3, 32, 32},
      {"local 400", window(400), 600, 1, 32, 32},
      {"local 321", window(321), 1000, 1, 32, 32},
      {"block 400", blocks(400), 900, 1, 24, 32},
      {"column 2", columns(2), 1201, 1, 32, 32},
      {"fixed 64, 16", fixed(64, 16), 64, 2, 32, 32},
      {"fixed 64, 16", fixed(64, 16), 100, 2, 32, 32},
      {"fixed 128, 32", fixed(128, 32), 150, 1, 32, 32},
      {"fixed 64, 32", fixed(64, 32), 833, 2, 32, 32},
      {"fixed 128, 32", fixed(128, 32), 1000, 1, 32, 32},
      // And of more than 64.
      {"local 400", window(400), 600, 1, 128, 128},
      {"local 100", window(100), 333, 2, 96, 128},
      {"local 7", window(7), 200, 1, 72, 40},
      {"column 3", columns(3), 500, 1, 128, 128},
      {"block 100", blocks(100), 333, 1, 128, 112},
      {"dense", all(), 300, 3, 128, 128},
      {"dense", all(), 450, 1, 64, 128},
  };
}

// Documents that begin and end within tiles, at their edges, and one position after another.
inline std::vector<EmulatedShape> document_shapes() {
  using namespace emulated_patterns;
  const std::vector<std::int32_t> few = {1, 2, 64, 200, 290}, many = {63, 64, 128, 192, 193, 250, 256, 300};
  const PatternConfig strided = pattern_of(merged, {local, column}, 16);
  return {
      {"local 7", window(7), 291, 2, 32, 32, sm90, few},
      {"local 100", window(100), 333, 2, 64, 64, sm90, few},
      {"local 193", window(193), 450, 1, 128, 128, sm90, many},
      {"local 330", window(330), 700, 1, 64, 64, automatic, many},
      {"local 250", window(250), 520, 1, 32, 32, automatic, many},
      {"dense", all(), 450, 2, 64, 64, sm90, many},
      {"dense", all(), 450, 1, 32, 24, sm90, few},
      {"column 3", columns(3), 500, 1, 64, 64, sm90, many},
      {"column 2", columns(2), 700, 1, 32, 32, automatic, few},
      {"block 100", blocks(100), 333, 1, 64, 128, sm90, few},
      {"fixed 64, 16", fixed(64, 16), 333, 2, 64, 64, sm90, many},
      {"fixed 100, 25", fixed(100, 25), 333, 1, 128, 96, sm90, few},
      {"strided", strided, 301, 1, 64, 64, sm90, many},
      {"inclusive", fixed(64, 16, true), 400, 1, 64, 64, sm90, few},
      {"local 100", window(100), 333, 2, 64, 64, sm90, {EmulatedShape::intervals}},
      {"dense", all(), 300, 1, 32, 24, sm90, {EmulatedShape::intervals}},
      {"fixed 64, 16", fixed(64, 16), 333, 1, 128, 128, sm90, {EmulatedShape::intervals}},
  };
}

// The kernels for other GPUs: every size of heads, rows that are not on 16 bytes, launches that add to earlier ones.
inline std::vector<EmulatedShape> portable_shapes() {
  using namespace emulated_patterns;
  using enum Dtype;
  const std::vector<std::int32_t> few = {1, 2, 64, 120, 190}, many = {63, 64, 128, 192, 193, 250, 256, 300};
  const PatternConfig strided = pattern_of(merged, {local, column}, 16);
  PatternConfig two_sided = with_first(pattern_of(merged, {local, first}, 0, {}, 31), 4);
  PatternConfig both = all();
  two_sided.direction = both.direction = Direction::both;
  std::vector<EmulatedShape> shapes;
  for (const Dtype dtype : {bf16, f16, f32})
    for (EmulatedShape shape : {EmulatedShape{"local 60", window(60), 200, 1, 32, 32},
                                {"dense", all(), 131, 2, 23, 31},
                                {"strided", strided, 180, 1, 64, 64},
                                {"fixed 50, 7", fixed(50, 7), 150, 1, 48, 128},
                                {"inclusive", fixed(64, 16, true), 130, 1, 64, 35},
                                {"local 33", window(33), 200, 1, 128, 128},
                                {"column 3", columns(3), 200, 1, 64, 64, portable, few},
                                {"local 100", window(100), 200, 1, 100, 72, portable, few},
                                {"both, window and first keys", two_sided, 150, 1, 32, 32},
                                {"both, shifted blocks", shifted_by(3, {1, 1}), 150, 2, 32, 32},
                                {"dense", all(), 333, 2, 32, 32, portable, {}, bf16, 64},
                                {"both, dense", both, 333, 2, 64, 64, portable, many, bf16, 64},
                                {"both, dense", both, 290, 1, 128, 128, portable, {}, bf16, 128}}) {
      shape.path = portable;
      shape.dtype = dtype;
      shapes.push_back(std::move(shape));
    }
  return shapes;
}

// Labels; where they count from the end, of one part, or of own blocks and others.
inline std::vector<EmulatedShape> labelled_shapes() {
  using namespace emulated_patterns;
  using enum Dtype;
  const std::vector<std::int32_t> few = {1, 2, 64, 120, 190};
  const PatternConfig strided = pattern_of(merged, {local, column}, 16);
  PatternConfig two_sided = with_first(pattern_of(merged, {local, first}, 0, {}, 31), 4);
  PatternConfig around = window(41);
  two_sided.direction = around.direction = Direction::both;
  std::vector<EmulatedShape> shapes = {
      {"column 3", columns(3), 200, 1, 100, 72, portable, few, f16, 0, {9, 1, 0, false, true}}};
  for (const Dtype dtype : {bf16, f32})
    for (const EmulatedShape& shape :
         {EmulatedShape{"local 60", window(60), 200, 2, 32, 32, portable, {}, dtype, 0, {25, 2, 12}},
          {"strided", strided, 130, 1, 64, 64, portable, {}, dtype, 0, {14, 1, 3, true}},
          {"both, window and first keys", two_sided, 130, 2, 23, 31, portable, {}, dtype, 0, {6, 2, 1, true}, 2},
          {"both, local 41", around, 170, 1, 64, 64, portable, {}, dtype, 0, {24, 1, 0, true, true}},
          {"fixed 50, 7", fixed(50, 7), 150, 1, 32, 32, portable, {}, dtype, 0, {60, 1, 0, false, true, 50}},
          {"dense", all(), 200, 2, 64, 64, portable, {}, dtype, 64, {14, 2, 3, true}},
          {"inclusive", fixed(64, 16, true), 130, 1, 48, 128, portable, {}, dtype, 0, {41, 1, 20}}})
      shapes.push_back(shape);
  return shapes;
}

// Labels and other queries than keys on Hopper: distances whose tiles are far, near and cut off, groups, one label,
// bounds that leave nothing, and heads that share keys.
inline std::vector<EmulatedShape> labelled_sm90_shapes() {
  using namespace emulated_patterns;
  using enum Dtype;
  const std::vector<std::int32_t> few = {1, 2, 64, 200, 290}, intervals = {EmulatedShape::intervals};
  PatternConfig around = window(101), both = all();
  around.direction = both.direction = Direction::both;
  const auto of_queries = [](std::int64_t queries, EmulatedShape shape) {
    shape.queries = queries;
    return shape;
  };
  return {
      {"both, local 101", around, 450, 2, 64, 64, sm90, {}, bf16, 0, {25, 2, 12}},
      {"both, local 101", around, 333, 2, 48, 64, sm90, few, f16, 0, {49, 1, 24}},
      {"local 200", window(200), 400, 1, 64, 40, sm90, intervals, bf16, 0, {5, 1, 2}},
      {"both, dense", both, 300, 4, 64, 64, sm90, {}, bf16, 0, {2, 1, 0, true}, 1, 2},
      {"both, dense", both, 70, 1, 32, 32, sm90, {}, bf16, 0, {1, 1, 0}},
      of_queries(37, {"both, dense", both, 450, 2, 64, 64, sm90, {}, bf16, 0, {2, 2, 0, true}, 2}),
      of_queries(450, {"both, dense", both, 70, 2, 64, 64, sm90, intervals, bf16, 0, {2, 1, 0, true}}),
      of_queries(130, {"both, dense", both, 333, 1, 64, 64, sm90, {}, f16, 0, {7, 1, 3}}),
      of_queries(200, {"both, dense", both, 65, 2, 40, 64, sm90, intervals}),
      of_queries(5, {"both, dense", both, 321, 2, 32, 24, sm90, {}, bf16, 0, {}, 3, 1}),
      // Blocks that share a tile.
      of_queries(70, {"both, dense", both, 1600, 1, 64, 64, sm90, {}, bf16, 0, {2, 1, 0, true}, 2}),
      of_queries(1600, {"both, dense", both, 70, 2, 64, 56, sm90, intervals, f16, 0, {25, 2, 12}}),
      of_queries(40, {"both, dense", both, 1100, 2, 40, 64, sm90, intervals, bf16, 0, {7, 2, 3}, 1, 1}),
      of_queries(1100, {"both, dense", both, 130, 1, 64, 64, sm90, {}, bf16, 0, {}, 2}),
      of_queries(16, {"both, dense", both, 1610, 2, 64, 64}),
      of_queries(1200, {"both, dense", both, 70, 2, 64, 64, sm90, {}, bf16, 0, {}, 2, 1}),
  };
}

// Both directions, with and without documents.
inline std::vector<EmulatedShape> two_sided_shapes() {
  using namespace emulated_patterns;
  const auto both = [](PatternConfig pattern) {
    pattern.direction = Direction::both;
    return pattern;
  };
  const auto beside_window = [&](PartKind rest, std::int64_t l, std::int64_t w) {
    return both(pattern_of(merged, {local, rest}, l, {l / 4}, w));
  };
  const std::vector<std::int32_t> many = {63, 64, 128, 192, 193, 250, 256, 300};
  return {
      {"both, local 129", both(window(129)), 450, 2, 64, 64},
      {"both, local 513", both(window(513)), 900, 1, 32, 32},
      {"both, local 7", both(window(7)), 333, 1, 128, 128, sm90, many},
      {"both, dense", both(all()), 321, 1, 64, 64},
      {"both, block window 100", both(with_block(pattern_of(merged, {block_window}, 0), 100)), 450, 1, 64, 64},
      {"both, block window 64", both(with_block(pattern_of(merged, {block_window}, 0), 64)), 333, 1, 128, 96, sm90,
       many},
      {"both, shifted block", shifted_by(3, {2}), 333, 2, 32, 32},
      {"both, shifted blocks", shifted_by(3, {1, 1}), 333, 2, 64, 64},
      {"both, shifted blocks of tiles", shifted_by(3, {1, 1, 1}), 192, 3, 64, 64},
      {"both, shifted blocks of tiles", shifted_by(2, {0, 2}), 256, 2, 128, 96},
      {"both, shifted blocks of tiles", shifted_by(5, {1, 0, 1}), 320, 2, 24, 32},
      {"both, dilated", both(dilated_by({1, 3}, 31, {dilated})), 300, 2, 64, 64},
      {"both, dense", both(all()), 450, 1, 32, 24, sm90, many},
      {"both, column 3", both(columns(3)), 500, 1, 64, 128},
      {"both, block 100", both(blocks(100)), 333, 2, 64, 64},
      {"both, fixed 64, 16", both(fixed(64, 16)), 333, 2, 64, 64},
      {"both, fixed 100, 25", both(fixed(100, 25)), 350, 1, 128, 96, sm90, many},
      {"both, strided", beside_window(column, 16, 33), 300, 1, 64, 64},
      {"both, window and summaries", beside_window(fixed_summary, 64, 101), 333, 1, 64, 64, sm90, many},
      {"both, window and first keys", with_first(beside_window(first, 0, 31), 4), 200, 1, 32, 32},
      // Blocks that share the first keys.
      {"both, window and first keys", with_first(beside_window(first, 0, 31), 64), 1100, 1, 64, 64},
      {"both, window and 8 first keys", with_first(beside_window(first, 0, 31), 8), 1600, 2, 32, 64, sm90, many},
      {"window and first keys", with_first(pattern_of(merged, {local, first}, 0, {}, 31), 128), 1100, 1, 64, 40},
  };
}

// Heads that share keys: every family that takes them, and bands that leave their backward pass to others.
inline std::vector<EmulatedShape> grouped_shapes() {
  using namespace emulated_patterns;
  using enum Dtype;
  const std::vector<std::int32_t> few = {1, 2, 64, 120, 190}, many = {63, 64, 128, 192, 193, 250, 256, 300};
  const PatternConfig strided = pattern_of(merged, {local, column}, 16);
  PatternConfig both = all(), around = window(129);
  both.direction = around.direction = Direction::both;
  const auto on = [](std::int64_t key_heads, EmulatedShape shape) {
    shape.key_heads = key_heads;
    return shape;
  };
  std::vector<EmulatedShape> shapes = {
      on(1, {"local 65", window(65), 321, 4, 24, 32}),
      on(2, {"local 193", window(193), 333, 4, 64, 64}),
      on(1, {"local 129", window(129), 450, 2, 128, 128}),
      on(1, {"local 400", window(400), 600, 2, 64, 64}),
      on(2, {"block 100", blocks(100), 333, 4, 64, 128}),
      on(2, {"column 3", columns(3), 400, 6, 64, 64}),
      on(1, {"dense", all(), 450, 2, 64, 64}),
      on(1, {"dense", all(), 385, 3, 32, 32, automatic}),
      on(2, {"strided", strided, 300, 4, 64, 64}),
      on(1, {"strided", strided, 180, 2, 128, 96}),
      on(2, {"inclusive", fixed(64, 16, true), 333, 4, 64, 64}),
      on(2, {"fixed 64, 16", fixed(64, 16), 333, 4, 64, 64}),
      on(1, {"fixed 100, 25", fixed(100, 25), 333, 2, 128, 96}),
      on(1, {"fixed 100, 25", fixed(100, 25), 333, 2, 32, 32}),
      on(1, {"local 100", window(100), 333, 2, 64, 64, sm90, many}),
      on(1, {"local 100", window(100), 333, 2, 64, 64, sm90, {EmulatedShape::intervals}}),
      on(2, {"both, local 129", around, 333, 4, 64, 64}),
      on(1, {"both, dense", both, 333, 2, 64, 64, sm90, many, bf16, 64}),
  };
  for (const Dtype dtype : {bf16, f16, f32})
    for (const EmulatedShape& shape :
         {on(1, {"local 60", window(60), 200, 3, 32, 32, portable, few, dtype}),
          on(2, {"strided", strided, 131, 4, 23, 31, portable, {}, dtype}),
          on(1, {"dense", all(), 131, 2, 64, 64, portable, {}, dtype, 64}),
          on(2, {"column 3", columns(3), 130, 4, 64, 64, portable, {}, dtype, 0, {14, 1, 3, true}, 2})})
      shapes.push_back(shape);
  return shapes;
}

// Lists on Hopper: of both sizes of kernels, with more tiles than a ring has, blocks of several tiles, ragged ends, and
// lists of which bounds leave something, or nothing.
inline std::vector<EmulatedShape> listed_shapes() {
  using namespace emulated_patterns;
  using enum Dtype;
  PatternConfig both = all();
  both.direction = Direction::both;
  const std::vector<std::int32_t> many = {63, 64, 128, 192, 193, 250, 256, 300}, intervals = {EmulatedShape::intervals};
  return {
      {"both, dense", both, 1300, 1, 64, 64, sm90, {}, bf16, 64},
      {"dense", all(), 900, 2, 64, 40, sm90, {}, f16, 64},
      {"both, dense", both, 333, 2, 32, 24, sm90, many, bf16, 64},
      {"both, dense", both, 700, 2, 64, 64, sm90, intervals, bf16, 128},
      {"dense", all(), 64, 1, 64, 64, sm90, {}, bf16, 64},
      {"dense", all(), 65, 3, 16, 64, sm90, {}, bf16, 64},
      {"both, dense", both, 900, 1, 128, 128, sm90, {}, bf16, 64},
      {"dense", all(), 700, 1, 64, 96, sm90, intervals, f16, 64},
      {"both, dense", both, 450, 2, 72, 32, sm90, many, bf16, 192},
  };
}

inline std::vector<EmulatedShape> emulated_shapes() {  // test_emulated_slow runs all of them
  using namespace emulated_patterns;
  const PatternConfig strided = pattern_of(merged, {local, column}, 16);
  std::vector<EmulatedShape> shapes{
      // Bands of small heads: one to five key tiles that see one another, ragged ends, runs and chains of classes.
      {"local 1", window(1), 900, 1, 32, 32},
      {"local 64", window(64), 200, 2, 32, 32},
      {"local 65", window(65), 321, 1, 24, 32},
      {"local 128", window(128), 450, 1, 32, 32},
      {"local 192", window(192), 500, 1, 16, 32},
      {"local 250", window(250), 640, 1, 32, 32},
      {"block 100", blocks(100), 333, 1, 32, 32},
      {"block 256", blocks(256), 400, 1, 32, 24},
      {"column 3", columns(3), 400, 1, 32, 32},
      {"column 7", columns(7), 500, 1, 32, 32},
      {"column 30", columns(30), 700, 1, 32, 32},
      // Larger heads: one warpgroup per block, and two that take turns at dQ.
      {"local 100", window(100), 400, 1, 64, 64},
      {"local 193", window(193), 450, 1, 64, 64},
      {"local 250", window(250), 520, 1, 40, 64},
      {"block 100", blocks(100), 333, 2, 64, 64},
      {"block 250", blocks(250), 520, 1, 64, 40},
      {"column 3", columns(3), 400, 1, 64, 64},
      {"column 30", columns(30), 700, 2, 64, 64},
      // Up to nine tiles forward.
      {"local 450", window(450), 1300, 1, 64, 64},
      {"local 513", window(513), 900, 1, 48, 64},
      {"block 400", blocks(400), 1300, 1, 64, 64},
      {"block 500", blocks(500), 600, 1, 64, 56},
      {"block 500", blocks(500), 1100, 1, 64, 56},
      {"column 2", columns(2), 1150, 1, 64, 64},
      {"local 60", window(60), 300, 1, 64, 128},
      {"local 97", window(97), 450, 1, 64, 128},
      {"local 180", window(180), 450, 1, 64, 96},
      {"local 250", window(250), 500, 1, 64, 128},
      {"block 100", blocks(100), 333, 1, 64, 72},
      {"column 3", columns(3), 400, 1, 64, 128},
      {"column 30", columns(30), 700, 2, 48, 128},
      // And of keys above 64: one to four tiles, two warpgroups on one ring.
      {"local 1", window(1), 700, 1, 128, 128},
      {"local 66", window(66), 333, 2, 72, 128},
      {"local 129", window(129), 700, 1, 128, 128},
      {"local 193", window(193), 1100, 1, 96, 64},
      {"block 150", blocks(150), 700, 1, 128, 104},
      {"block 192", blocks(192), 450, 1, 128, 128},
      {"column 5", columns(5), 900, 1, 128, 128},
      {"column 30", columns(30), 700, 2, 80, 128},
      // Two passes.
      {"strided", strided, 300, 1, 32, 32},
      {"strided", strided, 300, 1, 64, 64},
      {"strided", strided, 300, 1, 96, 128},
      {"inclusive", fixed(64, 16, true), 400, 1, 64, 64},
  };
  for (const auto& more : {long_band_shapes(), document_shapes(), two_sided_shapes(), listed_shapes(),
                           portable_shapes(), labelled_shapes(), labelled_sm90_shapes(), grouped_shapes()})
    shapes.insert(shapes.end(), more.begin(), more.end());
  return shapes;
}

}  // namespace longstride::kernels
