#include "framework/train/step/prefetcher.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "framework/core/arena.h"
#include "tests/datasets/support.h"

namespace longstride {
namespace {

// Rows that identify themselves; fails at one step.
class Numbered final : public BatchSource {
 public:
  explicit Numbered(std::int64_t bad_step = -1) : bad_step_(bad_step) {}
  std::int64_t context() const override { return 4; }
  std::int64_t epoch_rows() const override { return 100; }
  void read(std::int64_t step, std::int64_t batch, std::int64_t first, const Batch& out) const override {
    if (step == bad_step_) throw user_error("data/x.h5: cannot be read at step {}", step);
    for (std::int64_t r = 0; r < out.rows(); ++r)
      write_row(out, r, Bytes(4, static_cast<std::uint8_t>(step * batch + first + r)).data(), 0, true);
    ++reads;
  }
  mutable std::atomic<int> reads = 0;

 private:
  std::int64_t bad_step_;
};

BatchLayout rows(std::int64_t count) { return {{}, count, 4}; }

TEST(Prefetcher, GivesTheRowsOfEveryStepInOrder) {
  const Numbered source;
  for (int depth : {1, 2, 5}) {
    Prefetcher prefetcher(source, rows(3), 10, 8, 2, depth);
    for (std::int64_t step = 10; step < 60; ++step) {
      const std::uint8_t* rows = prefetcher.next();
      for (std::int64_t i = 0; i < 12; ++i)
        ASSERT_EQ(rows[i], static_cast<std::uint8_t>(step * 8 + 2 + i / 4)) << "depth " << depth << " step " << step;
    }
  }
}

// The result of next() is unchanged until the next call, however long the caller takes.
TEST(Prefetcher, DoesNotWriteOverRowsInUse) {
  const Numbered source;
  Prefetcher prefetcher(source, rows(1), 0, 1, 0, 3);
  EXPECT_EQ(prefetcher.bytes(), 4 * Arena::alignment);  // a buffer in use, and one for every step ahead
  for (int step = 0; step < 5; ++step) {
    const std::uint8_t* rows = prefetcher.next();
    while (source.reads < step + 4) std::this_thread::yield();  // the ring is full again
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_EQ(rows[0], step);
    EXPECT_EQ(source.reads, step + 4) << "reads further ahead than asked";
  }
}

TEST(Prefetcher, RethrowsAtTheStepThatFailed) {
  const Numbered source(12);
  Prefetcher prefetcher(source, rows(1), 10, 1, 0, 4);
  EXPECT_EQ(prefetcher.next()[0], 10);
  EXPECT_EQ(prefetcher.next()[0], 11);
  expect_user_error([&] { prefetcher.next(); }, "at step 12");
  expect_user_error([&] { prefetcher.next(); }, "at step 12");
}

TEST(Prefetcher, EndsWhileItsRingIsFull) {
  const Numbered source;
  for (int i = 0; i < 50; ++i) const Prefetcher prefetcher(source, rows(4), 0, 4, 0, 1 + i % 3);
}

}  // namespace
}  // namespace longstride
