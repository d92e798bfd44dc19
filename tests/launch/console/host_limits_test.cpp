// Limits of containers and batch jobs: commands that need more memory are refused before the system ends them
// without a word, and threads follow a quota. Limits are read below LONGSTRIDE_HOST_ROOT.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "framework/core/device/host_limits.h"
#include "tests/support/text_run.h"

namespace longstride::testing {
namespace {

namespace fs = std::filesystem;

class HostLimits : public TextRun {
 protected:
  HostLimits() : TextRun(text_recipe(1, "steps: 1, global_batch: 4, lr: 1.0e-2, warmup: 1, log_every: 1")) {}
  void TearDown() override { ::unsetenv("LONGSTRIDE_HOST_ROOT"); }

  // A group of a machine with 8 GiB that leaves this much beyond the 32 MiB that a process takes in any case.
  void allow(std::int64_t kib) const {
    const std::string root = dir / "host";
    write_text(root + "/proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 8000000 kB\n");
    write_text(root + "/proc/self/cgroup", "0::/job\n");
    write_text(root + "/sys/fs/cgroup/job/memory.max", std::to_string(std::int64_t{101} << 20));
    write_text(root + "/sys/fs/cgroup/job/memory.current", std::to_string((std::int64_t{69} << 20) - 1024 * kib));
    ::setenv("LONGSTRIDE_HOST_ROOT", root.c_str(), 1);
  }
  void expect_refused(const Arguments& words, const std::string& origin, int ranks = 1) const {
    expect_refused_with(words, " GiB of memory per rank are needed", ranks);
    expect_refused_with(words, ", but only 0.000 are left in the memory group /job" + origin + "; ", ranks);
  }
  std::int64_t planned() const {
    const CommandResult plan = run({"plan", "r.yaml", "--json", "--peak-tflops", "1"});
    return nlohmann::json::parse(plan.out).at("bytes_per_rank").at("total").get<std::int64_t>();
  }
};
TEST_F(HostLimits, EveryCommandThatComputesIsRefusedInAGroupThatIsTooSmall) {
  allow(1);
  expect_refused({"train", "r.yaml", "--run", "refused"}, "");
  EXPECT_FALSE(fs::exists(dir / "refused"));
  expect_refused({"eval", "run"}, "");
  expect_refused({"sample", "run"}, "");
  EXPECT_FALSE(fs::exists(dir / "run/samples"));
  expect_refused({"bench", "step", "r.yaml"}, "");
  expect_refused({"bench", "sample", "r.yaml", "--length", "2"}, "");
  expect_refused({"bench", "attention", "r.yaml"}, "");
  expect_refused({"attention", "run"}, "");
  allow(1 << 16);
  EXPECT_EQ(run({"train", "r.yaml", "--run", "fits"}).exit_code, 0);
  EXPECT_EQ(run({"eval", "run"}).exit_code, 0);
}

TEST_F(HostLimits, ThePlanSaysWhetherItFits) {
  const Arguments words = {"plan", "r.yaml", "--peak-tflops", "1"};
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
  EXPECT_FALSE(fs::exists(dir / "two"));
}

TEST_F(HostLimits, TheDoctorNamesTheGroupAndThreadsFollowTheQuota) {
  allow(1);
  write_text(dir / "host/sys/fs/cgroup/job/cpu.max", "50000 100000\n");
  const int status =
      std::system(("cd " + dir.path() + " && env -u OMP_NUM_THREADS CUDA_VISIBLE_DEVICES= " + LONGSTRIDE_COMMAND +
                   " doctor --megabytes 8 >doctor.out 2>&1")
                      .c_str());
  EXPECT_EQ(WEXITSTATUS(status), 2);
  const std::string table = text_of(dir / "doctor.out");
  EXPECT_NE(table.find("7.6 GiB free of 8.0, 0.0 GiB of 0.1 are left in the memory group /job"), std::string::npos)
      << table;
  EXPECT_NE(table.find(" for 1 rank x 1 thread"), std::string::npos) << table;
  const bool limits = std::thread::hardware_concurrency() > 1;
  EXPECT_EQ(table.find(", of which a quota allows 0.5, for") != std::string::npos, limits) << table;
}

// The loader that this process was started with.
std::string loader() {
  std::ifstream in("/proc/self/maps");
  for (std::string line; std::getline(in, line);)
    if (const std::size_t at = line.find('/'); at != std::string::npos && line.find("/ld-") != std::string::npos)
      return line.substr(at);
  return "";
}

// The name of the process that these words start, while it reads its standard input.
std::string name_while_it_works(Arguments words, const std::string& directory) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "";
  const pid_t child = ::fork();
  if (child == 0) {
    words.insert(words.end(), {"prepare", "bytes", "--input", "-", "--output", "named.h5", "--force", "--quiet"});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    if (::chdir(directory.c_str()) == 0 && ::dup2(ends[0], STDIN_FILENO) == STDIN_FILENO) ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(ends[0]);
  const std::string text(1 << 20, 'x');  // more than a pipe holds, so that the last of it has been read from
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t now = ::write(ends[1], text.data() + written, text.size() - written);
    if (now <= 0) break;
    written += static_cast<std::size_t>(now);
  }
  const std::string name = text_of("/proc/" + std::to_string(child) + "/comm");
  ::close(ends[1]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << words.front();
  return name;
}

// The process restarts itself; tools find it by its name, and so does who reads why the system ended it.
TEST_F(HostLimits, TheProcessIsCalledLongstrideUnderAnyLoader) {
  EXPECT_EQ(name_while_it_works({LONGSTRIDE_COMMAND}, dir.path()), "longstride\n");
  const std::string other = dir / "other-loader", link = dir / "link";
  fs::copy_file(loader(), other);
  EXPECT_EQ(name_while_it_works({other, LONGSTRIDE_COMMAND}, dir.path()), "longstride\n");
  fs::create_symlink(LONGSTRIDE_COMMAND, link);
  EXPECT_EQ(name_while_it_works({link}, dir.path()), "longstride\n");
}

}  // namespace
}  // namespace longstride::testing
