#include "framework/core/files/temporaries.h"

#include <sys/wait.h>

#include <set>

#include "framework/core/files/files.h"
#include "tests/support/temporary_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
using testing::names_in;
using testing::TemporaryDirectory;

// Runs a process that ends while writing a file; returns the name that it leaves behind. It stays a zombie if it is not
// reaped.
std::string left_by_a_kill(const std::string& path, bool reaped = true) {
  const pid_t child = ::fork();
  if (child == 0) {
    AtomicFile file(path);
    file.write("abc", 3);
    ::_exit(0);
  }
  siginfo_t end = {};
  ::waitid(P_PID, static_cast<id_t>(child), &end, WEXITED | (reaped ? 0 : WNOWAIT));
  const std::string own = std::to_string(::getpid());
  std::string name = temporary_path(path);
  return fs::path(name.replace(name.rfind(own), own.size(), std::to_string(child))).filename();
}

void make_older(const std::string& path, int hours) {
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
}

TEST(Temporaries, ThoseOfEndedProcessesAreRemovedAtTheNextFile) {
  const TemporaryDirectory directory;
  const std::string left = left_by_a_kill(directory / "x");
  EXPECT_EQ(names_in(directory.path()), std::set<std::string>{left});
  write_file_atomically(directory / "y", "abc");
  EXPECT_EQ(names_in(directory.path()), std::set<std::string>{"y"});
}

// As under a parent that never asks how its children ended, such as the first process of many containers.
TEST(Temporaries, ThoseOfZombiesAreRemovedAtTheNextFile) {
  const TemporaryDirectory directory;
  const std::string left = left_by_a_kill(directory / "x", false);
  EXPECT_EQ(names_in(directory.path()), std::set<std::string>{left});
  write_file_atomically(directory / "y", "abc");
  EXPECT_EQ(names_in(directory.path()), std::set<std::string>{"y"});
  int status = 0;
  while (::wait(&status) > 0) {
  }
}

TEST(Temporaries, ThoseOfOtherHostsAreRemovedAfterADay) {
  const TemporaryDirectory directory;
  write_file_atomically(directory / ".tmp-x-1@elsewhere", "abc");
  write_file_atomically(directory / ".tmp-y-1@elsewhere", "abc");
  make_older(directory / ".tmp-x-1@elsewhere", 23);
  make_older(directory / ".tmp-y-1@elsewhere", 25);
  fs::create_directory(directory / "seen");
  remove_abandoned_temporaries(directory / "seen/..");
  EXPECT_EQ(names_in(directory.path()), (std::set<std::string>{".tmp-x-1@elsewhere", "seen"}));
}

TEST(Temporaries, ThoseOfLivingProcessesAndOtherNamesStay) {
  const TemporaryDirectory directory;
  AtomicFile own(directory / "x");
  const std::string parents =
      ".tmp-y-" + std::to_string(::getppid()) + own.temporary_path().substr(own.temporary_path().rfind('@'));
  const std::set<std::string> others = {parents,           ".tmp-notes", ".tmp-4242", ".tmp-x-@host",
                                        ".tmp-x-12a@host", "x-1@host",   ".tmp-x-17"};
  for (const std::string& name : others) {
    write_file_atomically(directory / name, "abc");
    make_older(directory / name, 100);
  }
  make_older(own.temporary_path(), 100);  // as of a program that waits for its input over the weekend
  fs::create_directory(directory / "seen");
  remove_abandoned_temporaries(directory / "seen/..");
  std::set<std::string> expected = others;
  expected.insert({"seen", fs::path(own.temporary_path()).filename()});
  EXPECT_EQ(names_in(directory.path()), expected);
}

TEST(Temporaries, ALongNameGetsOneThatFits) {
  const TemporaryDirectory directory;
  const std::string path = directory / std::string(255, 'a');
  write_file_atomically(path, "abc");
  EXPECT_EQ(read_file(path), "abc");
}

TEST(RemoveTemporaries, TakesAllOfThemAndNothingElse) {
  const TemporaryDirectory directory;
  fs::create_directories(directory / ".tmp-step-00000010-4242@elsewhere/deep");
  write_file_atomically(directory / ".tmp-step-00000010-4242@elsewhere/deep/x", "abc");
  write_file_atomically(directory / ".tmp-state.json-17", "abc");
  write_file_atomically(directory / "kept", "abc");
  remove_temporaries(directory.path());
  EXPECT_EQ(names_in(directory.path()), std::set<std::string>{"kept"});
  EXPECT_NO_THROW(remove_temporaries(directory / "none"));
}

}  // namespace
}  // namespace longstride
