// Reads this rank's rows ahead of training, in one thread, into a ring of buffers.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "framework/core/batch_source.h"

namespace longstride {

class Prefetcher {
 public:
  // Reads rows [first_row, first_row + rows) of each global batch, starting at `first_step`, up to `depth` steps ahead.
  Prefetcher(const BatchSource& source, std::int64_t first_step, std::int64_t global_batch, std::int64_t first_row,
             std::int64_t rows, int depth = 2);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  // The rows of the next step, (rows, context) bytes; valid until the next call. Rethrows what reading threw.
  const std::uint8_t* next();

 private:
  void fill();
  std::uint8_t* buffer(std::int64_t number) { return ring_[static_cast<std::size_t>(number) % ring_.size()].data(); }

  const BatchSource& source_;
  const std::int64_t first_step_, global_batch_, first_row_, rows_;
  const int depth_;
  // Buffer s holds step number s modulo the ring's size. The reader may fill up to `depth` steps beyond the one that
  // the caller holds, so the ring has depth + 1 buffers and none is written while it is being read.
  std::vector<std::vector<std::uint8_t>> ring_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t filled_ = 0;  // steps read, counted from first_step
  std::int64_t taken_ = 0;   // steps handed to the caller, which may still be reading the last of them
  std::exception_ptr failure_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace longstride
