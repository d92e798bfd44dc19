// The blocks of keys that a block of queries may see at all, listed in memory: they restrict a plan of one dense part,
// as bounds do (row_bounds.h), and both may be given.
#pragma once
#include <cstdint>
#include <string>

#include "kernels/attention/pattern/tile_span.h"
#include "kernels/base/host_device.h"
#include "kernels/base/tensor.h"

namespace longstride::kernels {

// Blocks are `block` consecutive rows, the last one those that are left. Query row i sees key row j only if j's block
// is in the list of i's: entries [key_begin_b, key_begin_(b+1)) of `keys` for query block b, strictly increasing. All
// tensors are i32 and contiguous, of the same batch or 1 and heads or 1. Kernels do not check what they hold.
struct BlockLists {
  static constexpr std::int32_t unit = 64;  // a block is a multiple of it, and of every tile

  std::int32_t block = 0;  // rows; 0: no lists
  Tensor key_begin = {};   // (batch or 1, heads or 1, query blocks + 1)
  Tensor keys = {};        // (batch or 1, heads or 1, most entries of a head); what no list holds may be anything
  // The query blocks of every key block, as kernels/block_lists makes them. Absent: no gradients.
  Tensor query_begin = {};  // (batch or 1, heads or 1, key blocks + 1)
  Tensor queries = {};      // like keys

  bool given() const { return block != 0; }
};

// The lists of one sequence and head, as kernels read them.
struct ListsOfHead {
  const std::int32_t *begin = nullptr, *blocks = nullptr;
  std::int32_t block = 0;

  // That of the block of a row.
  LONGSTRIDE_HOST_DEVICE BlockList of_row(std::int32_t row) const {
    if (block == 0) return {};
    const std::int32_t* const at = begin + row / block;
    return {blocks + at[0], at[1] - at[0], block};
  }
};

// The lists of all sequences and heads, passed to kernels by value.
struct ListsView {
  ListsOfHead first;                                                  // the first head
  std::int64_t begin_batch = 0, begin_head = 0, batch = 0, head = 0;  // strides

  ListsView() = default;
  ListsView(const Tensor& begin, const Tensor& blocks, std::int32_t block) {
    if (block == 0 || !begin.given()) return;
    first = {begin.as<const std::int32_t>(), blocks.as<const std::int32_t>(), block};
    begin_head = begin.size(1) > 1 ? begin.size(2) : 0;
    head = blocks.size(1) > 1 ? blocks.size(2) : 0;
    begin_batch = begin.size(0) > 1 ? begin.size(1) * begin.size(2) : 0;
    batch = blocks.size(0) > 1 ? blocks.size(1) * blocks.size(2) : 0;
  }
  static ListsView of_queries(const BlockLists& lists) { return {lists.key_begin, lists.keys, lists.block}; }
  static ListsView of_keys(const BlockLists& lists) { return {lists.query_begin, lists.queries, lists.block}; }

  bool given() const { return first.block != 0; }
  LONGSTRIDE_HOST_DEVICE ListsOfHead of(std::int64_t sequence, std::int64_t number) const {
    return {first.begin + sequence * begin_batch + number * begin_head, first.blocks + sequence * batch + number * head,
            first.block};
  }
};

// Empty, or what is wrong with lists of key blocks in the host's memory, as one sentence.
std::string problem_of(const BlockLists& lists, std::int64_t key_blocks);

}  // namespace longstride::kernels
