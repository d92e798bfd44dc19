#include "framework/core/files.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>
#include <set>

#include "tests/support/temporary_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryDirectory;
using testing::user_error_of;

std::set<std::string> names_in(const std::string& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.insert(entry.path().filename().string());
  return names;
}

TEST(AtomicFile, AppearsOnlyWhenCommitted) {
  const TemporaryDirectory directory;
  AtomicFile file(directory / "x");
  file.write("abc", 3);
  EXPECT_FALSE(fs::exists(directory / "x"));
  file.commit();
  EXPECT_EQ(read_file(directory / "x"), "abc");
  EXPECT_EQ(names_in(directory.path()), std::set<std::string>{"x"});
}

TEST(AtomicFile, WithoutCommitLeavesTheOldContentAndNothingElse) {
  const TemporaryDirectory directory;
  write_file_atomically(directory / "x", "old");
  {
    AtomicFile file(directory / "x");
    file.write("new", 3);
  }
  EXPECT_EQ(read_file(directory / "x"), "old");
  EXPECT_EQ(names_in(directory.path()), std::set<std::string>{"x"});
}

TEST(AtomicFile, ReplacesTheOldContent) {
  const TemporaryDirectory directory;
  write_file_atomically(directory / "x", "old and longer");
  write_file_atomically(directory / "x", "new");
  EXPECT_EQ(read_file(directory / "x"), "new");
}

TEST(AtomicFile, SaysWhyItCannotBeWritten) {
  const TemporaryDirectory directory;
  EXPECT_EQ(user_error_of([&] { AtomicFile file(directory / "none/x"); }),
            directory / "none/x: cannot create the file: No such file or directory");
  fs::create_directory(directory / "d");
  EXPECT_EQ(user_error_of([&] { AtomicFile file(directory / "d"); }),
            directory / "d: is a directory, but a file is to be written");
}

// A limit on the size of files stands in for a full disk: write() fails half-way in the same place.
TEST(AtomicFile, AWriteThatFailsLeavesNothingBehind) {
  const TemporaryDirectory directory;
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit;
  getrlimit(RLIMIT_FSIZE, &old_limit);
  const rlimit small = {1000, old_limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = user_error_of([&] { write_file_atomically(directory / "x", std::string(5000, 'a')); });
  setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(message, directory / "x: cannot write: File too large");
  EXPECT_TRUE(names_in(directory.path()).empty());
}

TEST(AtomicFile, AFullDiskIsSaidToBeFull) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "this system has no /dev/full";
  const TemporaryDirectory directory;
  // The temporary's name is known, so that it can be made a link to the device that is always full.
  fs::create_symlink("/dev/full", directory / (".tmp-x-" + std::to_string(::getpid())));
  EXPECT_EQ(user_error_of([&] { write_file_atomically(directory / "x", "abc"); }),
            directory / "x: cannot write: No space left on device; free some space and try again");
  EXPECT_TRUE(names_in(directory.path()).empty());
}

TEST(AtomicDirectory, AppearsOnlyWhenCommitted) {
  const TemporaryDirectory parent;
  AtomicDirectory directory(parent / "d");
  write_file_atomically(directory.path() + "/x", "abc");
  EXPECT_FALSE(fs::exists(parent / "d"));
  directory.commit();
  EXPECT_EQ(read_file(parent / "d/x"), "abc");
  EXPECT_EQ(names_in(parent.path()), std::set<std::string>{"d"});
}

TEST(AtomicDirectory, WithoutCommitLeavesNothing) {
  const TemporaryDirectory parent;
  {
    AtomicDirectory directory(parent / "d");
    write_file_atomically(directory.path() + "/x", "abc");
  }
  EXPECT_TRUE(names_in(parent.path()).empty());
}

TEST(AtomicDirectory, ReplacesAnOlderOneWhole) {
  const TemporaryDirectory parent;
  fs::create_directory(parent / "d");
  write_file_atomically(parent / "d/old", "old");
  AtomicDirectory directory(parent / "d");
  write_file_atomically(directory.path() + "/new", "new");
  directory.commit();
  EXPECT_EQ(names_in(parent / "d"), std::set<std::string>{"new"});
  EXPECT_EQ(names_in(parent.path()), std::set<std::string>{"d"});
}

TEST(RemoveTemporaries, TakesWhatCrashesLeaveAndNothingElse) {
  const TemporaryDirectory directory;
  fs::create_directories(directory / ".tmp-step-00000010-4242/deep");
  write_file_atomically(directory / ".tmp-step-00000010-4242/deep/x", "abc");
  write_file_atomically(directory / ".tmp-state.json-17", "abc");
  write_file_atomically(directory / "kept", "abc");
  remove_temporaries(directory.path());
  EXPECT_EQ(names_in(directory.path()), std::set<std::string>{"kept"});
  EXPECT_NO_THROW(remove_temporaries(directory / "none"));
}

TEST(InputFile, RefusesWhatIsNoRegularFile) {
  const TemporaryDirectory directory;
  EXPECT_EQ(user_error_of([&] { InputFile file(directory.path()); }),
            directory.path() + ": is a directory, but a file is needed");
  EXPECT_EQ(user_error_of([&] { InputFile file(directory / "x"); }),
            directory / "x: cannot open: No such file or directory");
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(user_error_of([&] { InputFile file(directory / "pipe"); }),
            directory / "pipe: is no regular file, but a file is needed");
}

TEST(InputFile, SaysWhereAFileEnds) {
  const TemporaryDirectory directory;
  write_file_atomically(directory / "x", "0123456789");
  const InputFile file(directory / "x");
  char bytes[4] = {};
  file.read(6, bytes, 4);
  EXPECT_EQ(std::string(bytes, 4), "6789");
  EXPECT_EQ(user_error_of([&] { file.read(8, bytes, 4); }), directory / "x: ends at byte 10, where more is expected");
}

}  // namespace
}  // namespace longstride
