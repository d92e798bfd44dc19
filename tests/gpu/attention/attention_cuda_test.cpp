#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <random>

#include "kernels/base/gpu_kind.h"
#include "tests/gpu/attention/attention_cuda_fixture.h"

namespace longstride::kernels {
namespace {

using enum Integration;
using enum PartKind;

INSTANTIATE_TEST_SUITE_P(Paths, AttentionCuda, ::testing::Values(AttentionPath::automatic, AttentionPath::portable),
                         [](const auto& path) {
                           return path.param == AttentionPath::portable ? "Portable" : "Automatic";
                         });

TEST_P(AttentionCuda, EveryPatternIsAsGoodAsNaiveInEveryType) {
  int turn = 0;
  for (const NamedPattern& p : all_patterns())
    for (std::int64_t layer = 0; layer < layers_of(p.pattern); ++layer)
      for (std::int64_t n : {1, 45, 150}) {
        const auto masks = masks_of(p.pattern, p.heads, layer, n);
        const auto plan = make_plan(p.pattern, layer, p.heads, n);
        for (Dtype dtype : dtypes) {
          ++turn;
          expect_equals_reference(p, layer, {1, n, p.heads, key_sizes[turn % 4], value_sizes[turn % 3]}, dtype, masks,
                                  *plan);
        }
        if (HasFailure()) return;
      }
}

TEST_P(AttentionCuda, EveryHeadSizeIsAsGoodAsNaiveInEveryType) {
  for (const NamedPattern& p : models_patterns(48, 16)) {
    const std::int64_t n = 203;
    const auto masks = masks_of(p.pattern, p.heads, 0, n);
    const auto plan = make_plan(p.pattern, 0, p.heads, n);
    for (std::int64_t key_size : key_sizes)
      for (std::int64_t value_size : value_sizes)
        for (Dtype dtype : dtypes) {
          expect_equals_reference(p, 0, {2, n, p.heads, key_size, value_size}, dtype, masks, *plan);
          if (HasFailure()) return;
        }
  }
}

// With as many queries as keys, fewer and more.
TEST_P(AttentionCuda, BothDirectionsAndBoundsAreAsGoodAsNaiveInEveryType) {
  int turn = 0;
  for (const NamedPattern& p : patterns_of_both_directions())
    for (const std::int64_t queries : {150, 70, 201}) {
      if (++turn % 7 != 0) continue;
      constexpr std::int64_t n = 150;
      const auto plan = make_plan(p.pattern, 0, p.heads, n, {}, queries);
      for (const Dtype dtype : dtypes) {
        auto masks = masks_of(p.pattern, p.heads, 0, n, queries);
        const AttentionShape shape{2, n, p.heads, key_sizes[turn % 4], value_sizes[turn % 3], queries};
        expect_equals_reference(p, 0, shape, dtype, masks, *plan, false);
        const HostBounds bounds = documents_of(masks, shape.batch);
        expect_equals_reference(p, 0, shape, dtype, masks, *plan, false, bounds);
      }
      if (HasFailure()) return;
    }
}

// Keys that all queries see: blocks share these.
TEST_P(AttentionCuda, FewKeysOfManyQueriesAreAsGoodAsNaive) {
  expect_hoppers_kernels();
  constexpr std::int64_t n = 1100;
  for (const Direction direction : {Direction::past, Direction::both})
    for (const std::int32_t first : {8, 64, 100})
      for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
        NamedPattern p{"a window and first keys", pattern_of(merged, {local, PartKind::first}, 64), 2};
        p.pattern.direction = direction;
        p.pattern.window = 65;
        p.pattern.first = first;
        auto masks = masks_of(p.pattern, p.heads, 0, n);
        const auto plan = make_plan(p.pattern, 0, p.heads, n);
        const AttentionShape shape{2, n, p.heads, dtype == Dtype::bf16 ? 64 : 32, 64};
        expect_equals_reference(p, 0, shape, dtype, masks, *plan);
        const HostBounds bounds = documents_of(masks, shape.batch);
        expect_equals_reference(p, 0, shape, dtype, masks, *plan, true, bounds);
      }
}

TEST_P(AttentionCuda, DocumentsAreAsGoodAsNaive) {
  expect_hoppers_kernels();
  std::vector<NamedPattern> patterns = models_patterns(48, 16);
  for (NamedPattern p : models_patterns(48, 16)) {
    p.pattern.direction = Direction::both;
    p.pattern.window = 49;
    p.name += ", both";
    if (!p.pattern.summary_inclusive) patterns.push_back(p);  // five parts, which Hopper's kernels do not take
  }
  for (const NamedPattern& p : patterns)
    for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
      auto masks = masks_of(p.pattern, p.heads, 0, 451);
      const HostBounds bounds = documents_of(masks, 2, 0);
      expect_equals_reference(p, 0, {2, 451, p.heads, 64, 64}, dtype, masks, *make_plan(p.pattern, 0, p.heads, 451),
                              true, bounds);
    }
}

TEST_P(AttentionCuda, BoundsOfThePastAreAsGoodAsNaive) {
  for (const NamedPattern& p : models_patterns(48, 16))
    for (const Dtype dtype : dtypes) {
      auto masks = masks_of(p.pattern, p.heads, 0, 203);
      const HostBounds bounds = documents_of(masks, 2);
      expect_equals_reference(p, 0, {2, 203, p.heads, 64, 64}, dtype, masks, *make_plan(p.pattern, 0, p.heads, 203),
                              true, bounds);
    }
}

// Sizes between those that kernels are written for.
TEST_P(AttentionCuda, SizesOfEightsAreAsGoodAsNaive) {
  expect_hoppers_kernels();
  for (const NamedPattern& p : models_patterns(48, 16)) {
    const std::int64_t n = 192;
    const auto masks = masks_of(p.pattern, p.heads, 0, n);
    const auto plan = make_plan(p.pattern, 0, p.heads, n);
    for (const auto& [key_size, value_size] :
         {std::pair{16, 16}, {24, 24}, {48, 48}, {56, 40}, {80, 80}, {96, 96}, {72, 128}, {120, 104}})
      for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
        expect_equals_reference(p, 0, {2, n, p.heads, key_size, value_size}, dtype, masks, *plan, key_size % 16 == 0);
        if (HasFailure()) return;
      }
  }
}

// Widths that divide no tile are read in pieces, in forward passes with few keys per query and with many.
TEST_P(AttentionCuda, SummariesOfEveryWidthAreAsGoodAsNaive) {
  expect_hoppers_kernels();
  for (const auto& [l, c] :
       {std::pair{128, 31}, {100, 25}, {100, 20}, {40, 3}, {48, 5}, {64, 33}, {128, 48}, {150, 75}, {100, 70}})
    for (const bool inclusive : {false, true}) {
      const NamedPattern p{"fixed merged, l " + std::to_string(l) + ", c " + std::to_string(c),
                           with_options(pattern_of(merged, {fixed_block, fixed_summary}, l, {c}), true, inclusive), 2};
      const std::int64_t n = inclusive ? 6 * l + 1 : 3 * l;
      const auto masks = masks_of(p.pattern, p.heads, 0, n);
      const auto plan = make_plan(p.pattern, 0, p.heads, n);
      for (const auto& [key_size, value_size] : {std::pair{32, 32}, {64, 64}, {64, 128}, {128, 128}})
        expect_equals_reference(p, 0, {1, n, p.heads, key_size, value_size}, Dtype::bf16, masks, *plan);
      if (HasFailure()) return;
    }
}

// Queries that see summary rows of the stride that the sequence ends within.
TEST_P(AttentionCuda, SummariesOfAnIncompleteStrideAreAsGoodAsNaive) {
  expect_hoppers_kernels();
  for (const auto& [l, c] : {std::pair{128, 32}, {100, 25}, {60, 40}})
    for (const NamedPattern& p :
         {NamedPattern{"summary", with_options(pattern_of(merged, {fixed_summary}, l, {c}), true, false), 2},
          NamedPattern{"multihead", pattern_of(multihead, {fixed_block, fixed_summary}, l, {c}), 2},
          NamedPattern{"window and summary", pattern_of(merged, {local, fixed_summary}, l, {c}, 9), 2}})
      for (const std::int64_t n : {l - 1, 3 * l - 1, 5 * l - c / 2}) {
        const auto masks = masks_of(p.pattern, p.heads, 0, n);
        const auto plan = make_plan(p.pattern, 0, p.heads, n);
        for (const auto& [key_size, value_size] : {std::pair{32, 32}, {64, 64}, {128, 128}})
          expect_equals_reference(p, 0, {1, n, p.heads, key_size, value_size}, Dtype::bf16, masks, *plan);
        if (HasFailure()) return;
      }
}

// Lengths with many tiles, whole and ragged, at the strides of the paper's models.
TEST_P(AttentionCuda, LongerSequencesAreAsGoodAsNaive) {
  for (std::int64_t n : {1024, 1111})
    for (const NamedPattern& p : models_patterns(128, 32)) {
      const auto masks = masks_of(p.pattern, p.heads, 0, n);
      const auto plan = make_plan(p.pattern, 0, p.heads, n);
      expect_equals_reference(p, 0, {2, n, p.heads, 64, 64}, Dtype::bf16, masks, *plan);
      expect_equals_reference(p, 0, {1, n, p.heads, 32, 32}, Dtype::f16, masks, *plan);
      expect_equals_reference(p, 0, {1, n, p.heads, 64, 128}, Dtype::bf16, masks, *plan, false);
      if (HasFailure()) return;
    }
}

// Every kernel in the shortest time, for compute-sanitizer (sanitize.sh).
TEST_P(AttentionCuda, TinyShapesAreAsGoodAsNaive) {
  const NamedPattern patterns[] = {
      {"dense", pattern_of(merged, {dense}, 0), 1},
      {"strided merged", pattern_of(merged, {local, column}, 50), 1},
      {"local", pattern_of(merged, {local}, 50), 2},
      {"wide local", pattern_of(merged, {local}, 100), 1},
      {"column", pattern_of(merged, {column}, 2), 1},
      {"fixed merged", with_options(pattern_of(merged, {fixed_block, fixed_summary}, 48, {20}), true, false), 2},
      {"fixed merged, inclusive", with_options(pattern_of(merged, {fixed_block, fixed_summary}, 48, {16}), true, true),
       2}};
  for (const NamedPattern& p : patterns) {
    const std::int64_t n = 150;
    const auto masks = masks_of(p.pattern, p.heads, 0, n);
    const auto plan = make_plan(p.pattern, 0, p.heads, n);
    for (const auto& [key_size, value_size] : {std::pair{16, 32}, {32, 32}, {64, 64}, {64, 128}, {128, 128}})
      expect_equals_reference(p, 0, {1, n, p.heads, key_size, value_size}, Dtype::bf16, masks, *plan);
    expect_equals_reference(p, 0, {1, n, p.heads, 64, 64}, Dtype::f16, masks, *plan);
    for (const auto& [key_size, value_size] : {std::pair{32, 32}, {64, 128}, {20, 30}})
      expect_equals_reference(p, 0, {1, n, p.heads, key_size, value_size}, Dtype::f32, masks, *plan);
  }
}

// Bands: windows, blocks and columns in which few query tiles see each key, with enough heads for long runs of tiles.
TEST_P(AttentionCuda, RunsOfManyTilesAreAsGoodAsNaive) {
  const std::int64_t n = 453, heads = 16;
  for (const NamedPattern& p : std::vector<NamedPattern>{{"window 1", pattern_of(merged, {local}, 0, {}, 1), heads},
                                                         {"window 129", pattern_of(merged, {local}, 128), heads},
                                                         {"window 257", pattern_of(merged, {local}, 256), heads},
                                                         {"block 64", pattern_of(merged, {fixed_block}, 64), heads},
                                                         {"block 100", pattern_of(merged, {fixed_block}, 100), heads},
                                                         {"column 5", pattern_of(merged, {column}, 5), heads}}) {
    const auto masks = masks_of(p.pattern, p.heads, 0, n);
    const auto plan = make_plan(p.pattern, 0, heads, n);
    expect_equals_reference(p, 0, {8, n, heads, 32, 32}, Dtype::bf16, masks, *plan);
    expect_equals_reference(p, 0, {8, n, heads, 64, 64}, Dtype::f16, masks, *plan);
    expect_equals_reference(p, 0, {8, n, heads, 64, 128}, Dtype::bf16, masks, *plan, false);
    if (HasFailure()) return;
  }
}

// Bands of three to five tiles at sizes above 32, in whose backward pass two warpgroups take turns, of up to nine,
// whose forward pass has the same kernel, and of keys of 128, whose forward pass has it up to four. The number of heads
// decides how many tiles a block has: one, an even number, or an odd or even number with fewer in the last block.
TEST_P(AttentionCuda, WideBandsAreAsGoodAsNaive) {
  struct Band {
    const char* name;
    PatternConfig pattern;
    std::int64_t key_size, value_size;
    Dtype dtype;
  };
  const Band bands[] = {{"window 97", pattern_of(merged, {local}, 96), 64, 128, Dtype::bf16},
                        {"window 130", pattern_of(merged, {local}, 129), 64, 128, Dtype::f16},
                        {"block 100", pattern_of(merged, {fixed_block}, 100), 64, 128, Dtype::bf16},
                        {"block 256", pattern_of(merged, {fixed_block}, 256), 64, 64, Dtype::f16},
                        {"block 200", pattern_of(merged, {fixed_block}, 200), 64, 64, Dtype::bf16},
                        {"window 450", pattern_of(merged, {local}, 449), 64, 64, Dtype::bf16},
                        {"window 513", pattern_of(merged, {local}, 512), 64, 64, Dtype::f16},
                        {"block 400", pattern_of(merged, {fixed_block}, 400), 64, 64, Dtype::bf16},
                        {"column 3", pattern_of(merged, {column}, 3), 64, 128, Dtype::f16},
                        {"window 97", pattern_of(merged, {local}, 96), 128, 128, Dtype::f16},
                        {"window 193", pattern_of(merged, {local}, 192), 128, 128, Dtype::bf16},
                        {"column 3", pattern_of(merged, {column}, 3), 96, 128, Dtype::bf16}};
  const std::pair<std::int64_t, std::int64_t> lengths_and_heads[] = {{523, 1}, {581, 14}, {581, 28}};
  for (const auto& [name, pattern, key_size, value_size, dtype] : bands)
    for (const auto& [n, heads] : lengths_and_heads) {
      const NamedPattern p{name, pattern, heads};
      expect_equals_reference(p, 0, {1, n, heads, key_size, value_size}, dtype, masks_of(pattern, heads, 0, n),
                              *make_plan(pattern, 0, heads, n));
      if (HasFailure()) return;
    }
}

// Heads whose keys are rotated.
TEST_P(AttentionCuda, ShiftedBlocksOfTilesAreAsGoodAsNaive) {
  for (const auto& [blocks, shifts, n] :
       {std::tuple{3, std::vector<std::int64_t>{1, 1, 1}, 192}, {2, {2, 1}, 1024}, {5, {0, 1, 0, 0, 2}, 640}})
    for (const auto& [key_size, value_size, dtype] :
         {std::tuple{64, 64, Dtype::bf16}, {24, 32, Dtype::f16}, {96, 128, Dtype::bf16}}) {
      const NamedPattern p{"shifted blocks", shifted_by(blocks, shifts), 3};
      expect_equals_reference(p, 0, {2, n, p.heads, key_size, value_size}, dtype, masks_of(p.pattern, p.heads, 0, n),
                              *make_plan(p.pattern, 0, p.heads, n));
      if (HasFailure()) return;
    }
}

// In random shapes a tile, a band or a ring may end anywhere.
TEST_P(AttentionCuda, RandomShapesAreAsGoodAsNaive) {
  expect_hoppers_kernels();
  std::mt19937 random(7);
  const auto draw = [&](std::int64_t from, std::int64_t to) {
    return from + static_cast<std::int64_t>(random()) % (to - from + 1);
  };
  for (int i = 0; i < 30; ++i) {
    const std::int64_t l = draw(2, 400), c = draw(1, l), window = draw(1, 400);
    const bool has_window = draw(0, 1) == 1, distinct = draw(0, 1) == 1, inclusive = draw(0, 1) == 1;
    const std::vector<PartKind> of_kind[] = {{dense}, {local}, {column}, {local, column}, {fixed_block, fixed_summary}};
    PatternConfig pattern = pattern_of(merged, of_kind[i % 5], l);
    const std::int64_t n = draw(1, 600);
    if (pattern.parts[0] == local && has_window) pattern.window = window;
    if (pattern.parts[0] == fixed_block) {
      pattern = with_options(pattern, distinct, inclusive);
      pattern.summary = {c};
    }
    const AttentionShape shape{draw(1, 2), n, draw(1, 3), 8 * draw(2, 16), 8 * draw(2, 16)};
    const NamedPattern p{"shape " + std::to_string(i) + ", l " + std::to_string(l) + ", c " + std::to_string(c) +
                             ", window " + std::to_string(pattern.window),
                         pattern, shape.heads};
    expect_equals_reference(p, 0, shape, i % 2 == 0 ? Dtype::bf16 : Dtype::f16,
                            masks_of(pattern, shape.heads, 0, shape.n), *make_plan(pattern, 0, shape.heads, shape.n));
    if (HasFailure()) return;
  }
}

// Sizes whose rows are not aligned to 16 bytes.
TEST_P(AttentionCuda, OddHeadSizesAreAsGoodAsNaive) {
  for (const NamedPattern& p : models_patterns(20, 6)) {
    const auto masks = masks_of(p.pattern, p.heads, 0, 77);
    const auto plan = make_plan(p.pattern, 0, p.heads, 77);
    for (Dtype dtype : dtypes)
      for (bool packed : {false, true}) {
        expect_equals_reference(p, 0, {1, 77, p.heads, 3, 5}, dtype, masks, *plan, packed);
        expect_equals_reference(p, 0, {1, 77, p.heads, 20, 90}, dtype, masks, *plan, packed);
      }
    if (HasFailure()) return;
  }
}

// More geometries than a launch can share: each of 40 heads summarises through its own sub-block.
TEST_P(AttentionCuda, EveryHeadMayHaveItsOwnGeometry) {
  const NamedPattern p{"forty widths",
                       with_options(pattern_of(merged, {fixed_block, fixed_summary}, 40, {1}), true, true), 40};
  for (Dtype dtype : dtypes)
    expect_equals_reference(p, 0, {1, 203, 40, 16, 32}, dtype, masks_of(p.pattern, p.heads, 0, 203),
                            *make_plan(p.pattern, 0, 40, 203));
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}
template <class T>
void expect_same_bits(const WrittenArrays<T>& a, const WrittenArrays<T>& b, const std::string& where) {
  EXPECT_TRUE(same_bits(a.o, b.o)) << "o, " << where;
  EXPECT_TRUE(same_bits(a.lse, b.lse)) << "lse, " << where;
  EXPECT_TRUE(same_bits(a.gradients, b.gradients)) << "dq, dk and dv, " << where;
}

TEST_P(AttentionCuda, TwentyRepetitionsAreEqualToTheBit) {
  for (const NamedPattern& p : models_patterns(128, 32))
    for (const auto& [key_size, value_size] : {std::pair{32, 32}, {64, 64}, {64, 128}}) {
      const auto plan = make_plan(p.pattern, 0, p.heads, 1500);
      const AttentionInput in({2, 1500, p.heads, key_size, value_size}, Dtype::f32);  // rounded to each type below
      const std::string sizes = std::to_string(key_size) + " and " + std::to_string(value_size);
      for (Dtype dtype : dtypes)
        cuda::with_gpu_type(dtype, [&](auto zero) {
          DeviceAttention<decltype(zero)> call(*plan, in, GetParam(), true);
          call.run();
          const auto first = call.written();
          for (int i = 1; i < 20; ++i) {
            call.poison();
            call.run();
            expect_same_bits(call.written(), first, p.name + ", " + name_of(dtype) + ", sizes " + sizes);
            if (HasFailure()) return;
          }
        });
    }
}

// Nothing in a call waits for the host, allocates, or is read by the host.
TEST_P(AttentionCuda, ACapturedCallReplaysToTheBit) {
  const NamedPattern p{"strided merged", pattern_of(merged, {local, column}, 32), 2};
  const auto plan = make_plan(p.pattern, 0, p.heads, 500);
  const AttentionInput in({2, 500, p.heads, 32, 64}, Dtype::bf16);
  DeviceAttention<__nv_bfloat16> call(*plan, in, GetParam(), true);
  call.run();
  const auto expected = call.written();
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  cuda::check(cudaStreamCreate(&stream), "cudaStreamCreate");
  cuda::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  call.run({stream});
  cuda::check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  cuda::check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  call.poison();
  cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  cuda::check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
  expect_same_bits(call.written(), expected, "replayed");
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

// Some rows of one head of a long sequence. The rows of o, lse and dq are computed from the inputs; those of dk and dv
// use the call's lse and o, which the checked rows confirm.
class SpotCheck {
 public:
  SpotCheck(const NamedPattern& p, const AttentionInput& in, const AttentionResult& x, std::int64_t head)
      : p_(p), in_(in), x_(x), head_(head) {}

  void expect_as_good_as_naive(const std::vector<std::int64_t>& rows, const std::string& where) const {
    kernels::expect_as_good_as_naive(rows_of(x_, x_, rows), naive<float>(rows, in_.dtype),
                                     naive<double>(rows, Dtype::f64), in_, where);
  }

 private:
  template <class A>
  AttentionResult naive(const std::vector<std::int64_t>& rows, Dtype stored) const {
    NaiveAttention<A> of_queries(naive_problem<A>(in_), rounding_to(stored)),
        of_keys(naive_problem<A>(in_), rounding_to(stored));
    of_keys.out.o.assign(x_.o.begin(), x_.o.end());
    of_keys.out.lse.assign(x_.lse.begin(), x_.lse.end());
    for (const std::int64_t row : rows) {
      std::vector<NaivePair<A>> pairs;
      for (std::int64_t j = 0; j <= row; ++j)
        if (sees(row, j)) pairs.push_back({.key = j});
      of_queries.forward(0, head_, row, pairs);
      of_queries.backward(0, head_, row, pairs);
      for (std::int64_t i = row; i < in_.shape.n; ++i) {
        if (!sees(i, row)) continue;
        pairs = {{.key = row}};
        of_keys.score(0, head_, i, pairs);
        of_keys.backward(0, head_, i, pairs);
        of_keys.add_to_key(0, head_, i, pairs[0]);
      }
    }
    return rows_of(stored_result(of_queries.out, stored), stored_result(of_keys.out, stored), rows);
  }

  bool sees(std::int64_t i, std::int64_t j) const { return allowed(p_.pattern, 0, p_.heads, head_, in_.shape.n, i, j); }

  // The head's rows alone.
  AttentionResult rows_of(const AttentionResult& queries, const AttentionResult& keys,
                          const std::vector<std::int64_t>& rows) const {
    AttentionResult out;
    const auto take = [&](const std::vector<double>& from, std::int64_t size, std::vector<double>& to) {
      for (const std::int64_t i : rows)
        if (!from.empty()) to.insert(to.end(), from.begin() + at(i) * size, from.begin() + (at(i) + 1) * size);
    };
    for (const auto member : {&AttentionResult::dq, &AttentionResult::dq_terms})
      take(queries.*member, in_.shape.key_size, out.*member);
    for (const auto member : {&AttentionResult::dk, &AttentionResult::dk_terms})
      take(keys.*member, in_.shape.key_size, out.*member);
    for (const auto member : {&AttentionResult::dv, &AttentionResult::dv_terms})
      take(keys.*member, in_.shape.value_size, out.*member);
    take(queries.o, in_.shape.value_size, out.o);
    for (const auto member : {&AttentionResult::lse, &AttentionResult::lse_terms})
      for (const std::int64_t i : rows)
        if (!(queries.*member).empty())
          (out.*member).push_back((queries.*member)[static_cast<std::size_t>(head_ * in_.shape.n + i)]);
    return out;
  }
  std::int64_t at(std::int64_t position) const { return position * in_.shape.heads + head_; }

  const NamedPattern& p_;
  const AttentionInput& in_;
  const AttentionResult& x_;
  std::int64_t head_;
};

TEST_P(AttentionCuda, RowsOfLongSequencesAreAsGoodAsNaive) {
  const std::int64_t n = 65536;
  bool turn = false;
  for (const NamedPattern& p : models_patterns(256, 64)) {
    const auto plan = make_plan(p.pattern, 0, p.heads, n);
    const Dtype dtype = (turn = !turn) ? Dtype::bf16 : Dtype::f16;
    const AttentionInput in({1, n, p.heads, 32, 32}, dtype);
    const AttentionResult x = compute(*plan, in, GetParam());
    const SpotCheck check(p, in, x, p.heads - 1);
    check.expect_as_good_as_naive({0, 255, 256, 8191, 30000, 54321, n - 257, n - 1}, p.name + ", " + name_of(dtype));
    for (const std::vector<double>* all : {&x.o, &x.dq, &x.dk, &x.dv})
      EXPECT_TRUE(std::all_of(all->begin(), all->end(), [](double e) { return std::isfinite(e); })) << p.name;
  }
}

}  // namespace
}  // namespace longstride::kernels
