// The GPU behind framework/core/device: memory, copies, events, graphs.
#include "framework/core/device/memory.h"

#include <algorithm>
#include <numeric>

#include "framework/core/errors.h"
#include "tests/gpu/gpu.h"

namespace longstride {
namespace {

TEST(Device, IsKnownByItsNameAndMemory) {
  LONGSTRIDE_NEEDS_GPU();
  ASSERT_TRUE(built_with_cuda());
  EXPECT_GE(device_count(), 1);
  const DeviceInfo info = device_info();
  EXPECT_NE(info.name, "");
  EXPECT_GE(info.major, 8);
  EXPECT_GT(info.total_bytes, std::size_t{1} << 30);
  EXPECT_LE(info.free_bytes, info.total_bytes);
}

TEST(Device, TooMuchMemoryIsAUserErrorAndLeavesTheDeviceUsable) {
  LONGSTRIDE_NEEDS_GPU();
  try {
    const Block memory(Device::cuda, device_info().total_bytes + 1);
    FAIL();
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("GiB of GPU memory are needed"), std::string::npos) << text;
    EXPECT_NE(text.find("train.micro_batch"), std::string::npos) << text;
  }
  const Block memory(Device::cuda, 1 << 20);
  EXPECT_NE(memory.data(), nullptr);
}

TEST(Device, CopiesComeBackInTheOrderOfTheStream) {
  LONGSTRIDE_NEEDS_GPU();
  constexpr std::size_t count = 1 << 20;
  const Block out = Block::host_side(Device::cuda, count), back = Block::host_side(Device::cuda, count);
  const Block memory(Device::cuda, count);
  const Stream stream(Device::cuda);
  for (std::size_t i = 0; i < count; ++i) out.data()[i] = static_cast<std::byte>(i * 7 + i / 251);
  stream.zero(memory.data(), count);
  stream.copy_to_device(memory.data(), out.data(), count);
  stream.copy_to_host(back.data(), memory.data(), count);
  stream.synchronize();
  EXPECT_TRUE(std::equal(out.data(), out.data() + count, back.data()));
}

TEST(Device, AGraphDoesNothingWhenCapturedAndItsWorkAtEveryReplay) {
  LONGSTRIDE_NEEDS_GPU();
  const Block host = Block::host_side(Device::cuda, 8);
  const Block memory(Device::cuda, 8);
  const Stream stream(Device::cuda);
  stream.zero(memory.data(), 8);
  Graph graph;
  EXPECT_FALSE(graph.captured());
  *reinterpret_cast<std::int64_t*>(host.data()) = 41;
  graph.capture(stream, [&] { stream.copy_to_device(memory.data(), host.data(), 8); });
  EXPECT_TRUE(graph.captured());
  std::int64_t value = -1;
  const auto read = [&] {
    stream.copy_to_host(&value, memory.data(), 8);
    stream.synchronize();
    return value;
  };
  EXPECT_EQ(read(), 0);
  graph.replay(stream);
  EXPECT_EQ(read(), 41);
  *reinterpret_cast<std::int64_t*>(host.data()) = 42;  // read when the graph runs, not at capture
  graph.replay(stream);
  EXPECT_EQ(read(), 42);
}

TEST(Device, AFailedCaptureLeavesTheStreamUsable) {
  LONGSTRIDE_NEEDS_GPU();
  const Block memory(Device::cuda, 8);
  const Stream stream(Device::cuda);
  Graph graph;
  EXPECT_THROW(graph.capture(stream, [] { throw UserError("stop"); }), UserError);
  EXPECT_FALSE(graph.captured());
  stream.zero(memory.data(), 8);
  stream.synchronize();
}

TEST(Device, EventsMeasureTimeAndOneThatWasNeverRecordedHasPassed) {
  LONGSTRIDE_NEEDS_GPU();
  const Stream stream(Device::cuda);
  Event begin, end;
  begin.wait();
  const Block memory(Device::cuda, std::size_t{1} << 28);
  begin.record(stream);
  stream.zero(memory.data(), memory.bytes());
  end.record(stream);
  end.wait();
  EXPECT_GT(end.milliseconds_since(begin), 0.0);
}

}  // namespace
}  // namespace longstride
