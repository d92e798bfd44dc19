// Work with files on a thread that other ranks wait for. A disk may take as long as it likes: meanwhile the rank counts
// as working, so the watchdog does not end the job, and now and then a line names the path.
#pragma once
#include <condition_variable>
#include <list>
#include <mutex>
#include <string>
#include <thread>

#include "framework/comm/communicator.h"

namespace longstride {

struct FileWorkEntry;

// The thread works with `path` until this is destroyed; any thread may. Without a FileWorkWatch it does nothing.
class FileWork {
 public:
  explicit FileWork(std::string path);
  ~FileWork();
  FileWork(const FileWork&) = delete;
  FileWork& operator=(const FileWork&) = delete;

 private:
  std::list<FileWorkEntry>::iterator entry_;
};

// A thread that speaks for this rank while this process works with files: it gives `comm` signs of life, and every
// `say_every` seconds says what the process is waiting for.
class FileWorkWatch {
 public:
  explicit FileWorkWatch(Communicator& comm, double say_every = 60);
  ~FileWorkWatch();
  FileWorkWatch(const FileWorkWatch&) = delete;
  FileWorkWatch& operator=(const FileWorkWatch&) = delete;

 private:
  void watch(double say_every);

  Communicator& comm_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace longstride
