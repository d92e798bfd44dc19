// The checks of `longstride doctor`. Every rank calls every check; the first rank of each host makes those of the host.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/core/device/device.h"

namespace longstride {

enum class Verdict : std::uint8_t { good, note, problem };

// A line of the table. `advice` says what to do about a note or a problem.
struct Finding {
  std::string what, where, result;
  Verdict verdict = Verdict::good;
  std::string advice = {};
};
using Findings = std::vector<Finding>;

struct DoctorOptions {
  std::string directory = ".";   // where runs and datasets are
  std::int64_t megabytes = 256;  // written and read by each host
  bool json = false;
};

// A host's processors and threads, free memory, limits, leftovers, the file system, HDF5.
Findings check_host(Communicator& comm, const DoctorOptions& options);
// Leftovers of killed jobs of Open MPI and NCCL in a host's shared memory and scratch folder (/dev/shm, $TMPDIR), if no
// process uses it, with the command that removes it.
Finding find_leftovers(const std::string& host, const std::string& shared, const std::string& scratch);
// Operations that the file system of a directory lacks, and that runs and datasets use.
Finding examine_file_system(const std::string& host, const std::string& directory);
// The ranks together: the same program, a common directory.
Findings check_ranks(Communicator& comm, const DoctorOptions& options);
// Between ranks over MPI, by pair and all together.
Findings check_messages(Communicator& comm);
// This rank's GPU: its driver, memory, speed. The next check uses it.
Findings check_gpu(Communicator& comm, Device& device);
// All-reduce between GPUs over NCCL, by pair and all together.
Findings check_gpu_links(Communicator& comm);

// Figures for pairs of ranks: both ranks of a pair call `measure` with their communicator. With up to 16 ranks all
// pairs, otherwise those whose numbers differ in one binary digit.
struct PairFigure {
  int a = 0, b = 0;
  double value = 0;
};
std::vector<PairFigure> measure_pairs(Communicator& comm, const std::function<double(Communicator&)>& measure);

}  // namespace longstride
