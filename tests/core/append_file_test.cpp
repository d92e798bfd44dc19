#include "framework/core/files/append_file.h"

#include <functional>

#include "framework/core/files/files.h"
#include "tests/support/temporary_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryDirectory;
using testing::user_error_of;

TEST(AppendFile, KeepsWhatWasThere) {
  const TemporaryDirectory directory;
  write_file_atomically(directory / "x", "a\n");
  AppendFile file(directory / "x");
  file.append("b\n");
  file.append("c\n");
  file.flush();
  EXPECT_EQ(read_file(directory / "x"), "a\nb\nc\n");
}

TEST(AppendFile, ALineThatDoesNotFitIsNotWrittenInPart) {
  const TemporaryDirectory directory;
  AppendFile file(directory / "x");
  file.append(std::string(900, 'a'));
  const std::string message = testing::user_error_with_file_limit(1000, [&] { file.append(std::string(200, 'b')); });
  EXPECT_EQ(message, directory / "x: cannot write: File too large");
  EXPECT_EQ(read_file(directory / "x"), std::string(900, 'a'));
}

TEST(AppendFile, NoticesThatItIsNoLongerTheFileAtItsPath) {
  const TemporaryDirectory directory;
  const std::string path = directory / "run/x",
                    sentence = ": was removed, renamed or replaced while it was being written";
  const auto after = [&](const std::function<void()>& change) {
    fs::remove_all(directory / "run");
    fs::create_directory(directory / "run");
    AppendFile file(path);
    file.append("a");
    change();
    return user_error_of([&] { file.append("b"); });
  };
  EXPECT_EQ(after([&] { fs::remove(path); }), path + sentence);
  EXPECT_EQ(after([&] { fs::remove_all(directory / "run"); }), path + sentence);
  EXPECT_EQ(after([&] { fs::rename(directory / "run", directory / "moved"); }), path + sentence);
  EXPECT_EQ(read_file(directory / "moved/x"), "a");
  EXPECT_EQ(after([&] { write_file_atomically(path, "other"); }), path + sentence);
  EXPECT_EQ(read_file(path), "other");
  EXPECT_EQ(after([] {}), "");
}

TEST(AppendFile, NoticesADirectoryThatIsNoLongerWritable) {
  if (::geteuid() == 0) GTEST_SKIP() << "root can write anywhere";
  const TemporaryDirectory directory;
  AppendFile file(directory / "x");
  fs::permissions(directory.path(), fs::perms::owner_read | fs::perms::owner_exec);
  const std::string message = user_error_of([&] { file.append("a"); });
  fs::permissions(directory.path(), fs::perms::owner_all);
  EXPECT_EQ(message, directory.path() + ": cannot write to the directory any longer: Permission denied");
}

}  // namespace
}  // namespace longstride
