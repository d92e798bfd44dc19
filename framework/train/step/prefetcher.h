// Reads this rank's rows ahead of training, in one thread, into a ring of buffers.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "framework/core/batch_source.h"
#include "framework/core/device/memory.h"

namespace longstride {

// A rank's rows of a step.
struct StepRows {
  BatchLayout layout;
  std::int64_t global_batch = 0, first_row = 0;
};

class Prefetcher {
 public:
  // Reads the rows of each step from `first_step` on, up to `depth` steps ahead, in layouts of at most `bytes`.
  using RowsOf = std::function<StepRows(std::int64_t step)>;
  Prefetcher(const BatchSource& source, std::size_t bytes, std::int64_t first_step, RowsOf rows_of, int depth = 2);
  // Every step has the same number of rows.
  Prefetcher(const BatchSource& source, const BatchLayout& layout, std::int64_t first_step, std::int64_t global_batch,
             std::int64_t first_row, int depth = 2);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  // Bytes that a prefetcher allocates if it reads `depth` steps ahead in layouts of at most `bytes`.
  static std::size_t bytes_of(std::size_t bytes, int depth);
  std::size_t bytes() const { return ring_.bytes(); }
  // The rows of the next step, in the layout; valid until the next call. Rethrows what reading threw.
  const std::uint8_t* next();

 private:
  void fill();
  std::byte* buffer(std::int64_t number) const {
    return ring_.data() + static_cast<std::size_t>(number % (depth_ + 1)) * buffer_bytes_;
  }

  const BatchSource& source_;
  const std::int64_t first_step_;
  const RowsOf rows_of_;
  const int depth_;
  // Buffer s holds step number s modulo the ring's size. The reader may fill up to `depth` steps beyond the one that
  // the caller holds, so the ring has depth + 1 buffers and none is written while it is being read.
  const std::size_t buffer_bytes_;
  const Block ring_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t filled_ = 0;  // steps read, counted from first_step
  std::int64_t taken_ = 0;   // steps handed to the caller, which may still be reading the last of them
  std::exception_ptr failure_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace longstride
