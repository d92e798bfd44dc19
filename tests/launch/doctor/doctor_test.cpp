// The doctor on this machine: a table, and an exit code that agrees with it.
#include <gtest/gtest.h>

#include <sys/mman.h>

#include <filesystem>

#include "launch/doctor/doctor_checks.h"
#include "tests/support/command.h"
#include "tests/support/temporary_directory.h"

namespace longstride::testing {
namespace {

TEST(Doctor, ChecksThisMachineAndLeavesNothing) {
  const TemporaryDirectory place;
  const CommandResult result = run_command({"doctor", "--megabytes", "16", "--directory", place.path()}, "/tmp");
  for (const char* what : {"processors", "memory", "shared memory", "limits", "leftovers", "disk", "HDF5", "GPU"})
    EXPECT_NE(result.out.find(std::string(" ") + what), std::string::npos) << what << "\n" << result.out;
  EXPECT_TRUE(std::filesystem::is_empty(place.path()));
  const bool problems = result.out.find("PROBLEM") != std::string::npos;
  EXPECT_EQ(result.exit_code, problems ? 2 : 0) << result.out << result.err;
  EXPECT_EQ(result.out.find("fit to train") == std::string::npos, problems) << result.out;
}

TEST(Doctor, SaysWhatIsWrongWithADirectoryThatIsNotThere) {
  const CommandResult result = run_command({"doctor", "--megabytes", "16", "--directory", "/nowhere"}, "/tmp");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.out.find("cannot create the file: No such file or directory"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("-> use --directory to choose a directory that can be written"), std::string::npos);
  EXPECT_NE(result.err.find(" found; see above for what to do about each"), std::string::npos);
}

// The pid of a process that has ended.
pid_t dead_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

TEST(Doctor, NamesWhatDeadJobsOfOpenMpiHaveLeft) {
  const TemporaryDirectory place;
  const std::string sessions = place / "ompi.node-1.0", dead = std::to_string(dead_process());
  const std::string own = std::to_string(::getpid());
  write_text(sessions + "/pid." + dead + "/pmix/segment", std::string(1 << 20, 'x'));
  write_text(sessions + "/pid." + own + "/contact.txt", "this process's own");
  write_text(place / "ompi.other", "no folder");
  ::setenv("TMPDIR", place.path().c_str(), 1);
  const CommandResult result = run_command({"doctor", "--megabytes", "16"}, place.path());
  ::unsetenv("TMPDIR");
  EXPECT_NE(result.out.find(" 1 folder in " + place.path() + " from dead jobs, "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find(sessions + "/pid." + dead), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find(sessions + "/pid." + own), std::string::npos) << result.out;
}

TEST(Doctor, NamesOnlyLeftoversThatNoProcessUses) {
  const TemporaryDirectory shared, temporary;
  const auto segment = [&](const std::string& name) { return shared / ("vader_segment.node-1.0." + name); };
  for (const char* name : {"a0001.0", "a0001.1", "b0001.0", "b0001.1"})
    write_text(segment(name), std::string(4096, 'x'));
  write_text(shared / "nccl-AbCdEf", std::string(4096, 'x'));
  write_text(shared / "other", std::string(4096, 'x'));
  EXPECT_EQ(find_leftovers("node-1", shared.path(), temporary.path()).advice,
            "no process seen from here uses them: rm -r " + (shared / "nccl-*") + " " + segment("*"));

  const int file = ::open(segment("b0001.1").c_str(), O_RDWR);
  void* used = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, 0);
  ASSERT_NE(used, MAP_FAILED);
  const Finding found = find_leftovers("node-1", shared.path(), temporary.path());
  EXPECT_EQ(found.result,
            "4 segments in " + shared.path() + " and 0 folders in " + temporary.path() + " from dead jobs, 0.0 MiB");
  EXPECT_EQ(found.advice, "no process seen from here uses them: rm -r " + (shared / "nccl-*") + " " +
                              segment("a0001.*") + " " + segment("b0001.0"));
  ::munmap(used, 4096);
  ::close(file);

  // A live job among many dead ones: the command names as many as a line of the table holds.
  for (int i = 0; i < 40; ++i)
    write_text(temporary / ("ompi.node-1.0/pid.99999" + std::to_string(100 + i) + "/x"), "x");
  write_text(temporary / ("ompi.node-1.0/pid." + std::to_string(::getpid()) + "/x"), "x");
  const std::string many = find_leftovers("node-1", shared.path(), temporary.path()).advice;
  EXPECT_NE(many.find("/pid.99999100 "), std::string::npos) << many;
  EXPECT_TRUE(many.ends_with(" more: then run the doctor again)")) << many;
  EXPECT_LT(many.size(), 256u);
}

}  // namespace
}  // namespace longstride::testing
