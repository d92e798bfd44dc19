// What training needs of the other ranks, and no more. single.cpp: one process; mpi.cpp: MPI on the CPU.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

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
  // values[i] = sum over ranks, the same bits on every rank and in every run (a fixed order of addition).
  virtual void all_reduce_sum(float* values, std::int64_t count) = 0;
  virtual void all_reduce_sum(double* values, std::int64_t count) = 0;
  virtual void broadcast(void* bytes, std::int64_t count, int root) = 0;
  virtual void barrier() = 0;
  // True on every rank when any rank says true.
  virtual bool any(bool mine) = 0;
};

// Host memory, in bytes, that the collectives of one of `ranks` ranks hold beside the caller's buffers.
std::size_t communicator_workspace_bytes(int ranks);

// The communicator of this process: MPI's world under mpirun or srun, otherwise single. `argc` and `argv` as main's.
// The returned object finalises MPI when destroyed in peace; destroyed by an exception on its way up, it ends every
// rank, for the others may be waiting for this one. So main prints the error inside the communicator's lifetime and
// calls abort_all_ranks with the exit code it wants.
std::unique_ptr<Communicator> make_communicator(int* argc, char*** argv);
std::unique_ptr<Communicator> make_single_communicator();

// Ends every rank at once with this exit code (MPI_Abort); returns only in a single process.
void abort_all_ranks(int exit_code);

}  // namespace longstride
