#include "framework/train/step/prefetcher.h"

#include <utility>

#include "framework/core/arena.h"
#include "framework/core/errors.h"

namespace longstride {

Prefetcher::Prefetcher(const BatchSource& source, const BatchLayout& layout, std::int64_t first_step,
                       std::int64_t global_batch, std::int64_t first_row, int depth)
    : Prefetcher(
          source, layout.bytes(), first_step,
          [=](std::int64_t) {
            return StepRows{layout, global_batch, first_row};
          },
          depth) {}

Prefetcher::Prefetcher(const BatchSource& source, std::size_t bytes, std::int64_t first_step, RowsOf rows_of, int depth)
    : source_(source),
      first_step_(first_step),
      rows_of_(std::move(rows_of)),
      depth_(depth),
      buffer_bytes_(Arena::rounded(bytes)),
      ring_(Device::cpu, bytes_of(bytes, depth)) {
  thread_ = std::thread([this] { fill(); });
}

std::size_t Prefetcher::bytes_of(std::size_t bytes, int depth) {
  LONGSTRIDE_CHECK(bytes > 0 && depth > 0, "{} bytes, {} steps ahead", bytes, depth);
  return (static_cast<std::size_t>(depth) + 1) * Arena::rounded(bytes);
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Prefetcher::fill() {
  for (std::int64_t number = 0;; ++number) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || number < taken_ + depth_; });
      if (stopping_) return;
    }
    std::exception_ptr thrown;
    try {
      const StepRows rows = rows_of_(first_step_ + number);
      LONGSTRIDE_CHECK(rows.layout.bytes() <= buffer_bytes_, "{} bytes of step {}", rows.layout.bytes(),
                       first_step_ + number);
      source_.read(first_step_ + number, rows.global_batch, rows.first_row, rows.layout.at(buffer(number)));
    } catch (...) {
      thrown = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      if (thrown == nullptr) filled_ = number + 1;
      failure_ = thrown;
    }
    changed_.notify_all();
    if (thrown != nullptr) return;
  }
}

const std::uint8_t* Prefetcher::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return filled_ > taken_ || failure_ != nullptr; });
  if (filled_ == taken_) std::rethrow_exception(failure_);  // rows read before the failure are still valid
  const std::int64_t number = taken_++;
  lock.unlock();
  changed_.notify_all();
  return reinterpret_cast<const std::uint8_t*>(buffer(number));
}

}  // namespace longstride
