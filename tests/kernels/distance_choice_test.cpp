// The shapes that the kernels for Hopper take, and that room to save probabilities is reserved for no others.
#include "kernels/distance_attention/fast_path.h"

#include <gtest/gtest.h>

namespace longstride::kernels {
namespace {

struct DistanceShape {
  std::int64_t key_size = 64, value_size = 64, n_q = 128, n_k = 256, rows = 256, window = 0;
  std::vector<std::int32_t> dilation = {};
  float dropout = 0;
  Dtype dtype = Dtype::bf16;
  AttentionPath path = AttentionPath::automatic;
  bool documents = false;

  DistanceAttentionBackwardArgs call() const {
    constexpr std::int64_t batch = 2, heads = 2;
    DistanceAttentionBackwardArgs args;
    args.scores.q = Tensor(nullptr, dtype, {batch, n_q, heads, key_size});
    args.scores.k = Tensor(nullptr, dtype, {batch, n_k, heads, key_size});
    args.scores.table = Tensor(nullptr, dtype, {rows, heads, key_size});
    args.scores.window = window;
    args.scores.dilation = dilation;
    args.scores.dropout.p = dropout;
    args.scores.path = path;
    if (documents) args.scores.bounds.begin = args.scores.bounds.end = Tensor(nullptr, Dtype::i32, {batch, 1, n_q});
    args.v = Tensor(nullptr, dtype, {batch, n_k, heads, value_size});
    return args;
  }
};

bool is_taken(const DistanceShape& shape) {
  const DistanceAttentionBackwardArgs args = shape.call();
  return hopper_takes(args.scores, args.v.size(3));
}

TEST(DistanceChoices, TakeShapesUpToTheirLimits) {
  for (const DistanceShape& shape :
       {DistanceShape{}, DistanceShape{.key_size = 40, .value_size = 48}, DistanceShape{.rows = 64, .window = 64},
        DistanceShape{.rows = 255, .dilation = {2, 4}}, DistanceShape{.n_q = 256, .dilation = {1, 512}},
        DistanceShape{.dtype = Dtype::f16}})
    EXPECT_TRUE(is_taken(shape)) << shape.key_size << ", " << shape.rows;
  for (const DistanceShape& shape :
       {DistanceShape{.key_size = 72}, DistanceShape{.value_size = 32}, DistanceShape{.key_size = 41},
        DistanceShape{.rows = 255}, DistanceShape{.rows = 63, .window = 64}, DistanceShape{.dilation = {1, 3}},
        DistanceShape{.dilation = {1, 512}}, DistanceShape{.dropout = 0.1f}, DistanceShape{.dtype = Dtype::f32},
        DistanceShape{.path = AttentionPath::portable}, DistanceShape{.documents = true}})
    EXPECT_FALSE(is_taken(shape)) << shape.key_size << ", " << shape.rows;
}

TEST(DistanceChoices, ReserveRoomToSaveForTheseShapesAlone) {
  constexpr std::size_t probabilities = std::size_t{4} * 2 * 6 * 64 * 64 * 2;  // 4 units, 2 query tiles, 6 bands
  const auto scratch = [](DistanceShape shape, AttentionPath path) {
    shape.path = path;
    return shape.call().scratch_on(Device::cuda).bytes();
  };
  for (const DistanceShape& shape :
       {DistanceShape{}, DistanceShape{.rows = 255}, DistanceShape{.key_size = 41}, DistanceShape{.dropout = 0.1f},
        DistanceShape{.dtype = Dtype::f32}, DistanceShape{.documents = true}})
    EXPECT_EQ(scratch(shape, AttentionPath::automatic) - scratch(shape, AttentionPath::portable),
              is_taken(shape) ? probabilities : 0)
        << shape.key_size << ", " << shape.rows;
}

}  // namespace
}  // namespace longstride::kernels
