#include "tests/emulated/machine/block.h"

#include <bit>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/emulated/machine/context.h"
#include "tests/emulated/machine/products.h"

extern "C" {
alignas(1024) thread_local char longstride_emulated_shared_memory[228 * 1024];
}

namespace longstride::emulated {
namespace {

// How often threads that poll have looked again since an mbarrier's last phase.
constexpr unsigned most_looks = 100;
unsigned looks = 0;

// Without divisions: they took longer than what a thread does between two waits.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : random_(seed) {}
  unsigned below(std::size_t count) { return static_cast<unsigned>((random_() >> 32) * count >> 32); }
  bool chance(unsigned one_in) { return below(one_in) == 0; }

 private:
  std::mt19937_64 random_;
};

struct Fiber {
  std::unique_ptr<Context> context;
  Index3 index;
  unsigned registers = 0;
  // Asynchronous copies: how many are under way in the open group, and in each committed one.
  std::shared_ptr<int> open = std::make_shared<int>(0);
  std::deque<std::shared_ptr<int>> groups;
};

struct Barrier {
  unsigned arrivals = 0, missing = 0, phase = 0;
  std::int64_t bytes = 0;  // announced less received
  void settle(const void* place) {
    if (missing > 0 || bytes != 0) return;
    ++phase;
    missing = arrivals;
    looks = 0;
    announce(place);
  }
};

struct Meeting {
  unsigned arrived = 0, phase = 0;
  std::array<Words, 32> words[2];  // words of this phase, and of the one before, which some may still read
};

class Block {
 public:
  Block(Index3 block, Index3 threads, std::uint64_t seed, const std::function<void()>& kernel)
      : index(block),
        kernel_(kernel),
        draws_(seed),
        fibers_(threads.x * threads.y),
        waits_at_(fibers_.size(), nullptr),
        ready_((fibers_.size() + 63) / 64, 0) {
    for (unsigned i = 0; i < this->threads(); ++i) {
      fibers_[i].context = std::make_unique<Context>(&Block::begin);
      fibers_[i].index = {i % threads.x, i / threads.x, 0};
      fibers_[i].registers = 65536 / threads_in_warpgroups() / 8 * 8;
      ready_[i / 64] |= std::uint64_t{1} << i % 64;
    }
  }
  void run();
  Fiber& fiber() { return fibers_[current]; }
  // The running thread continues when something is announced there.
  void wait_at(const void* place) {
    waits_at_[current] = place;
    ready_[current / 64] &= ~(std::uint64_t{1} << current % 64);
    main_.continue_after(*fiber().context);
  }
  void announce(const void* place) {
    const void** const waits_at = waits_at_.data();
    const unsigned count = threads();
    for (unsigned i = 0; i < count; ++i) {
      if (waits_at[i] != place && waits_at[i] != this) continue;
      waits_at[i] = nullptr;
      ready_[i / 64] |= std::uint64_t{1} << i % 64;
    }
  }
  unsigned threads() const { return static_cast<unsigned>(fibers_.size()); }
  unsigned threads_in_warpgroups() const { return (threads() + 127) / 128 * 128; }

  Index3 index;
  unsigned current = 0;
  std::unordered_map<const void*, Barrier> barriers;
  std::map<std::pair<unsigned, unsigned>, Meeting> meetings;  // by warp and lanes
  std::map<int, std::pair<unsigned, unsigned>> named;         // arrived, phase
  std::map<const void*, std::deque<std::function<void()>>> queues;
  std::vector<std::function<void()>> unordered;
  unsigned free_registers = 0;

 private:
  static void begin();
  void find_ready(std::vector<unsigned>& ready) const;
  bool lags(unsigned which, const std::vector<unsigned>& ready);
  void look_again();
  bool act();  // one asynchronous action, if there is any

  const std::function<void()>& kernel_;
  Draws draws_;
  std::vector<Fiber> fibers_;
  std::vector<const void*> waits_at_;  // null: may continue
  std::vector<std::uint64_t> ready_;   // the same as bits, as they are looked at once per handful of steps
  unsigned ended_ = 0;
  Context main_;
  const bool threads_lag_ = draws_.chance(4);
  unsigned slow_ = 0, slow_thread_ = 0;
  std::exception_ptr error_;
};

Block* running = nullptr;
Index3 grid;

void Block::begin() {
  Block& block = *running;
  try {
    block.kernel_();
  } catch (...) {  // an exception cannot leave a fiber
    block.error_ = std::current_exception();
  }
  ++block.ended_;
  block.wait_at(&block.ended_);  // where nothing is announced
}

bool Block::act() {
  std::size_t waiting = unordered.size();
  for (const auto& [queue, actions] : queues) waiting += actions.empty() ? 0 : 1;
  if (waiting == 0) return false;
  std::size_t which = draws_.below(waiting);
  std::function<void()> action;
  if (which < unordered.size()) {
    std::swap(unordered[which], unordered.back());
    action = std::move(unordered.back());
    unordered.pop_back();
  } else {
    which -= unordered.size();
    for (auto& [queue, actions] : queues) {
      if (actions.empty() || which-- > 0) continue;
      action = std::move(actions.front());
      actions.pop_front();
      break;
    }
  }
  action();
  return true;
}

// Nothing more happens by itself. A thread that polls several barriers may wait at one while another has passed.
void Block::look_again() {
  if (++looks > most_looks) throw std::runtime_error("the block waits for ever");
  announce(this);
}

void Block::find_ready(std::vector<unsigned>& ready) const {
  ready.clear();
  for (unsigned i = 0; i < ready_.size(); ++i)
    for (std::uint64_t bits = ready_[i]; bits != 0; bits &= bits - 1)
      ready.push_back(64 * i + static_cast<unsigned>(std::countr_zero(bits)));
}

// One warpgroup is slow for a while, and in some blocks one thread, for which the others of its warp do not wait.
bool Block::lags(unsigned which, const std::vector<unsigned>& ready) {
  if (draws_.chance(4096)) slow_ = draws_.below(fibers_.size()) / 128;
  if (draws_.chance(4096)) slow_thread_ = draws_.below(fibers_.size());
  const bool others = ready.front() / 128 != slow_ || ready.back() / 128 != slow_;
  if (which / 128 == slow_ && others && !draws_.chance(32)) return true;
  return threads_lag_ && which == slow_thread_ && ready.size() > 1 && !draws_.chance(256);
}

void Block::run() {
  running = this;
  looks = 0;
  std::vector<unsigned> ready;
  for (;;) {
    if (error_) std::rethrow_exception(error_);
    if (ended_ == threads()) break;
    find_ready(ready);
    if (ready.empty() || draws_.chance(256)) {
      if (!act() && ready.empty()) look_again();
      continue;
    }
    // Some of those that may continue, in a random order, before they are counted again.
    for (std::size_t i = 0; i < 1 + ready.size() / 4; ++i) {
      const unsigned which = ready[draws_.below(ready.size())];
      if (lags(which, ready) || waits_at_[which] != nullptr) continue;
      current = which;
      fibers_[which].context->continue_after(main_);
    }
  }
  while (act()) {
  }
  running = nullptr;
}

}  // namespace

void run_grid(Index3 blocks, Index3 threads, std::uint64_t seed, const std::function<void()>& kernel) {
  grid = blocks;
  for (unsigned z = 0; z < blocks.z; ++z)
    for (unsigned y = 0; y < blocks.y; ++y)
      for (unsigned x = 0; x < blocks.x; ++x) {
        forget_products();
        // Earlier blocks leave anything, at worst NaN in every type, and a kernel that multiplies it by zero returns
        // NaN.
        std::memset(longstride_emulated_shared_memory, 0xFF, sizeof(longstride_emulated_shared_memory));
        Block block({x, y, z}, threads, seed * 1000003 + (z * blocks.y + y) * blocks.x + x, kernel);
        block.run();
      }
}

Index3 thread_index() { return running->fiber().index; }
Index3 block_index() { return running->index; }
Index3 grid_size() { return grid; }
unsigned block_threads() { return running->threads(); }

void wait_for(const void* place, const std::function<bool()>& ready) {
  while (!ready()) running->wait_at(place);
}
void announce(const void* place) { running->announce(place); }
void registers_take(unsigned count) {
  unsigned &own = running->fiber().registers, &left = running->free_registers;
  wait_for(&left, [&] { return left + own >= count; });
  left -= count - own;
  own = count;
}
void registers_give(unsigned count) {
  unsigned &own = running->fiber().registers, &left = running->free_registers;
  left += own - count;
  own = count;
  announce(&left);
}
void wait_for_any_event() { running->wait_at(running); }
void later(const void* queue, std::function<void()> action) {
  if (queue == nullptr)
    running->unordered.push_back(std::move(action));
  else
    running->queues[queue].push_back(std::move(action));
}

const std::array<Words, 32>& exchange(Words mine, unsigned lanes) {
  Meeting& meeting = running->meetings[{running->current / 32, lanes}];
  const unsigned phase = meeting.phase;
  std::array<Words, 32>& words = meeting.words[phase % 2];
  words[running->current % 32] = mine;
  if (++meeting.arrived == static_cast<unsigned>(std::popcount(lanes))) {
    meeting.arrived = 0;
    ++meeting.phase;
    announce(&meeting);
  } else {
    wait_for(&meeting, [&] { return meeting.phase != phase; });
  }
  return words;
}
void named_barrier_arrive(int id, unsigned threads) {
  auto& [arrived, phase] = running->named[id];
  if (++arrived < threads) return;
  arrived = 0;
  ++phase;
  announce(&phase);
}
void named_barrier(int id, unsigned threads) {
  const unsigned& phase = running->named[id].second;
  const unsigned mine = phase;
  named_barrier_arrive(id, threads);
  wait_for(&phase, [&] { return phase != mine; });
}

void barrier_create(const void* barrier, unsigned arrivals) { running->barriers[barrier] = {arrivals, arrivals, 0, 0}; }
void barrier_arrive(const void* barrier, std::uint32_t announced_bytes) {
  Barrier& b = running->barriers.at(barrier);
  if (b.missing == 0) throw std::runtime_error("more arrivals than a barrier expects");
  b.bytes += announced_bytes;
  --b.missing;
  b.settle(barrier);
}
void barrier_receive(const void* barrier, std::uint32_t bytes) {
  Barrier& b = running->barriers.at(barrier);
  b.bytes -= bytes;
  b.settle(barrier);
}
bool barrier_has_passed(const void* barrier, std::uint32_t parity) {
  return running->barriers.at(barrier).phase % 2 != parity;
}
void barrier_await(const void* barrier, std::uint32_t parity) {
  wait_for(barrier, [&] { return barrier_has_passed(barrier, parity); });
}

void copy_begins(std::function<void()> action) {
  const std::shared_ptr<int> group = running->fiber().open;
  ++*group;
  later(nullptr, [group, action = std::move(action)] {
    action();
    --*group;
    announce(group.get());
  });
}
void copies_committed() {
  Fiber& fiber = running->fiber();
  fiber.groups.push_back(fiber.open);
  fiber.open = std::make_shared<int>(0);
}
void copies_await(unsigned pending_groups) {
  Fiber& fiber = running->fiber();
  while (fiber.groups.size() > pending_groups) {
    const std::shared_ptr<int> group = fiber.groups.front();
    wait_for(group.get(), [&] { return *group == 0; });
    fiber.groups.pop_front();
  }
}

}  // namespace longstride::emulated
