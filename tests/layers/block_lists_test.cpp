#include "kernels/block_lists/block_lists.h"

#include "tests/ops/op_test.h"

namespace longstride::testing::block_lists_test {
namespace {

using kernels::BlockLists;
using kernels::BlockListsArgs;

// Lists of several heads; a key block is in one with the probability 1 / rarity, and a fifth of the lists is empty.
struct Lists {
  std::int64_t sequences, heads, query_blocks, key_blocks, rarity;
};

class BlockListsTest : public OpTest {
 protected:
  Operand numbers(const Lists& of, std::int64_t count, std::vector<double> values) {
    return with_values({of.sequences, of.heads, count}, Dtype::i32, std::move(values));
  }
  bool listed(const Lists& of, std::int64_t head, std::int64_t b, std::int64_t c) const {
    const auto drawn = kernels::philox(11, static_cast<std::uint64_t>(head * of.query_blocks + b),
                                       static_cast<std::uint32_t>(c), kernels::domain_of(kernels::Purpose::test, 5));
    return b % 5 != 3 && drawn.word[0] % static_cast<std::uint32_t>(of.rarity) == 0;
  }
  // Where lists begin, and their entries, of the query blocks or of the key blocks.
  std::pair<std::vector<double>, std::vector<double>> lists_of(const Lists& of, bool by_key, std::int64_t entries) {
    std::pair<std::vector<double>, std::vector<double>> lists;
    for (std::int64_t head = 0; head < of.sequences * of.heads; ++head) {
      std::int64_t count = 0;
      lists.first.push_back(0);
      for (std::int64_t r = 0; r < (by_key ? of.key_blocks : of.query_blocks); ++r) {
        for (std::int64_t e = 0; e < (by_key ? of.query_blocks : of.key_blocks); ++e)
          if (listed(of, head, by_key ? e : r, by_key ? r : e)) lists.second.push_back(static_cast<double>(e)), ++count;
        lists.first.push_back(static_cast<double>(count));
      }
      lists.second.resize(static_cast<std::size_t>((head + 1) * entries), -1);  // entries that no list has stay
    }
    return lists;
  }
};
LONGSTRIDE_OP_TESTS(BlockListsTest);

TEST_P(BlockListsTest, AreTheQueryBlocksOfEveryKeyBlockInOrder) {
  for (const Lists& of : {Lists{1, 1, 1, 1, 1}, {2, 3, 7, 5, 2}, {1, 2, 70, 1200, 9}, {1, 1, 1100, 40, 3}}) {
    const std::int64_t entries = of.query_blocks * of.key_blocks;
    const auto [begin, keys] = lists_of(of, false, entries);
    const Operand key_begin = numbers(of, of.query_blocks + 1, begin), key = numbers(of, entries, keys);
    Operand query_begin =
        numbers(of, of.key_blocks + 1,
                std::vector<double>(static_cast<std::size_t>(of.sequences * of.heads * (of.key_blocks + 1)), -1));
    Operand queries = numbers(of, entries, std::vector<double>(keys.size(), -1));
    run(BlockListsArgs{{64, key_begin, key, query_begin, queries}}, {&query_begin, &queries});
    const auto expected = lists_of(of, true, entries);
    EXPECT_EQ(query_begin.found(), expected.first);
    EXPECT_EQ(queries.found(), expected.second);
  }
}

TEST_P(BlockListsTest, RefusesOtherShapesAndListsWithProblems) {
  const Operand to = filled({1, 1, 4}, Dtype::i32, -1), begin = filled({1, 1, 4}, Dtype::i32, -1);
  const auto refused = [&](std::vector<double> begins, std::vector<double> keys) -> std::string {
    const Operand first = with_values({1, 1, 3}, Dtype::i32, std::move(begins)),
                  entries = with_values({1, 1, 4}, Dtype::i32, std::move(keys));
    try {
      ops::run(ctx, BlockListsArgs{{64, first, entries, begin, to}});
    } catch (const InternalError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refused({0, 2, 4}, {0, 2, 1, 2}), "");
  const Operand short_ones = filled({1, 1, 3}, Dtype::i32, 0);
  EXPECT_THROW(ops::run(ctx, BlockListsArgs{{64, short_ones, to, begin, short_ones}}), InternalError);
  if (device() != Device::cpu) return;
  const std::string of_second = "the list of query block 1 of head 0 of sequence 0 ";
  const auto says = [](const std::string& found, const std::string& sentence) {
    EXPECT_NE(found.find(sentence), std::string::npos) << found;
  };
  says(refused({0, 2, 4}, {0, 2, 1, 1}),
       of_second + "has key block 1 after 1, but must be increasing numbers from 0 to 2");
  says(refused({0, 2, 4}, {0, 2, 1, 3}),
       of_second + "has key block 3 after 1, but must be increasing numbers from 0 to 2");
  says(refused({0, 2, 4}, {0, 2, -1, 1}), of_second + "has key block -1, but must be increasing numbers from 0 to 2");
  says(refused({0, 2, 5}, {0, 2, 1, 2}), of_second + "goes from entry 2 to 5, but must have entries of 0 to 4");
  says(refused({0, 2, 1}, {0, 2, 1, 2}), of_second + "goes from entry 2 to 1, but must have entries of 0 to 4");
}

}  // namespace
}  // namespace longstride::testing::block_lists_test
