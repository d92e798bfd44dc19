#include "framework/core/device/host_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_directory.h"

namespace longstride::testing {
namespace {

// A root of a file system with these files.
class Host {
 public:
  void file(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_.path() + path).parent_path());
    std::ofstream(root_.path() + path) << text;
  }
  std::optional<std::int64_t> free() { return free_host_memory(root_.path()); }

 private:
  TemporaryDirectory root_;
};

constexpr const char* meminfo = "MemTotal:       9000 kB\nMemFree:        10 kB\nMemAvailable:   8000 kB\n";

TEST(HostMemory, IsWhatTheSystemCallsAvailable) {
  Host host;
  EXPECT_FALSE(host.free());
  host.file("/proc/meminfo", meminfo);
  EXPECT_EQ(host.free(), 8000 * 1024);
}

TEST(HostMemory, AGroupMayAllowLessAndCachedFilesDoNotCount) {
  Host host;
  host.file("/proc/meminfo", meminfo);
  host.file("/proc/self/cgroup", "0::/jobs/one\n");
  host.file("/sys/fs/cgroup/jobs/one/memory.max", "max\n");
  host.file("/sys/fs/cgroup/jobs/one/memory.current", "500000\n");
  EXPECT_EQ(host.free(), 8000 * 1024);
  host.file("/sys/fs/cgroup/jobs/one/memory.max", "2000000\n");
  EXPECT_EQ(host.free(), 1500000);
  host.file("/sys/fs/cgroup/jobs/one/memory.stat", "anon 400000\ninactive_file 100000\n");
  EXPECT_EQ(host.free(), 1600000);
}

TEST(HostMemory, AnOuterGroupBindsToo) {
  Host host;
  host.file("/proc/meminfo", meminfo);
  host.file("/proc/self/cgroup", "0::/jobs/one\n");
  host.file("/sys/fs/cgroup/jobs/one/memory.max", "2000000\n");
  host.file("/sys/fs/cgroup/jobs/one/memory.current", "0\n");
  host.file("/sys/fs/cgroup/jobs/memory.max", "3000000\n");
  host.file("/sys/fs/cgroup/jobs/memory.current", "2900000\n");
  EXPECT_EQ(host.free(), 100000);
  host.file("/sys/fs/cgroup/jobs/memory.current", "3000001\n");
  EXPECT_EQ(host.free(), 0);
}

TEST(HostMemory, TheFirstVersionOfGroupsIsReadToo) {
  Host host;
  host.file("/proc/meminfo", meminfo);
  host.file("/proc/self/cgroup", "12:cpu,memory:/not/visible/here\n3:cpuset:/\n");
  host.file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "5000000\n");
  host.file("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000000\n");
  host.file("/sys/fs/cgroup/memory/memory.stat", "inactive_file 5\ntotal_inactive_file 200000\n");
  EXPECT_EQ(host.free(), 4200000);
}

TEST(HostMemory, GarbageIsNotTakenForALimit) {
  Host host;
  host.file("/proc/meminfo", "MemAvailable\nMemAvailable: 99999999999999999999 kB\n");
  host.file("/proc/self/cgroup", "0\n:\n::\n0::relative\n1:memory\n\n2:memory:" + std::string(300, '/') + "\n");
  for (const char* text : {"", "-5", "x", "99999999999999999999"}) {
    host.file("/sys/fs/cgroup/memory.max", text);
    host.file("/sys/fs/cgroup/memory.current", "1");
    EXPECT_FALSE(host.free()) << text;
  }
  host.file("/sys/fs/cgroup/memory.max", "7");
  host.file("/sys/fs/cgroup/memory.current", "9223372036854775807");
  EXPECT_EQ(host.free(), 0);
  host.file("/proc/meminfo", "MemAvailable: 9223372036854775807 kB\n");
  host.file("/sys/fs/cgroup/memory.max", "max");
  EXPECT_EQ(host.free(), 9223372036854775807 / 1024 * 1024);
}

TEST(HostMemory, IsKnownHere) {
  ASSERT_TRUE(free_host_memory());
  EXPECT_GT(*free_host_memory(), 1 << 20);
}

}  // namespace
}  // namespace longstride::testing
