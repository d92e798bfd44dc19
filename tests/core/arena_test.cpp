#include "framework/core/arena.h"

#include <gtest/gtest.h>

#include <vector>

#include "framework/core/context.h"
#include "framework/core/errors.h"

namespace longstride {
namespace {

constexpr std::size_t unit = Arena::alignment;

struct alignas(unit) Memory {
  std::byte bytes[4 * unit];
};

TEST(Arena, GrowsFromBothEndsToThePeakThatItsPlanCounted) {
  Memory memory;
  Arena plan, real(memory.bytes, sizeof(memory.bytes));
  for (Arena* arena : {&plan, &real}) {
    void* tape = arena->allocate_tape(1);
    void* scratch = arena->allocate_scratch(unit + 1);
    EXPECT_EQ(tape, arena->planning() ? nullptr : memory.bytes);
    EXPECT_EQ(scratch, arena->planning() ? nullptr : memory.bytes + 2 * unit);
    arena->release_scratch(0);
    arena->allocate_tape(unit);
    EXPECT_EQ(arena->high_water(), 3 * unit);
    EXPECT_EQ(arena->tape_high_water(), 2 * unit);
  }
  EXPECT_THROW(real.allocate_scratch(2 * unit + 1), InternalError);  // would overlap the tape
  EXPECT_THROW(real.release_tape(3 * unit), InternalError);
}

TEST(Arena, ScratchEndsWithItsScope) {
  Arena plan;
  Context ctx;
  ctx.arena = &plan;
  const Scratch outer(ctx);
  {
    Scratch inner(ctx);
    inner.tensor({3, 5}, Dtype::f32);
    EXPECT_EQ(plan.scratch_used(), unit);
  }
  EXPECT_EQ(plan.scratch_used(), 0u);
}

TEST(Tape, FramesReleaseTheirMemoryOnceTheirTensorsArePopped) {
  Arena plan;
  Tape tape(plan);
  tape.open_frame();
  tape.push(tape.tensor({1}, Dtype::f32));
  tape.open_frame();
  tape.push(tape.tensor({2}, Dtype::f64));
  tape.push(Tensor{});
  EXPECT_THROW(tape.close_frame(), InternalError);
  EXPECT_FALSE(tape.pop().given());
  EXPECT_EQ(tape.pop().dtype(), Dtype::f64);
  EXPECT_EQ(plan.tape_used(), 2 * unit);
  tape.close_frame();
  EXPECT_EQ(plan.tape_used(), unit);
  EXPECT_FALSE(tape.empty());
  EXPECT_EQ(tape.pop().dtype(), Dtype::f32);
  tape.close_frame();
  EXPECT_TRUE(tape.empty());
  EXPECT_EQ(plan.tape_used(), 0u);
  EXPECT_THROW(tape.pop(), InternalError);
}

}  // namespace
}  // namespace longstride
