#include "framework/core/files/files.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <fstream>
#include <set>
#include <thread>

#include "tests/support/temporary_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
using testing::names_in;
using testing::TemporaryDirectory;
using testing::user_error_of;

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

TEST(AtomicFile, WithoutReplacingKeepsWhatHasAppeared) {
  const TemporaryDirectory directory;
  {
    AtomicFile late(directory / "x"), only(directory / "y");
    late.write("late", 4);
    std::ofstream(directory / "x") << "first";
    EXPECT_EQ(user_error_of([&] { late.commit(false); }),
              directory / "x: was written by another program in the meantime, and is kept; choose another name");
    only.commit(false);
  }
  EXPECT_EQ(read_file(directory / "x"), "first");
  EXPECT_EQ(names_in(directory.path()), (std::set<std::string>{"x", "y"}));
}

TEST(AtomicFile, SaysWhyItCannotBeWritten) {
  const TemporaryDirectory directory;
  EXPECT_EQ(user_error_of([&] { AtomicFile file(directory / "none/x"); }),
            directory / "none/x: cannot create the file: No such file or directory");
  fs::create_directory(directory / "d");
  EXPECT_EQ(user_error_of([&] { AtomicFile file(directory / "d"); }),
            directory / "d: is a directory, but a file is to be written");
}

TEST(AtomicFile, AWriteThatFailsLeavesNothingBehind) {
  const TemporaryDirectory directory;
  const std::string message = testing::user_error_with_file_limit(
      1000, [&] { write_file_atomically(directory / "x", std::string(5000, 'a')); });
  EXPECT_EQ(message, directory / "x: cannot write: File too large");
  EXPECT_TRUE(names_in(directory.path()).empty());
}

TEST(AtomicFile, ReportsAFullDisk) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "this system has no /dev/full";
  EXPECT_EQ(user_error_of([&] { write_file_atomically("/dev/full", "abc"); }),
            "/dev/full: cannot write: No space left on device; free some space and try again");
}

TEST(AtomicFile, FollowsLinksWhichStay) {
  const TemporaryDirectory directory;
  fs::create_directories(directory / "far/deep");
  write_file_atomically(directory / "far/deep/x", "old");
  fs::create_symlink("deep/x", directory / "far/second");
  fs::create_symlink(directory / "far/second", directory / "first");
  write_file_atomically(directory / "first", "new");
  EXPECT_EQ(fs::read_symlink(directory / "first"), directory / "far/second");
  EXPECT_EQ(fs::read_symlink(directory / "far/second"), "deep/x");
  EXPECT_EQ(read_file(directory / "far/deep/x"), "new");
  EXPECT_EQ(names_in(directory / "far/deep"), std::set<std::string>{"x"});
}

TEST(AtomicFile, ADanglingLinkCreatesItsTarget) {
  const TemporaryDirectory directory;
  fs::create_symlink("target", directory / "link");
  write_file_atomically(directory / "link", "abc");
  EXPECT_TRUE(fs::is_symlink(directory / "link"));
  EXPECT_EQ(read_file(directory / "target"), "abc");
}

TEST(AtomicFile, KeepsTheModeOfWhatItReplaces) {
  const TemporaryDirectory directory;
  write_file_atomically(directory / "x", "old");
  fs::permissions(directory / "x", fs::perms::owner_read | fs::perms::owner_write);
  write_file_atomically(directory / "x", "new");
  EXPECT_EQ(fs::status(directory / "x").permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST(AtomicFile, RefusesWhatNoFileCanReplace) {
  const TemporaryDirectory directory;
  fs::create_symlink("b", directory / "a");
  fs::create_symlink("a", directory / "b");
  EXPECT_EQ(user_error_of([&] { AtomicFile file(directory / "a"); }),
            directory / "a: cannot follow the link: Too many levels of symbolic links");
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {AF_UNIX, {}};
  (directory / "socket").copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(user_error_of([&] { AtomicFile file(directory / "socket"); }),
            directory / "socket: is a socket, but a file is to be written");
  ::close(socket);
}

TEST(AtomicFile, APipeIsWrittenThroughAndStays) {
  const TemporaryDirectory directory;
  const std::string pipe = directory / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] {
    std::ifstream in(pipe);
    got.assign(std::istreambuf_iterator<char>(in), {});
  });
  write_file_atomically(pipe, "abc");
  reader.join();
  EXPECT_EQ(got, "abc");
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_EQ(names_in(directory.path()), std::set<std::string>{"pipe"});
  EXPECT_EQ(user_error_of([&] { AtomicFile(pipe).temporary_path(); }),
            pipe + ": is a pipe or a device, but this needs a regular file");
}

// As with --output /dev/stdout >>FILE: the old content stays, and what is written to the descriptor later follows.
TEST(AtomicFile, AnOpenDescriptorIsWrittenAtItsPosition) {
  const TemporaryDirectory directory;
  write_file_atomically(directory / "x", "old ");
  const int descriptor = ::open((directory / "x").c_str(), O_WRONLY);
  ::lseek(descriptor, 0, SEEK_END);
  write_file_atomically("/dev/fd/" + std::to_string(descriptor), "new ");
  EXPECT_EQ(::write(descriptor, "last", 4), 4);
  ::close(descriptor);
  EXPECT_EQ(read_file(directory / "x"), "old new last");
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

TEST(AtomicDirectory, FollowsLinksAndReplacesNoFile) {
  const TemporaryDirectory parent;
  fs::create_directory(parent / "target");
  write_file_atomically(parent / "target/old", "old");
  fs::create_symlink("target", parent / "link");
  AtomicDirectory directory(parent / "link");
  write_file_atomically(directory.path() + "/new", "new");
  directory.commit();
  EXPECT_TRUE(fs::is_symlink(parent / "link"));
  EXPECT_EQ(names_in(parent / "target"), std::set<std::string>{"new"});
  write_file_atomically(parent / "file", "abc");
  EXPECT_EQ(user_error_of([&] { AtomicDirectory other(parent / "file"); }),
            parent / "file: is a file, but a directory is to be written");
  EXPECT_EQ(read_file(parent / "file"), "abc");
}

TEST(InputFile, RefusesWhatIsNotARegularFile) {
  const TemporaryDirectory directory;
  EXPECT_EQ(user_error_of([&] { InputFile file(directory.path()); }),
            directory.path() + ": is a directory, but a file is needed");
  EXPECT_EQ(user_error_of([&] { InputFile file(directory / "x"); }),
            directory / "x: cannot open: No such file or directory");
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(user_error_of([&] { InputFile file(directory / "pipe"); }),
            directory / "pipe: is not a regular file, but a file is needed");
}

TEST(InputFile, NamesAreShownWithoutControlCharacters) {
  EXPECT_EQ(user_error_of([&] { InputFile file("no\n\x1b[31m"); }),
            "no\\n\\x1b[31m: cannot open: No such file or directory");
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
