#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <limits>
#include <thread>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/comm/failure.h"
#include "framework/core/errors.h"

namespace longstride {
namespace {

// Bytes of one chunk of an all-reduce: large enough to be bound by bandwidth even when cut into one piece per rank.
constexpr std::size_t chunk_bytes = std::size_t{4} << 20;
constexpr std::size_t least_piece_bytes = std::size_t{64} << 10;
constexpr std::int64_t broadcast_bytes = std::int64_t{1} << 30;  // MPI counts are 32 bits wide

template <class T>
MPI_Datatype type_of();
template <>
MPI_Datatype type_of<float>() {
  return MPI_FLOAT;
}
template <>
MPI_Datatype type_of<double>() {
  return MPI_DOUBLE;
}

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(MPI_Comm ranks) : ranks_(ranks), exceptions_(std::uncaught_exceptions()) {
    MPI_Comm_set_errhandler(ranks_, MPI_ERRORS_RETURN);
    check(MPI_Comm_rank(ranks_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(ranks_, &size_), "MPI_Comm_size");
    char name[MPI_MAX_PROCESSOR_NAME] = "";
    int length = 0;
    check(MPI_Get_processor_name(name, &length), "MPI_Get_processor_name");
    host_.assign(name, static_cast<std::size_t>(length));
    MPI_Comm local = MPI_COMM_NULL;
    check(MPI_Comm_split_type(ranks_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &local), "MPI_Comm_split_type");
    MPI_Comm_rank(local, &local_rank_);
    MPI_Comm_size(local, &local_size_);
    MPI_Comm_free(&local);
  }

  // If an exception has taken this rank out, other ranks may be waiting for it. MPI_Finalize and MPI_Comm_free would
  // wait for them in turn.
  ~MpiCommunicator() override {
    const bool failed = std::uncaught_exceptions() > exceptions_;
    if (ranks_ != MPI_COMM_WORLD) {
      if (!failed) MPI_Comm_free(&ranks_);
      return;
    }
    if (failed) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string host() const override { return host_; }

  int local_rank() const override { return local_rank_; }
  int local_size() const override { return local_size_; }

  void all_reduce_sum(float* values, std::int64_t count) override { sum_in_chunks(values, count); }
  void all_reduce_sum(double* values, std::int64_t count) override { sum_in_chunks(values, count); }
  void reduce_scatter_sum(float* values, std::int64_t each) override { sum_pieces(values, each); }
  void reduce_scatter_sum(double* values, std::int64_t each) override { sum_pieces(values, each); }

  void all_gather(void* bytes, std::int64_t each) override {
    enter();
    check(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, bytes, checked_count(each), MPI_BYTE, ranks_),
          "MPI_Allgather");
  }

  void all_to_all(const void* from, void* to, std::int64_t each) override {
    enter();
    const int count = checked_count(each);
    check(MPI_Alltoall(from, count, MPI_BYTE, to, count, MPI_BYTE, ranks_), "MPI_Alltoall");
  }

  void broadcast(void* bytes, std::int64_t count, int root) override {
    enter();
    LONGSTRIDE_CHECK(0 <= root && root < size_ && count >= 0, "broadcast of {} bytes from rank {}", count, root);
    auto* next = static_cast<char*>(bytes);
    for (; count > 0; count -= broadcast_bytes, next += broadcast_bytes)
      check(MPI_Bcast(next, static_cast<int>(std::min(count, broadcast_bytes)), MPI_BYTE, root, ranks_), "MPI_Bcast");
  }

  void barrier() override {
    enter();
    check(MPI_Barrier(ranks_), "MPI_Barrier");
  }

  bool any(bool mine) override {
    enter();
    int flag = mine ? 1 : 0;
    check(MPI_Allreduce(MPI_IN_PLACE, &flag, 1, MPI_INT, MPI_LOR, ranks_), "MPI_Allreduce");
    return flag != 0;
  }

  std::unique_ptr<Communicator> split(int colour) override {
    enter();
    MPI_Comm some = MPI_COMM_NULL;
    check(MPI_Comm_split(ranks_, colour, rank_, &some), "MPI_Comm_split");
    return std::make_unique<MpiCommunicator>(some);
  }

 private:
  void check(int code, const char* call) const {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    throw CommunicationError(fmt::format("rank {} ({}): {} failed: {}", rank_, host_, call, text));
  }

  static int checked_count(std::int64_t each) {
    LONGSTRIDE_CHECK(0 <= each && each <= std::numeric_limits<int>::max(), "{} bytes for each rank at once", each);
    return static_cast<int>(each);
  }

  // MPI_Allreduce may add in a different order on another rank, for another size or in another run. Here one rank sums
  // each element in rank order and sends the result to all, so neither chunks nor MPI's algorithms change the result.
  template <class T>
  void sum_in_chunks(T* values, std::int64_t count) {
    enter();
    if (size_ == 1) return;
    const std::int64_t chunk = workspace<T>() - size_;  // pieces are rounded up
    for (std::int64_t at = 0; at < count; at += chunk) {
      const auto here = static_cast<int>(std::min(chunk, count - at));
      std::vector<int> counts(static_cast<std::size_t>(size_)), starts(counts);
      for (int r = 0; r < size_; ++r) {
        const auto edge = [&](int rank) { return static_cast<int>(std::int64_t{here} * rank / size_); };
        starts[static_cast<std::size_t>(r)] = edge(r);
        counts[static_cast<std::size_t>(r)] = edge(r + 1) - edge(r);
      }
      sum_mine(values + at, counts, starts);
      check(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, values + at, counts.data(), starts.data(), type_of<T>(),
                           ranks_),
            "MPI_Allgatherv");
    }
  }

  template <class T>
  void sum_pieces(T* values, std::int64_t each) {
    enter();
    if (size_ == 1) return;
    checked_count(each * size_);
    const std::int64_t chunk = workspace<T>() / size_;
    for (std::int64_t at = 0; at < each; at += chunk) {
      std::vector<int> counts(static_cast<std::size_t>(size_), static_cast<int>(std::min(chunk, each - at)));
      std::vector<int> starts(counts.size());
      for (int r = 0; r < size_; ++r) starts[static_cast<std::size_t>(r)] = static_cast<int>(r * each + at);
      sum_mine(values, counts, starts);
    }
  }

  // Rank r gets the sums of elements [starts[r], starts[r] + counts[r]), in place.
  template <class T>
  void sum_mine(T* values, const std::vector<int>& counts, const std::vector<int>& starts) {
    const int start = starts[static_cast<std::size_t>(rank_)], mine = counts[static_cast<std::size_t>(rank_)];
    std::vector<int> gathered(counts.size(), mine), offsets(counts.size());
    for (int r = 0; r < size_; ++r) offsets[static_cast<std::size_t>(r)] = r * mine;
    T* pieces = reinterpret_cast<T*>(workspace_.data());
    check(MPI_Alltoallv(values, counts.data(), starts.data(), type_of<T>(), pieces, gathered.data(), offsets.data(),
                        type_of<T>(), ranks_),
          "MPI_Alltoallv");
    for (int r = 1; r < size_; ++r) {
      const T* piece = pieces + std::int64_t{r} * mine;
      for (int i = 0; i < mine; ++i) pieces[i] += piece[i];
    }
    std::copy(pieces, pieces + mine, values + start);
  }

  // The workspace's size in elements. Allocated on first use, because groups of some of the ranks never sum in
  // training.
  template <class T>
  std::int64_t workspace() {
    workspace_.resize(communicator_workspace_bytes(size_));
    return static_cast<std::int64_t>(workspace_.size() / sizeof(T));
  }

  MPI_Comm ranks_;
  int rank_ = 0;
  int size_ = 1;
  int local_rank_ = 0, local_size_ = 1;
  std::string host_;
  std::vector<std::byte> workspace_;
  int exceptions_;
};

bool given(const char* variable) { return std::getenv(variable) != nullptr; }

// True if a launcher (Open MPI's or MPICH's mpirun, srun with a PMI plug-in) has started this process. Without one,
// MPI_Init would start helper processes of its own, or fail.
bool launched() {
  return given("OMPI_COMM_WORLD_SIZE") || given("PMIX_RANK") || given("PMI_RANK") || given("PMI_SIZE");
}

bool runs_mpi() {
  int initialised = 0, finalised = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  return initialised && !finalised;
}

constexpr int word_tag = 1;  // marks the only messages between two ranks: the sender is about to print its failure

bool takes_word() {
  int arrived = 0;
  MPI_Status status;
  if (MPI_Iprobe(MPI_ANY_SOURCE, word_tag, MPI_COMM_WORLD, &arrived, &status) != MPI_SUCCESS || !arrived) return false;
  MPI_Recv(nullptr, 0, MPI_BYTE, status.MPI_SOURCE, word_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return true;
}

}  // namespace

std::size_t communicator_workspace_bytes(int ranks) {
  if (ranks == 1) return 0;
  return std::max(chunk_bytes, static_cast<std::size_t>(ranks) * least_piece_bytes);
}

std::unique_ptr<Communicator> make_communicator(int* argc, char*** argv) {
  if (!launched()) {
    const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
    if (tasks != nullptr && std::atoi(tasks) > 1)
      throw user_error("srun has started {} processes that cannot reach each other: use srun --mpi=pmix, or mpirun",
                       tasks);
    return make_single_communicator();
  }
  int level = 0;
  if (MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS)
    throw CommunicationError("MPI_Init_thread failed");
  LONGSTRIDE_CHECK(level >= MPI_THREAD_FUNNELED, "this MPI library does not support threads (level {})", level);
  return std::make_unique<MpiCommunicator>(MPI_COMM_WORLD);
}

bool reports_failure(double seconds) {
  constexpr double apart = 0.2;  // seconds, so that one of several ranks without rank 0 is the first
  constexpr int most_apart = 10;
  if (!runs_mpi()) return true;
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const double end = MPI_Wtime() + (rank == 0 ? 0 : seconds + apart * std::min(rank - 1, most_apart));
  while (!takes_word()) {
    if (MPI_Wtime() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      continue;
    }
    for (int other = 0; other < size; ++other) {
      MPI_Request sent = MPI_REQUEST_NULL;
      if (other != rank && MPI_Isend(nullptr, 0, MPI_BYTE, other, word_tag, MPI_COMM_WORLD, &sent) == MPI_SUCCESS)
        MPI_Request_free(&sent);  // a rank that it does not reach prints as well
    }
    return true;
  }
  return false;
}

void abort_all_ranks(int exit_code) {
  if (runs_mpi()) MPI_Abort(MPI_COMM_WORLD, exit_code);
}

}  // namespace longstride
