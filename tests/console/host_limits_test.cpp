// What a container or a batch job allows: commands that need more memory are refused before the system ends them
// without a word, and threads follow a quota. Limits are read below LONGSTRIDE_HOST_ROOT.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "framework/core/device/host_limits.h"
#include "tests/launch/text_run.h"

namespace longstride::testing {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

class HostLimits : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir = new TemporaryDirectory;
    prepare_text(*dir, text_recipe(1, "steps: 1, global_batch: 4, lr: 1.0e-2, warmup: 1, log_every: 1"));
    ASSERT_EQ(run_command({"train", "r.yaml", "--run", "run"}, dir->path()).exit_code, 0);
  }
  static void TearDownTestSuite() { delete dir; }
  void TearDown() override { ::unsetenv("LONGSTRIDE_HOST_ROOT"); }

  // A group of a machine with 8 GiB that leaves this much beyond the 32 MiB that a process takes in any case.
  static void allow(std::int64_t kib) {
    const std::string root = *dir / "host";
    write_text(root + "/proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 8000000 kB\n");
    write_text(root + "/proc/self/cgroup", "0::/job\n");
    write_text(root + "/sys/fs/cgroup/job/memory.max", std::to_string(std::int64_t{101} << 20));
    write_text(root + "/sys/fs/cgroup/job/memory.current", std::to_string((std::int64_t{69} << 20) - 1024 * kib));
    ::setenv("LONGSTRIDE_HOST_ROOT", root.c_str(), 1);
  }
  static CommandResult run(const Words& words, int ranks = 1) { return run_command(words, dir->path(), 120, ranks); }
  static void expect_refused(const Words& words, const std::string& origin, int ranks = 1) {
    const CommandResult result = run(words, ranks);
    EXPECT_EQ(result.exit_code, 2) << words.front() << result.err;
    EXPECT_NE(result.err.find(" GiB of memory per rank are needed"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find(", but only 0.000 are left in the memory group /job" + origin + "; "), std::string::npos)
        << result.err;
    EXPECT_EQ(result.out, "") << words.front();
  }
  static std::int64_t planned() {
    const CommandResult plan = run({"plan", "r.yaml", "--json", "--peak-tflops", "1"});
    return nlohmann::json::parse(plan.out).at("bytes_per_rank").at("total").get<std::int64_t>();
  }

  static TemporaryDirectory* dir;
};
TemporaryDirectory* HostLimits::dir = nullptr;

TEST_F(HostLimits, EveryCommandThatComputesIsRefusedInAGroupThatIsTooSmall) {
  allow(1);
  expect_refused({"train", "r.yaml", "--run", "refused"}, "");
  EXPECT_FALSE(fs::exists(*dir / "refused"));
  expect_refused({"eval", "run"}, "");
  expect_refused({"sample", "run"}, "");
  EXPECT_FALSE(fs::exists(*dir / "run/samples"));
  expect_refused({"bench", "step", "r.yaml"}, "");
  expect_refused({"bench", "sample", "r.yaml", "--length", "2"}, "");
  expect_refused({"bench", "attention", "r.yaml"}, "");
  expect_refused({"attention", "run"}, "");
  allow(1 << 16);
  EXPECT_EQ(run({"train", "r.yaml", "--run", "fits"}).exit_code, 0);
  EXPECT_EQ(run({"eval", "run"}).exit_code, 0);
}

TEST_F(HostLimits, ThePlanSaysWhetherItFits) {
  const Words words = {"plan", "r.yaml", "--peak-tflops", "1"};
  allow(1);
  const std::string small = run(words).out;
  EXPECT_TRUE(small.ends_with("\ndoes not fit          0.000 GiB are left in the memory group /job\n")) << small;
  allow(1 << 16);
  const std::string large = run(words).out;
  EXPECT_TRUE(large.ends_with("\nfits                  0.062 GiB are left in the memory group /job\n")) << large;
  for (const auto& [kib, fits] : {std::pair{1, false}, {1 << 16, true}}) {
    allow(kib);
    const auto json = nlohmann::json::parse(run({"plan", "r.yaml", "--peak-tflops", "1", "--json"}).out);
    EXPECT_EQ(json.at("fits"), fits);
    EXPECT_EQ(json.at("free_bytes"), 1024 * kib);
  }
}

// One rank would fit, and so would each of the two by itself.
TEST_F(HostLimits, RanksOfAHostShareWhatTheGroupLeaves) {
  allow(planned() / 1024 + (1 << 12));
  EXPECT_EQ(run({"train", "r.yaml", "--run", "alone"}).exit_code, 0);
  expect_refused({"train", "r.yaml", "--run", "two"}, ", for each of 2 ranks, the least of all ranks", 2);
  EXPECT_FALSE(fs::exists(*dir / "two"));
}

TEST_F(HostLimits, TheDoctorNamesTheGroupAndThreadsFollowTheQuota) {
  allow(1);
  write_text(*dir / "host/sys/fs/cgroup/job/cpu.max", "50000 100000\n");
  const int status =
      std::system(("cd " + dir->path() + " && env -u OMP_NUM_THREADS CUDA_VISIBLE_DEVICES= " + LONGSTRIDE_COMMAND +
                   " doctor --megabytes 8 >doctor.out 2>&1")
                      .c_str());
  EXPECT_EQ(WEXITSTATUS(status), 2);
  const std::string table = text_of(*dir / "doctor.out");
  EXPECT_NE(table.find("7.6 GiB free of 8.0, 0.0 GiB of 0.1 are left in the memory group /job"), std::string::npos)
      << table;
  EXPECT_NE(table.find(" for 1 rank(s) x 1 thread(s)"), std::string::npos) << table;
  const bool limits = std::thread::hardware_concurrency() > 1;
  EXPECT_EQ(table.find(", of which a quota allows 0.5, for") != std::string::npos, limits) << table;
}

}  // namespace
}  // namespace longstride::testing
