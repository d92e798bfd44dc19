#include "framework/train/step/prefetcher.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "framework/core/errors.h"

namespace longstride {

// Buffer s holds step number s modulo the ring's size. The reader may fill up to `depth` steps beyond the one that
// the caller holds, so the ring has depth + 1 buffers and none is written while it is read.
struct Prefetcher::State {
  State(const BatchSource& batches, std::int64_t step, std::int64_t global, std::int64_t first, std::int64_t count,
        int ahead)
      : source(batches), first_step(step), global_batch(global), first_row(first), rows(count), depth(ahead) {
    const auto size = static_cast<std::size_t>(rows * source.context());
    ring.assign(static_cast<std::size_t>(depth) + 1, std::vector<std::uint8_t>(size));
    thread = std::thread([this] { fill(); });
  }

  ~State() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_all();
    thread.join();
  }

  std::uint8_t* buffer(std::int64_t number) { return ring[static_cast<std::size_t>(number) % ring.size()].data(); }

  void fill() {
    for (std::int64_t number = 0;; ++number) {
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return stopping || number < taken + depth; });
        if (stopping) return;
      }
      std::exception_ptr thrown;
      try {
        source.read(first_step + number, global_batch, first_row, rows, buffer(number));
      } catch (...) {
        thrown = std::current_exception();
      }
      {
        const std::lock_guard lock(mutex);
        if (thrown == nullptr) filled = number + 1;
        failure = thrown;
      }
      changed.notify_all();
      if (thrown != nullptr) return;
    }
  }

  const std::uint8_t* next() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return filled > taken || failure != nullptr; });
    if (filled == taken) std::rethrow_exception(failure);  // what was read before the failure is still good
    const std::int64_t number = taken++;
    lock.unlock();
    changed.notify_all();
    return buffer(number);
  }

  const BatchSource& source;
  const std::int64_t first_step, global_batch, first_row, rows;
  const int depth;
  std::vector<std::vector<std::uint8_t>> ring;
  std::mutex mutex;
  std::condition_variable changed;
  std::int64_t filled = 0;  // steps read, counted from first_step
  std::int64_t taken = 0;   // steps handed to the caller, who may still be reading the last of them
  std::exception_ptr failure;
  bool stopping = false;
  std::thread thread;
};

Prefetcher::Prefetcher(const BatchSource& source, std::int64_t first_step, std::int64_t global_batch,
                       std::int64_t first_row, std::int64_t rows, int depth) {
  LONGSTRIDE_CHECK(rows > 0 && depth > 0, "{} rows, {} steps ahead", rows, depth);
  state_ = std::make_unique<State>(source, first_step, global_batch, first_row, rows, depth);
}

Prefetcher::~Prefetcher() = default;

const std::uint8_t* Prefetcher::next() { return state_->next(); }

}  // namespace longstride
