// The doctor on this machine: a table, and an exit code that agrees with it.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/launch/command.h"
#include "tests/support/temporary_directory.h"

namespace longstride::testing {
namespace {

TEST(Doctor, ChecksThisMachineAndLeavesNothing) {
  const TemporaryDirectory place;
  const CommandResult result = run_command({"doctor", "--megabytes", "16", "--directory", place.path()}, "/tmp");
  for (const char* what : {"processors", "memory", "shared memory", "limits", "disk", "HDF5", "GPU"})
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
  EXPECT_NE(result.out.find("-> choose a directory that can be written with --directory"), std::string::npos);
  EXPECT_NE(result.err.find("problem(s) found, and what to do about them stands above"), std::string::npos);
}

}  // namespace
}  // namespace longstride::testing
