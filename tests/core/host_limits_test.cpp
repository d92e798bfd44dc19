#include "framework/core/device/host_limits.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "framework/core/device/memory.h"
#include "framework/core/errors.h"
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
  std::optional<HostMemory> least() {
    std::optional<HostMemory> found;
    for (const HostMemory& limit : host_memory(root_.path()))
      if (!found || limit.free < found->free) found = limit;
    return found;
  }
  std::optional<std::int64_t> free() {
    const auto limit = least();
    return limit ? std::optional(limit->free) : std::nullopt;
  }
  std::optional<double> quota() { return processor_quota(root_.path()); }
  int processors() { return usable_processors(root_.path()); }

 private:
  TemporaryDirectory root_;
};

constexpr const char* meminfo = "MemTotal:       9000 kB\nMemFree:        10 kB\nMemAvailable:   8000 kB\n";

TEST(HostMemory, IsWhatTheSystemCallsAvailable) {
  Host host;
  EXPECT_FALSE(host.free());
  host.file("/proc/meminfo", meminfo);
  EXPECT_EQ(host.free(), 8000 * 1024);
  EXPECT_EQ(host.least()->all, 9000 * 1024);
  EXPECT_EQ(host.least()->origin, "free on this machine");
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
  host.file("/sys/fs/cgroup/jobs/one/memory.stat", "anon 300000\ninactive_file 100000\nactive_file 70000\n");
  EXPECT_EQ(host.free(), 1670000);
  EXPECT_EQ(host.least()->origin, "left in the memory group /jobs/one");
  EXPECT_EQ(host.least()->all, 2000000);
  host.file("/sys/fs/cgroup/jobs/one/memory.high", "1900000\n");  // beyond it a process hardly moves
  EXPECT_EQ(host.free(), 1570000);
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
  host.file("/sys/fs/cgroup/memory/memory.stat",
            "inactive_file 5\ntotal_inactive_file 200000\ntotal_active_file 10000\n");
  EXPECT_EQ(host.free(), 4210000);
  EXPECT_EQ(host.least()->origin, "left in the memory group /");
}

TEST(HostMemory, LimitsOfTheProcessCountWhatItHasReserved) {
  Host host;
  host.file("/proc/meminfo", meminfo);
  const std::string none = "Max data size             unlimited            unlimited            bytes     \n";
  host.file("/proc/self/status", "Name:\tx\nVmPeak:\t  900 kB\nVmSize:\t  200 kB\nVmData:\t   50 kB\n");
  host.file("/proc/self/limits", "Limit                     Soft Limit           Hard Limit           Units     \n" +
                                     none +
                                     "Max address space         1024000              unlimited            bytes\n");
  EXPECT_EQ(host.free(), 1024000 - 200 * 1024);
  EXPECT_EQ(host.least()->origin, "left of the limit on address space (ulimit -v)");
  EXPECT_TRUE(host.least()->of_process);
  host.file("/proc/self/limits", "Max data size             102400               unlimited            bytes     \n");
  EXPECT_EQ(host.free(), 51200);
  EXPECT_EQ(host.least()->origin, "left of the limit on data (ulimit -d)");
  host.file("/proc/self/limits", none);
  EXPECT_EQ(host.free(), 8000 * 1024);
}

TEST(HostMemory, GarbageIsNotTakenForALimit) {
  Host host;
  host.file("/proc/meminfo", "MemAvailable\nMemAvailable: 99999999999999999999 kB\n");
  host.file("/proc/self/limits", "Max address space\nMax data size  x y\n");
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
  const auto here = host_memory("");
  ASSERT_FALSE(here.empty());
  EXPECT_GT(here.front().free, 1 << 20);
}

TEST(HostMemory, BlocksAreRefusedBeforeTheyTakeMoreThanIsAllowed) {
  const Block before(Device::cpu, 5000);
  limit_host_blocks(1 << 20, "free here");
  {
    const Block half(Device::cpu, 1 << 19);
    try {
      const Block more(Device::cpu, 3 << 18);
      ADD_FAILURE() << "not refused";
    } catch (const UserError& e) {
      EXPECT_TRUE(
          std::string(e.what()).starts_with("0.001 GiB of memory per rank are needed, but only 0.001 are free "
                                            "here; "))
          << e.what();
    }
  }
  EXPECT_NO_THROW(Block(Device::cpu, 3 << 18));  // the half has been given back
  limit_host_blocks(std::int64_t{1} << 62, "free here");
}

TEST(HostProcessors, AQuotaOfEitherVersionOfGroupsCounts) {
  Host host;
  const int all = static_cast<int>(std::thread::hardware_concurrency());
  EXPECT_FALSE(host.quota());
  EXPECT_EQ(host.processors(), all);
  host.file("/proc/self/cgroup", "0::/jobs/one\n");
  host.file("/sys/fs/cgroup/jobs/one/cpu.max", "max 100000\n");
  EXPECT_FALSE(host.quota());
  host.file("/sys/fs/cgroup/jobs/one/cpu.max", "150000 100000\n");
  EXPECT_EQ(host.quota(), 1.5);
  EXPECT_EQ(host.processors(), std::min(all, 2));
  host.file("/sys/fs/cgroup/jobs/cpu.max", "50000 100000\n");
  EXPECT_EQ(host.quota(), 0.5);
  EXPECT_EQ(host.processors(), 1);
  for (const char* garbage : {"", "0 100000", "1 0", "-1 100000", "x"}) {
    host.file("/sys/fs/cgroup/jobs/cpu.max", garbage);
    EXPECT_EQ(host.quota(), 1.5) << garbage;
  }
  host.file("/proc/self/cgroup", "4:cpu,cpuacct:/pod\n");
  host.file("/sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", "-1\n");
  host.file("/sys/fs/cgroup/cpu/pod/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(host.quota());
  host.file("/sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", "25000\n");
  EXPECT_EQ(host.quota(), 0.25);
  EXPECT_EQ(host.processors(), 1);
}

}  // namespace
}  // namespace longstride::testing
