// Two processes never train into one directory, and a lock left behind by a killed process does not block others.
#include "framework/train/run/run_lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>
#include <vector>

#include "tests/support/poor_disk.h"
#include "tests/support/temporary_directory.h"

namespace longstride {
namespace {

using testing::TemporaryDirectory;
using testing::user_error_of;

constexpr RunLockTiming quick{0.02, 0.2};

void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// Waits until the condition holds, for at most a few seconds: other programs may delay a thread.
template <class F>
bool soon(F&& holds) {
  for (int i = 0; i < 1000 && !holds(); ++i) sleep_for(0.01);
  return holds();
}

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A lock as a process on another host would have left it.
std::string lock_of_another_host(int beat) {
  return "longstride lock\nhost node9\nprocess 1\nbegan 5\nmachine elsewhere\ntoken abc\nbeat " + std::to_string(beat) +
         "\n";
}

// On a good disk and on one without hard links.
class RunLockTest : public ::testing::TestWithParam<bool> {
 protected:
  RunLockTest() {
    if (GetParam()) poor.emplace();
  }
  // As other processes do: never half a lock.
  void put(const std::string& text) const {
    std::ofstream(lock + ".new") << text;
    std::filesystem::rename(lock + ".new", lock);
  }
  // A child that holds the lock until it is killed.
  pid_t holder() const {
    const pid_t child = ::fork();
    if (child == 0) {
      const RunLock held(directory.path(), quick);
      for (;;) ::pause();
    }
    soon([&] { return text_of(lock).find("beat") != std::string::npos; });
    return child;
  }

  std::optional<testing::PoorDisk> poor;
  TemporaryDirectory directory;
  const std::string lock = directory / "lock";
};

TEST_P(RunLockTest, ASecondProcessIsRefusedWithTheNameOfTheFirst) {
  const pid_t child = holder();
  const std::string message = user_error_of([&] { RunLock(directory.path(), quick); });
  EXPECT_EQ(message.find(directory.path() + ": process " + std::to_string(child) + " on "), 0u) << message;
  EXPECT_NE(message.find("is training into it; wait until it has ended or stop it"), std::string::npos) << message;
  ::kill(child, SIGSTOP);  // a stopped process still holds its lock
  EXPECT_NE(user_error_of([&] { RunLock(directory.path(), quick); }), "");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_P(RunLockTest, TheLockOfAKilledProcessIsTakenAtOnce) {
  const pid_t child = holder();
  ::kill(child, SIGKILL);
  siginfo_t end;
  ::waitid(P_PID, static_cast<id_t>(child), &end, WEXITED | WNOWAIT);  // the child stays a zombie, which counts as gone
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(user_error_of([&] { RunLock(directory.path(), RunLockTiming{3, 20}); }), "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  ::waitpid(child, nullptr, 0);
}

// An earlier process with this one's number has ended.
TEST_P(RunLockTest, TheLockOfAnEarlierProcessOfTheSameNumberIsTakenAtOnce) {
  std::string text;
  {
    const RunLock held(directory.path(), quick);
    text = text_of(lock);
  }
  const std::size_t began = text.find("began ") + 6;
  text.replace(began, text.find('\n', began) - began, "1");
  put(text);
  EXPECT_EQ(user_error_of([&] { RunLock(directory.path(), RunLockTiming{3, 20}); }), "");
}

TEST_P(RunLockTest, ItIsReleasedAndLeavesNothing) {
  { const RunLock held(directory.path(), quick); }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  EXPECT_EQ(user_error_of([&] { RunLock(directory.path(), quick); }), "");
}

TEST_P(RunLockTest, AnotherHostsLockIsTakenOnlyWhenItShowsNoSignOfLife) {
  put(lock_of_another_host(7));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(user_error_of([&] { RunLock(directory.path(), quick); }), "");
  EXPECT_GT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(190));

  put(lock_of_another_host(0));
  std::atomic<bool> done = false;
  std::thread alive([&] {
    for (int beat = 1; !done; ++beat, sleep_for(0.02)) put(lock_of_another_host(beat));
  });
  const std::string message = user_error_of([&] { RunLock(directory.path(), RunLockTiming{0.02, 20}); });
  done = true;
  alive.join();
  EXPECT_NE(message.find("process 1 on node9 is training into it"), std::string::npos) << message;
}

TEST_P(RunLockTest, GarbageIsALockThatShowsNoSignOfLife) {
  for (const std::string& text : {std::string(), std::string(10000, 'x'), std::string("process 1\nbeat\n\xff")}) {
    put(text);
    EXPECT_EQ(user_error_of([&] { RunLock(directory.path(), quick); }), "") << text.size();
  }
}

TEST_P(RunLockTest, AProcessWhoseLockWasTakenNoticesAndLeavesTheOthersAlone) {
  {
    const RunLock held(directory.path(), quick);
    held.check();
    EXPECT_TRUE(held.held());
    put(lock_of_another_host(1));
    EXPECT_FALSE(held.held());  // at once
    EXPECT_TRUE(soon([&] { return user_error_of([&] { held.check(); }) != ""; }));
    EXPECT_NE(user_error_of([&] { held.check(); }).find("another process has taken over the run"), std::string::npos);
  }
  EXPECT_EQ(text_of(lock), lock_of_another_host(1));
}

// Whenever it is taken, even between a beat's look at the lock and its write.
TEST_P(RunLockTest, ABeatNeverOverwritesTheLockOfAnother) {
  for (int i = 0; i < 50; ++i) {
    const RunLock held(directory.path(), RunLockTiming{1e-6, 0.2});
    sleep_for(1e-4 * (i % 10));
    put(lock_of_another_host(i));
    ASSERT_TRUE(soon([&] { return user_error_of([&] { held.check(); }) != ""; })) << i;
    ASSERT_EQ(text_of(lock), lock_of_another_host(i));
    std::filesystem::remove(lock);
  }
}

TEST_P(RunLockTest, ADeletedLockIsCreatedAgain) {
  const RunLock held(directory.path(), quick);
  std::filesystem::remove(lock);
  EXPECT_TRUE(soon([&] { return std::filesystem::exists(lock); }));
  held.check();
}

// Such as EIO and ESTALE of a file server. Here the directory's name leads in a circle for a while.
TEST_P(RunLockTest, ADirectoryThatCannotBeExaminedEndsNothing) {
  const std::string run = directory / "run", aside = directory / "aside";
  std::filesystem::create_directory(run);
  const RunLock held(run, quick);
  std::filesystem::rename(run, aside);
  std::filesystem::create_symlink("run", run);
  sleep_for(20 * quick.beat);
  held.check();
  std::filesystem::remove(run);
  std::filesystem::rename(aside, run);
  const std::string before = text_of(run + "/lock");
  EXPECT_TRUE(soon([&] { return text_of(run + "/lock") != before; }));
  held.check();
}

// Twenty processes find the same stale lock at once; the winner keeps it until the others have given up.
TEST_P(RunLockTest, OneOfManyProcessesTakesAStaleLock) {
  const pid_t dead = holder();
  ::kill(dead, SIGKILL);
  ::waitpid(dead, nullptr, 0);
  int gate[2];
  ASSERT_EQ(::pipe(gate), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < 20; ++i) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    ::close(gate[1]);
    bool kept = false;
    user_error_of([&] {
      const RunLock held(directory.path(), quick);
      char nothing;
      const bool opened = ::read(gate[0], &nothing, 1) == 0;
      held.check();
      kept = opened;
    });
    ::_exit(kept ? 0 : 1);
  }
  int winners = 0;
  const auto reap = [&] {
    std::erase_if(children, [&](pid_t child) {
      int status = 0;
      if (::waitpid(child, &status, WNOHANG) != child) return false;
      winners += WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 1 : 0;
      return true;
    });
    return children.size();
  };
  EXPECT_TRUE(soon([&] { return reap() <= 1; }));
  ::close(gate[1]);
  EXPECT_TRUE(soon([&] { return reap() == 0; }));
  ::close(gate[0]);
  EXPECT_EQ(winners, 1);
}

// Without hard links a new lock has a name before it has content.
TEST_P(RunLockTest, ALockThatIsStillEmptyIsNotTaken) {
  put("");
  std::thread other([&] {
    sleep_for(5 * quick.beat);
    put(lock_of_another_host(1));
    for (int beat = 2; beat < 50; ++beat, sleep_for(quick.beat)) put(lock_of_another_host(beat));
  });
  const std::string message = user_error_of([&] { RunLock(directory.path(), RunLockTiming{0.02, 20}); });
  other.join();
  EXPECT_NE(message.find("process 1 on node9 is training into it"), std::string::npos) << message;
}

TEST_P(RunLockTest, AMissingDirectoryIsAnError) {
  EXPECT_NE(user_error_of([&] { RunLock(directory / "none", quick); }), "");
}

INSTANTIATE_TEST_SUITE_P(On, RunLockTest, ::testing::Bool(),
                         [](const auto& instance) { return instance.param ? "poor_disk" : "good_disk"; });

}  // namespace
}  // namespace longstride
