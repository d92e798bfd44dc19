// Attention within lists of blocks on a GPU, by Hopper's kernels and by those of other GPUs.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/gpu_kind.h"
#include "tests/gpu/attention/attention_cuda_reference.h"
#include "tests/support/drawn_lists.h"

namespace longstride::kernels {
namespace {

using enum Integration;
using enum PartKind;

struct ListedShape {
  std::int64_t n, key_size, value_size;
  Dtype dtype = Dtype::bf16;
  std::int32_t block = 64;
  bool own_sequences = true, own_heads = true;  // with lists of their own
  bool packed = true;
  std::int64_t batch = 2, heads = 2, queries = 0;  // 0: n

  std::string text() const {
    return std::to_string(queries) + " queries, n " + std::to_string(n) + ", lists of " + std::to_string(block) +
           ", heads of " + std::to_string(key_size) + "/" + std::to_string(value_size) + ", " + name_of(dtype);
  }
};

class ListsCuda : public ::testing::TestWithParam<AttentionPath> {
 protected:
  void SetUp() override { LONGSTRIDE_NEEDS_GPU(); }

  // A call that Hopper's kernels cannot take is an error, where they are tested.
  AttentionPath path_of(const ListedShape& shape) const {
    const bool is_hoppers =
        GetParam() == AttentionPath::automatic && cuda::is_hopper() && shape.dtype != Dtype::f32 && shape.queries == 0;
    return is_hoppers ? AttentionPath::sm90 : GetParam();
  }
  static std::shared_ptr<const AttentionPlan> plan_of(const ListedShape& shape, Direction direction) {
    PatternConfig pattern = pattern_of(merged, {dense}, 0);
    pattern.direction = direction;
    return make_plan(pattern, 0, shape.heads, shape.n, {}, shape.queries);
  }
  static AttentionInput input_of(const ListedShape& shape) {
    return {{shape.batch, shape.n, shape.heads, shape.key_size, shape.value_size, shape.queries}, shape.dtype};
  }
  static DrawnLists lists_of(const ListedShape& shape) {
    return {3,
            shape.block,
            shape.own_sequences ? shape.batch : 1,
            shape.own_heads ? shape.heads : 1,
            shape.queries == 0 ? shape.n : shape.queries,
            shape.n};
  }

  void expect_equals_definition(const ListedShape& shape, Direction direction, bool has_bounds = false) {
    const auto plan = plan_of(shape, direction);
    const AttentionInput in = input_of(shape);
    const DrawnLists lists = lists_of(shape);
    auto masks = masks_of_plan(*plan, direction);
    const HostBounds bounds = has_bounds ? documents_of(masks, shape.batch) : HostBounds{};
    AttentionResult found;
    cuda::with_gpu_type(in.dtype, [&](auto zero) {
      DeviceAttention<decltype(zero)> call(*plan, in, path_of(shape), shape.packed, bounds, lists.view());
      call.run();
      found = call.result();
    });
    expect_as_good_as_naive(
        found, defined<float>(in, masks, lists, in.dtype), defined<double>(in, masks, lists, Dtype::f64), in,
        shape.text() + (direction == Direction::both ? ", both" : "") + (has_bounds ? ", bounds" : ""));
  }

 private:
  static std::vector<Mask> masks_of_plan(const AttentionPlan& plan, Direction direction) {
    PatternConfig pattern = pattern_of(merged, {dense}, 0);
    pattern.direction = direction;
    return masks_of(pattern, static_cast<std::int64_t>(plan.heads.size()), 0, plan.n, plan.queries);
  }
  template <class A>
  static AttentionResult defined(const AttentionInput& in, const std::vector<Mask>& masks, const DrawnLists& lists,
                                 Dtype stored) {
    NaiveAttention<A> naive(naive_problem<A>(in), rounding_to(stored));
    naive.run([&](std::int64_t s, std::int64_t h, std::int64_t i) {
      std::vector<NaivePair<A>> pairs;
      for (const std::int32_t j : masks[static_cast<std::size_t>(h)][static_cast<std::size_t>(i)])
        if (lists.hold(s, h, i, j)) pairs.push_back({.key = j});
      return pairs;
    });
    return stored_result(naive.out, stored);
  }

  Threads threads_{std::min(omp_get_max_threads(), 8)};
};

INSTANTIATE_TEST_SUITE_P(Paths, ListsCuda, ::testing::Values(AttentionPath::automatic, AttentionPath::portable),
                         [](const auto& path) {
                           return path.param == AttentionPath::portable ? "Portable" : "Automatic";
                         });

// Both sizes of Hopper's kernels and sizes that they pad, more tiles than their rings have, and ragged ends.
TEST_P(ListsCuda, EveryShapeIsAsGoodAsNaive) {
  for (const ListedShape& shape : {ListedShape{1500, 64, 64},
                                   {1111, 64, 64, Dtype::f16, 128},
                                   {700, 64, 64, Dtype::bf16, 64, false, false, false, 3, 5},
                                   {640, 32, 24, Dtype::bf16, 64, true, false},
                                   {1030, 128, 128, Dtype::f16, 64, false},
                                   {900, 64, 128, Dtype::bf16, 192},
                                   {577, 96, 40, Dtype::bf16},
                                   {64, 64, 64},
                                   {1, 16, 16},
                                   {300, 64, 64, Dtype::f32},
                                   {450, 128, 64, Dtype::bf16, 64, true, true, false, 1, 2, 200}})
    for (const Direction direction : {Direction::past, Direction::both}) {
      if (shape.queries != 0 && direction == Direction::past) continue;
      for (const bool has_bounds : {false, true}) expect_equals_definition(shape, direction, has_bounds);
      if (HasFailure()) return;
    }
}

// Every kernel in the shortest time, for compute-sanitizer (sanitize.sh).
TEST_P(ListsCuda, TinyShapesAreAsGoodAsNaive) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16})
    for (const std::int64_t size : {64, 128}) {
      const ListedShape shape{.n = 450, .key_size = size, .value_size = size, .dtype = dtype, .batch = 1, .heads = 1};
      expect_equals_definition(shape, Direction::both);
      expect_equals_definition(shape, Direction::past, true);
    }
}

TEST_P(ListsCuda, TwentyRepetitionsAreEqualToTheBit) {
  for (const std::int64_t size : {64, 128}) {
    const ListedShape shape{.n = 5000, .key_size = size, .value_size = size, .heads = 4};
    const auto plan = plan_of(shape, Direction::both);
    const AttentionInput in = input_of(shape);
    const DrawnLists lists = lists_of(shape);
    DeviceAttention<__nv_bfloat16> call(*plan, in, path_of(shape), true, {}, lists.view());
    call.run();
    const auto first = call.written();
    for (int i = 1; i < 20; ++i) {
      call.poison();
      call.run();
      const auto now = call.written();
      const auto is_same = [](const auto& a, const auto& b) {
        return std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
      };
      ASSERT_TRUE(is_same(now.o, first.o) && is_same(now.lse, first.lse) && is_same(now.gradients, first.gradients))
          << "repetition " << i << ", " << shape.text();
    }
  }
}

}  // namespace
}  // namespace longstride::kernels
