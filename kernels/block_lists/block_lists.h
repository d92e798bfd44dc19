// Lists of key blocks seen from the keys: the query blocks of every key block, in increasing order. They are the
// transpose of what attention reads forward (kernels/attention/pattern/block_lists.h), for its gradients.
#pragma once
#include "kernels/attention/pattern/block_lists.h"
#include "kernels/base/op.h"

namespace longstride::kernels {

struct BlockListsArgs {
  BlockLists lists;  // query_begin and queries are written; the CPU refuses lists with a problem (InternalError)
  Tensor scratch = {};

  void check(Device device) const;
  Cost cost() const {
    return {WorkKind::other, bytes_of(lists.key_begin, lists.keys, lists.query_begin, lists.queries), 0};
  }
  Tensor scratch_on(Device device) const;
  std::int64_t heads() const {
    return lists.keys.size(0) * lists.keys.size(1);
  }  // with lists of their own, in all sequences
  std::int64_t query_blocks() const { return lists.key_begin.size(2) - 1; }
  std::int64_t key_blocks() const { return lists.query_begin.size(2) - 1; }
  static constexpr std::int64_t shares = 32;  // in which a GPU counts the query blocks of a head
};
LONGSTRIDE_OP(block_lists, BlockListsArgs)

}  // namespace longstride::kernels
