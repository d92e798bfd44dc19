// The loss of a toy model over a text, as an evaluation computes it.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "datasets/objectives/kinds.h"
#include "framework/train/evaluate/evaluator.h"
#include "tests/support/stream_run.h"
#include "tests/support/toy_model.h"

namespace longstride::test {

// In nats, over `bytes` bytes of Text.
template <class T>
double nats_of(ToyModel<T>& toy, const EvaluationConfig& config, std::int64_t bytes) {
  const auto comm = make_single_communicator();
  std::vector<std::byte> memory(evaluation_bytes(toy.model(), toy.context(), config) + Arena::alignment);
  void* base = memory.data();
  std::size_t space = memory.size();
  std::align(Arena::alignment, 1, base, space);
  Arena arena(base, space / Arena::alignment * Arena::alignment);
  Context ctx = toy.context();
  ctx.arena = &arena;
  const EvaluationResult result = evaluate(toy.model(), default_objective(), ctx, Text(bytes), config, *comm);
  EXPECT_EQ(result.bytes, bytes);
  return result.scored.sums.front();
}

}  // namespace longstride::test
