// A thread block of a GPU, emulated on the CPU, so that a Hopper kernel's source runs without one: the headers under
// include/ stand in for CUDA's and for kernels/gpu, and call what is declared here. Every thread is a fiber, and
// wherever one waits, one of those that may continue is picked at random. Copies by TMA and matrix products happen at
// random times after they were started. So what a kernel forgets to wait for, it will miss in some order, and a block
// in which no thread may continue is reported.
#pragma once
#include <array>
#include <cstdint>
#include <functional>

namespace longstride::emulated {

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

// Runs a kernel for every block of a grid, one after the other. Throws std::runtime_error if a block does not end.
// seed: of the order of events.
void run_grid(Index3 blocks, Index3 threads, std::uint64_t seed, const std::function<void()>& kernel);

// Index of the running thread, whose number in its block is x + y times the block's width.
Index3 thread_index();
Index3 block_index();
unsigned block_threads();
Index3 grid_size();

// The running thread continues once `ready` is true. What makes it true is announced at `place`.
void wait_for(const void* place, const std::function<bool()>& ready);
void announce(const void* place);
// Waits for any event, so that a thread which polls gives the others time.
void wait_for_any_event();
// Does this at a random time from now on. What begins with the same `queue` (not null) keeps its order.
void later(const void* queue, std::function<void()> action);

// Exchanges words among those threads of the running thread's warp that `lanes` names, all of which call it. The result
// lasts until the running thread's next exchange.
using Words = std::array<std::uint64_t, 5>;
const std::array<Words, 32>& exchange(Words mine, unsigned lanes = ~0u);
// bar.sync, bar.arrive
void named_barrier(int id, unsigned threads);
void named_barrier_arrive(int id, unsigned threads);

// Registers of the running thread, from what a block leaves over. At first every thread has as many as fit.
void registers_take(unsigned count);
void registers_give(unsigned count);

// ---- mbarriers ----
void barrier_create(const void* barrier, unsigned arrivals);
void barrier_arrive(const void* barrier, std::uint32_t announced_bytes);
void barrier_receive(const void* barrier, std::uint32_t bytes);
bool barrier_has_passed(const void* barrier, std::uint32_t parity);
void barrier_await(const void* barrier, std::uint32_t parity);

// ---- Asynchronous copies by the running thread, in groups ----
void copy_begins(std::function<void()> action);
void copies_committed();
void copies_await(unsigned pending_groups);

}  // namespace longstride::emulated
