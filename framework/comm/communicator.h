// Communication between ranks through host memory. single.cpp: one process; mpi.cpp: MPI. Exchanges on the memory that
// training computes in, including a GPU's, are in collectives.h.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

namespace longstride {

// The network or the MPI library failed; the message names the rank, its host and the call.
class CommunicationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string host() const = 0;
  // This rank's index among the ranks on its host, and their number.
  virtual int local_rank() const = 0;
  virtual int local_size() const = 0;
  // values[i] = sum over ranks, the same bits on every rank and in every run (a fixed order of addition).
  virtual void all_reduce_sum(float* values, std::int64_t count) = 0;
  virtual void all_reduce_sum(double* values, std::int64_t count) = 0;
  // The same for size() pieces of `each` values; every rank gets only its own piece, in place.
  virtual void reduce_scatter_sum(float* values, std::int64_t each) = 0;
  virtual void reduce_scatter_sum(double* values, std::int64_t each) = 0;
  // size() pieces of `each` bytes: every rank has its own in place before, and all after.
  virtual void all_gather(void* bytes, std::int64_t each) = 0;
  // Piece r of `from` becomes piece rank() of rank r's `to`; pieces of `each` bytes.
  virtual void all_to_all(const void* from, void* to, std::int64_t each) = 0;
  virtual void broadcast(void* bytes, std::int64_t count, int root) = 0;
  // Returns the root's text on every rank.
  std::string broadcast_text(std::string text, int root) {
    auto length = static_cast<std::int64_t>(text.size());
    broadcast(&length, sizeof(length), root);
    text.resize(static_cast<std::size_t>(length));
    broadcast(text.data(), length, root);
    return text;
  }
  virtual void barrier() = 0;
  // True on every rank if `mine` is true on any.
  virtual bool any(bool mine) = 0;
  // The ranks of one colour, in their current order. Every rank calls it. This communicator must outlive the result.
  virtual std::unique_ptr<Communicator> split(int colour) = 0;

  // The watchdog's thread may call these:
  // Collective operations that this rank has entered. All ranks enter the same ones in the same order, so the rank with
  // the smallest number is the one that the others wait for.
  std::int64_t entered() const { return entered_.load(std::memory_order_relaxed); }
  // Grows with every sign that this rank is working: a collective operation entered, or a call to still_working(),
  // which long work between two of them makes now and then.
  std::int64_t signs_of_life() const { return signs_.load(std::memory_order_relaxed); }
  void still_working() { signs_.fetch_add(1, std::memory_order_relaxed); }
  // A failure that the network library has noticed but that no call has returned yet; empty: none.
  std::string pending_error() {
    std::lock_guard lock(mutex_);
    return ask_ ? ask_() : std::string();
  }
  // `ask` returns such failures; it is called from the watchdog's thread. Null: nothing to ask.
  void set_error_source(std::function<std::string()> ask) {
    std::lock_guard lock(mutex_);
    ask_ = std::move(ask);
  }

 protected:
  // Every collective operation begins with this call.
  void enter() {
    entered_.fetch_add(1, std::memory_order_relaxed);
    still_working();
  }

 private:
  std::atomic<std::int64_t> entered_ = 0, signs_ = 0;
  std::mutex mutex_;
  std::function<std::string()> ask_;
};

// Bytes of host memory that each of `ranks` ranks needs for collectives, in addition to the caller's buffers.
std::size_t communicator_workspace_bytes(int ranks);

// The communicator of this process: MPI's world under mpirun or srun, otherwise single. `argc` and `argv` are main's.
// The returned object finalises MPI when destroyed normally. Destroyed while an exception propagates, it ends every
// rank, because the others may be waiting for this one. So main prints the error within the communicator's lifetime and
// calls abort_all_ranks with its exit code.
std::unique_ptr<Communicator> make_communicator(int* argc, char*** argv);
std::unique_ptr<Communicator> make_single_communicator();

// Ends every rank at once with this exit code (MPI_Abort); returns only in a single process.
void abort_all_ranks(int exit_code);

}  // namespace longstride
