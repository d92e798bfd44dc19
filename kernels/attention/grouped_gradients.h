// Gradients of keys that a group of query heads shares. Kernels write those of every query head by itself to scratch,
// in the type of k and v; repeat_heads_backward then adds a group's in the order of its heads, so that every sum has
// one order on every device. This takes the memory that expanded keys' gradients would, for the time of the call.
#pragma once
#include <algorithm>
#include <cstddef>

#include "kernels/attention/attention.h"
#include "kernels/repeat_heads/repeat_heads.h"

namespace longstride::kernels {

struct GroupedGradients {
  AttentionBackwardArgs by_head;  // with dk and dv of every query head, and the rest of the scratch

  explicit GroupedGradients(const AttentionBackwardArgs& args) : by_head(args) {
    auto* const scratch = static_cast<std::byte*>(args.scratch.data());
    const std::size_t k_bytes = bytes_of(args, args.k), used = bytes_of(args);
    by_head.dk = Tensor(scratch, args.k.dtype(), shape_of(args, args.k));
    by_head.dv = Tensor(scratch + k_bytes, args.v.dtype(), shape_of(args, args.v));
    by_head.scratch = Tensor(scratch + used, Dtype::u8, {args.scratch.count() - static_cast<std::int64_t>(used)});
  }

  // 0 where every query head has a key head of its own.
  static std::size_t bytes_of(const AttentionBackwardArgs& args) {
    return are_grouped(args) ? bytes_of(args, args.k) + bytes_of(args, args.v) : 0;
  }

  // Runs backward(args), which takes k and v of fewer heads but writes dk and dv of every query head, and add() on
  // them.
  template <class Backward, class Add>
  static void run(const AttentionBackwardArgs& args, const Launch& launch, Backward&& backward, Add&& add) {
    if (!are_grouped(args)) return backward(args, launch);
    const GroupedGradients grouped(args);
    backward(grouped.by_head, launch);
    add(RepeatHeadsBackwardArgs{grouped.by_head.dk, args.dk}, launch);
    add(RepeatHeadsBackwardArgs{grouped.by_head.dv, args.dv}, launch);
  }

 private:
  static bool are_grouped(const AttentionBackwardArgs& args) { return args.k.size(2) != args.q.size(2); }
  static Shape shape_of(const AttentionBackwardArgs& args, const Tensor& view) {
    return {view.size(0), view.size(1), args.q.size(2), view.size(3)};
  }
  static std::size_t bytes_of(const AttentionBackwardArgs& args, const Tensor& view) {
    constexpr std::size_t line = 256;
    const auto count = static_cast<std::size_t>(view.size(0) * view.size(1) * args.q.size(2) * view.size(3));
    return (count * kernels::bytes_of(view.dtype()) + line - 1) / line * line;
  }
};

}  // namespace longstride::kernels
