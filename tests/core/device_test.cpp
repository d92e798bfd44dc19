// The CPU behind framework/core/device: work is done when a call returns. tests/gpu/device_test.cpp tests a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "framework/core/arena.h"
#include "framework/core/device/memory.h"
#include "framework/core/errors.h"

namespace longstride {
namespace {

TEST(DeviceOfTheCpu, ABlockIsAlignedForAnArenaAndMayBeEmpty) {
  const Block block(Device::cpu, 1000), none;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data()) % Arena::alignment, 0u);
  EXPECT_EQ(block.bytes(), Arena::rounded(1000));
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_EQ(none.bytes(), 0u);
}

TEST(DeviceOfTheCpu, CopiesAreDoneAtOnceAndEventsHavePassed) {
  const Stream stream(Device::cpu);
  EXPECT_TRUE(stream.immediate());
  std::vector<int> from = {1, 2, 3}, to(3);
  stream.copy_to_device(to.data(), from.data(), 3 * sizeof(int));
  EXPECT_EQ(to, from);
  stream.zero(to.data(), sizeof(int));
  stream.copy_to_host(from.data(), to.data(), 2 * sizeof(int));
  EXPECT_EQ(from, (std::vector<int>{0, 2, 3}));
  Event begin, end;
  begin.wait();
  begin.record(stream);
  end.record(stream);
  stream.wait(end);
  end.wait();
  EXPECT_GE(end.milliseconds_since(begin), 0.0);
}

TEST(DeviceOfTheCpu, TheHostSideOfATensorIsTheTensor) {
  std::int64_t number = 7;
  const Tensor t(&number, Dtype::i64, {1});
  const HostSide side(Device::cpu, t.bytes());
  EXPECT_EQ(HostSide::bytes_of(Device::cpu, t.bytes()), 0u);
  EXPECT_EQ(HostSide::bytes_of(Device::cuda, t.bytes()), t.bytes());
  EXPECT_EQ(side.of(t), t.as<std::byte>());
  side.send(Queue(), t);
  EXPECT_EQ(side.fetch(Queue(), t), t.as<std::byte>());
  EXPECT_EQ(number, 7);
}

TEST(DeviceOfTheCpu, CapturesNothing) {
  Graph graph;
  EXPECT_THROW(graph.capture(Queue(), [] {}), InternalError);
}

}  // namespace
}  // namespace longstride
