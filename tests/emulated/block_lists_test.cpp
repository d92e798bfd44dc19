// The query blocks of every key block, made by emulated blocks, are those that the CPU makes.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/drawn_lists.h"

namespace longstride::kernels {
namespace {

TEST(EmulatedBlockLists, EqualTheCpu) {
  struct Shape {
    std::int64_t sequences, heads, query_blocks, key_blocks;
  };
  for (const Shape& s : {Shape{1, 1, 1, 1}, {2, 3, 7, 40}, {1, 2, 70, 1100}, {1, 1, 300, 5}}) {
    const DrawnLists drawn(7, 64, s.sequences, s.heads, s.query_blocks * 64 - 3, s.key_blocks * 64 - 9);
    BlockListsArgs args{drawn.view()};
    const Tensor expected_begin = args.lists.query_begin, expected = args.lists.queries;
    std::vector<std::int32_t> begin(static_cast<std::size_t>(expected_begin.count()), -1),
        queries(static_cast<std::size_t>(expected.count())),
        scratch(static_cast<std::size_t>(args.scratch_on(Device::cuda).count()), -7);
    args.lists.query_begin = Tensor(begin.data(), Dtype::i32, expected_begin.shape());
    args.lists.queries = Tensor(queries.data(), Dtype::i32, expected.shape());
    args.scratch = Tensor(scratch.data(), Dtype::i32, args.scratch_on(Device::cuda).shape());
    args.check(Device::cuda);
    cuda::block_lists(args, {});
    EXPECT_EQ(std::memcmp(begin.data(), expected_begin.data(), expected_begin.bytes()), 0) << s.query_blocks;
    EXPECT_EQ(std::memcmp(queries.data(), expected.data(), expected.bytes()), 0) << s.query_blocks;
  }
}

}  // namespace
}  // namespace longstride::kernels
