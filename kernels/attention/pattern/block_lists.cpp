#include "kernels/attention/pattern/block_lists.h"

#include <fmt/format.h>

namespace longstride::kernels {

std::string problem_of(const BlockLists& lists, std::int64_t key_blocks) {
  const std::int64_t heads = lists.keys.size(1), entries = lists.keys.size(2), blocks = lists.key_begin.size(2) - 1;
  for (std::int64_t unit = 0; unit < lists.keys.size(0) * heads; ++unit) {
    const ListsOfHead of_head = ListsView::of_queries(lists).of(unit / heads, unit % heads);
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::int32_t begin = of_head.begin[b], end = of_head.begin[b + 1];
      if (begin < 0 || begin > end || end > entries)
        return fmt::format(
            "the list of query block {} of head {} of sequence {} goes from entry {} to {}, but must have entries of 0 "
            "to {}",
            b, unit % heads, unit / heads, begin, end, entries);
      for (std::int32_t at = begin; at < end; ++at) {
        const std::int32_t key = of_head.blocks[at], before = at > begin ? of_head.blocks[at - 1] : -1;
        if (key <= before || key >= key_blocks)
          return fmt::format(
              "the list of query block {} of head {} of sequence {} has key block {}{}, but must be increasing numbers "
              "from 0 to {}",
              b, unit % heads, unit / heads, key, at > begin ? fmt::format(" after {}", before) : "", key_blocks - 1);
      }
    }
  }
  return {};
}

}  // namespace longstride::kernels
