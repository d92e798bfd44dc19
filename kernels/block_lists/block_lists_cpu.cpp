#include <algorithm>

#include "kernels/base/tensor_checks.h"
#include "kernels/block_lists/block_lists.h"

namespace longstride::kernels {

void BlockListsArgs::check(Device) const {
  const auto check = [&](const Tensor& t, const char* name) {
    LONGSTRIDE_CHECK(t.rank() == 3 && t.size(0) == lists.keys.size(0) && t.size(1) == lists.keys.size(1),
                     "{} is {} for lists {}", name, t.shape().text(), lists.keys.shape().text());
    check_vector(t, t.count(), Dtype::i32, name);
  };
  check(lists.keys, "keys");
  check(lists.key_begin, "key_begin");
  check(lists.query_begin, "query_begin");
  check(lists.queries, "queries");
  LONGSTRIDE_CHECK(lists.queries.size(2) == lists.keys.size(2) && query_blocks() > 0 && key_blocks() > 0,
                   "lists of {} entries of {} query blocks for {} of {} key blocks", lists.keys.size(2), query_blocks(),
                   lists.queries.size(2), key_blocks());
}

Tensor BlockListsArgs::scratch_on(Device device) const {
  if (device == Device::cpu) return {};
  return {nullptr, Dtype::i32, {heads(), shares, key_blocks()}};
}

namespace cpu {

void block_lists(const BlockListsArgs& args, const Launch&) {
  const std::string problem = problem_of(args.lists, args.key_blocks());
  LONGSTRIDE_CHECK(problem.empty(), "{}", problem);
  const std::int64_t of_sequence = args.lists.keys.size(1), count = args.key_blocks();
#pragma omp parallel for if (args.heads() > 1)
  for (std::int64_t head = 0; head < args.heads(); ++head) {
    const ListsOfHead from = ListsView::of_queries(args.lists).of(head / of_sequence, head % of_sequence);
    std::int32_t* const begin = args.lists.query_begin.as<std::int32_t>() + head * (count + 1);
    std::int32_t* const queries = args.lists.queries.as<std::int32_t>() + head * args.lists.keys.size(2);
    const auto each = [&](auto&& f) {
      for (std::int32_t b = 0; b < args.query_blocks(); ++b)
        for (std::int32_t at = from.begin[b]; at < from.begin[b + 1]; ++at) f(b, from.blocks[at]);
    };
    std::fill_n(begin, count + 1, 0);
    each([&](std::int32_t, std::int32_t key) { ++begin[key + 1]; });
    for (std::int64_t key = 0; key < count; ++key) begin[key + 1] += begin[key];
    each([&](std::int32_t b, std::int32_t key) { queries[begin[key]++] = b; });
    for (std::int64_t key = count; key > 0; --key) begin[key] = begin[key - 1];  // each has become the next one's
    begin[0] = 0;
  }
}

}  // namespace cpu
}  // namespace longstride::kernels
