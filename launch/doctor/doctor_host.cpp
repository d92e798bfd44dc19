#include <fcntl.h>
#include <omp.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "datasets/dataset.h"
#include "datasets/prepare/dataset_writer.h"
#include "framework/core/device/host_limits.h"
#include "framework/core/errors.h"
#include "framework/core/files/disk.h"
#include "framework/core/files/files.h"
#include "framework/core/files/sha256.h"
#include "framework/core/text/numbers.h"
#include "launch/doctor/doctor_checks.h"
#include "launch/doctor/stopwatch.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

constexpr double one_gib = 1 << 30;

// The processors on which a process may run, as far as a mask of fixed size can tell.
cpu_set_t processors_of(pid_t process) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (::sched_getaffinity(process, sizeof(mask), &mask) != 0)
    for (int i = 0; i < std::min(omp_get_num_procs(), CPU_SETSIZE); ++i) CPU_SET(i, &mask);
  return mask;
}

struct RankProcessors {
  char host[64];
  cpu_set_t mask;
  int threads;
};

// A rank may be bound to some of the processors, alone or with others, so every rank reports its own.
std::vector<RankProcessors> gather_processors(Communicator& comm) {
  std::vector<RankProcessors> all(static_cast<std::size_t>(comm.size()));
  RankProcessors& own = all[static_cast<std::size_t>(comm.rank())];
  comm.host().copy(own.host, sizeof(own.host) - 1);
  own.mask = processors_of(0);
  own.threads = omp_get_max_threads();
  comm.all_gather(all.data(), sizeof(RankProcessors));
  std::erase_if(all, [mine = own](const RankProcessors& r) { return std::strcmp(r.host, mine.host) != 0; });
  return all;
}

Finding processors(const Communicator& comm, const std::vector<RankProcessors>& ranks) {
  cpu_set_t together;
  CPU_ZERO(&together);
  int used = 0, threads = 0;
  bool crowded = false;
  for (const RankProcessors& r : ranks) {
    CPU_OR(&together, &together, &r.mask);
    used += r.threads;
    threads = std::max(threads, r.threads);
    crowded = crowded || r.threads > CPU_COUNT(&r.mask);
  }
  const cpu_set_t launcher = processors_of(::getppid());
  const int bound = CPU_COUNT(&together), all = std::max(bound, CPU_COUNT(&launcher));
  const auto quota = processor_quota();
  const int cores = quota ? std::clamp(static_cast<int>(std::ceil(*quota)), 1, bound) : bound;
  Finding f{"processors", comm.host(),
            fmt::format("{}{} for {} x {}", bound,
                        cores < bound ? fmt::format(", of which a quota allows {:.3g},", *quota) : "",
                        counted(comm.local_size(), "rank"), counted(threads, "thread"))};
  if (crowded || used > cores) {
    f.verdict = Verdict::note;
    f.advice = fmt::format(
        "threads share cores: set OMP_NUM_THREADS={}, or start fewer ranks, or bind them to more "
        "cores (mpirun --bind-to none)",
        std::max(1, cores / comm.local_size()));
  } else if (2 * bound <= all) {
    f.verdict = Verdict::note;
    f.advice =
        fmt::format("{} of {} processors stay idle because ranks are bound to others: start them with --bind-to none",
                    all - bound, all);
  }
  return f;
}

Finding memory(const Communicator& comm) {
  double free = 0;
  std::string text;
  for (const HostMemory& limit : host_memory()) {
    const double share = static_cast<double>(limit.free) * (limit.of_process ? comm.local_size() : 1);
    const bool first = text.empty();
    if (!first && share >= free) continue;
    free = share;
    text += fmt::format("{}{:.1f} GiB{} of {:.1f}{}", first ? "" : ", ", static_cast<double>(limit.free) / one_gib,
                        first ? " free" : "", static_cast<double>(limit.all) / one_gib,
                        first ? "" : " are " + limit.origin);
  }
  Finding f{"memory", comm.host(), text.empty() ? "not known" : text};
  if (!text.empty() && free < 2 * one_gib * comm.local_size()) {
    f.verdict = free < one_gib ? Verdict::problem : Verdict::note;
    f.advice =
        "less than 2 GiB for each rank: end other programs, or start fewer ranks; `longstride plan RECIPE` says "
        "what a run needs";
  }
  return f;
}

Finding shared_memory(const Communicator& comm) {
  struct statvfs s = {};
  if (::statvfs("/dev/shm", &s) != 0)
    return {"shared memory", comm.host(), "no /dev/shm", Verdict::problem,
            "MPI and NCCL exchange data through it: mount it, or start the container with --ipc=host"};
  const double free = static_cast<double>(s.f_bavail) * static_cast<double>(s.f_frsize);
  Finding f{"shared memory", comm.host(), fmt::format("{:.2f} GiB free in /dev/shm", free / one_gib)};
  if (free < one_gib / 4 * comm.local_size()) {
    f.verdict = Verdict::problem;
    f.advice =
        "MPI and NCCL need some 256 MiB per rank: start the container with --ipc=host or --shm-size=8g, or remove "
        "the leftovers";
  }
  return f;
}

Finding limits(const Communicator& comm) {
  rlimit locked = {}, files = {};
  ::getrlimit(RLIMIT_MEMLOCK, &locked);
  ::getrlimit(RLIMIT_NOFILE, &files);
  const bool rdma = fs::exists("/dev/infiniband");
  const std::string lock = locked.rlim_cur == RLIM_INFINITY
                               ? "any memory"
                               : fmt::format("{:.3g} MiB", static_cast<double>(locked.rlim_cur) / (1 << 20));
  Finding f{"limits", comm.host(),
            fmt::format("{} may be locked, {} files open{}", lock, files.rlim_cur, rdma ? ", RDMA devices" : "")};
  if (rdma && locked.rlim_cur != RLIM_INFINITY) {
    f.verdict = Verdict::problem;
    f.advice =
        "RDMA locks memory: set `memlock unlimited` in /etc/security/limits.conf, and for Slurm "
        "PropagateResourceLimitsExcept=MEMLOCK";
  }
  if (files.rlim_cur < 1024) {
    f.verdict = Verdict::problem;
    f.advice = "raise `ulimit -n` to 4096 or more";
  }
  return f;
}

// Writes, flushes and reads back. The data read may come from memory, so only the write speed is judged.
Finding disk(const Communicator& comm, const DoctorOptions& options) {
  const std::string path = fmt::format("{}/longstride-doctor-{}", options.directory, comm.rank());
  const std::size_t piece = std::size_t{8} << 20;
  std::vector<char> bytes(piece);
  for (std::size_t i = 0; i < piece; ++i) bytes[i] = static_cast<char>((i * 2654435761u) >> 13);
  const std::int64_t pieces = std::max<std::int64_t>(1, options.megabytes / 8);
  const double all = static_cast<double>(pieces) * static_cast<double>(piece);
  AtomicFile file(path);
  Stopwatch clock;
  for (std::int64_t i = 0; i < pieces; ++i) file.write(bytes.data(), piece);
  const int descriptor = ::open(file.temporary_path().c_str(), O_RDONLY | O_CLOEXEC);
  const int failed = descriptor < 0 ? errno : flush_to_disk(descriptor);
  if (descriptor >= 0) ::close(descriptor);
  const double written = all / clock.seconds();
  if (failed != 0) throw user_error("{}: cannot be flushed to disk: {}", path, std::strerror(failed));
  clock = {};
  const InputFile in(file.temporary_path());
  bool same = true;
  std::vector<char> back(piece);
  for (std::int64_t i = 0; i < pieces; ++i) {
    in.read(static_cast<std::uint64_t>(i) * piece, back.data(), piece);
    same = same && back == bytes;
  }
  const double read = all / clock.seconds();
  struct statvfs s = {};
  ::statvfs(options.directory.c_str(), &s);
  const double free = static_cast<double>(s.f_bavail) * static_cast<double>(s.f_frsize);
  Finding f{"disk", comm.host(),
            fmt::format("writes {:.2f} GB/s, reads back {:.2f} GB/s, {:.1f} GiB free", written / 1e9, read / 1e9,
                        free / one_gib)};
  if (!same)
    return f.verdict = Verdict::problem, f.advice = "what is read is not what was written: replace the disk", f;
  if (written < 1e8) {
    f.verdict = Verdict::note;
    f.advice = fmt::format(
        "a checkpoint of 152 M parameters (1.8 GB) takes {:.0f} s: keep train.checkpoint_every well "
        "above that, or use a faster file system",
        1.8e9 / written);
  }
  if (free < 10 * one_gib) {
    f.verdict = Verdict::problem;
    f.advice =
        "make room, or choose another directory: a run keeps train.keep checkpoints of 12 bytes per parameter, and one "
        "more while it is written";
  }
  return f;
}

Finding hdf5(const Communicator& comm, const DoctorOptions& options) {
  const std::string path = fmt::format("{}/longstride-doctor-{}.h5", options.directory, comm.rank());
  std::vector<std::uint8_t> bytes(std::size_t{4} << 20);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>((i * 40503u) >> 8);
  const auto count = static_cast<std::int64_t>(bytes.size());
  const Stopwatch clock;
  Sha256 sha;
  sha.update(bytes.data(), bytes.size());
  std::string stored;
  bool same = false;
  {
    DatasetWriter writer(path, DatasetInfo{}, true);
    writer.append(SplitId::train, bytes.data(), count);
    writer.commit("by the doctor");
    const auto dataset = Dataset::open(path);
    stored = dataset->stored_sha256("train");
    std::vector<std::uint8_t> back(bytes.size());
    dataset->split("train")->read(0, 0, count, back.data());
    same = back == bytes;
  }
  const double seconds = clock.seconds();
  std::error_code ignored;
  fs::remove(path, ignored);
  Finding f{"HDF5", comm.host(), fmt::format("4 MiB written and read back in {:.2f} s", seconds)};
  if (!same || stored != sha.hex()) {
    f.verdict = Verdict::problem;
    f.advice = "a dataset does not read back as it was written: check the disk and the file system";
  }
  return f;
}

// The file of this program; /proc/self/exe is the loader's if one was called to run it.
std::string program_file() {
  std::ifstream in("/proc/self/maps");  // begin-end permissions offset device inode path
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::uintptr_t begin = 0, end = 0;
    std::string rest, path;
    char dash = 0;
    words >> std::hex >> begin >> dash >> end >> rest >> rest >> rest >> rest >> std::ws;
    const auto here = reinterpret_cast<std::uintptr_t>(&program_file);
    if (begin <= here && here < end && std::getline(words, path)) return path;
  }
  return "/proc/self/exe";
}

// An exception in a check is a finding too.
template <class F>
Finding guarded(const char* what, const Communicator& comm, const char* advice, F&& check) {
  try {
    return check();
  } catch (const std::exception& error) {
    return {what, comm.host(), error.what(), Verdict::problem, advice};
  }
}

}  // namespace

Findings check_host(Communicator& comm, const DoctorOptions& options) {
  const std::vector<RankProcessors> ranks = gather_processors(comm);
  if (comm.local_rank() != 0) return {};
  Findings all = {processors(comm, ranks), memory(comm), shared_memory(comm), limits(comm)};
  std::error_code none;
  const fs::path temporary = fs::temp_directory_path(none);
  all.push_back(find_leftovers(comm.host(), "/dev/shm", none ? "/tmp" : temporary.string()));
  const char* advice = "use --directory to choose a directory that can be written";
  all.push_back(guarded("disk", comm, advice, [&] { return disk(comm, options); }));
  all.push_back(
      guarded("file system", comm, advice, [&] { return examine_file_system(comm.host(), options.directory); }));
  all.push_back(guarded("HDF5", comm, advice, [&] { return hdf5(comm, options); }));
  return all;
}

Findings check_ranks(Communicator& comm, const DoctorOptions& options) {
  Findings all;
  if (comm.size() == 1) return all;
  // The program, by its checksum.
  std::vector<std::array<char, 64>> programs(static_cast<std::size_t>(comm.size()));
  const std::string sha = sha256_of_file(program_file());
  std::copy_n(sha.begin(), std::min<std::size_t>(sha.size(), 64),
              programs[static_cast<std::size_t>(comm.rank())].begin());
  comm.all_gather(programs.data(), 64);
  const auto other =
      std::find_if(programs.begin(), programs.end(), [&](const auto& p) { return p != programs.front(); });
  Finding program{"program", "all ranks", "the same"};
  if (other != programs.end()) {
    program.result = fmt::format("rank {} runs a different one from rank 0", other - programs.begin());
    program.verdict = Verdict::problem;
    program.advice = "install the same build on every host, or on a file system that they share";
  }
  // The directory: rank 0 writes, the others look.
  std::array<char, 128> name{};
  std::unique_ptr<AtomicFile> probe;
  bool writable = true;
  if (comm.rank() == 0) try {
      probe = std::make_unique<AtomicFile>(options.directory + "/longstride-doctor-shared");
      fs::path(probe->temporary_path()).filename().string().copy(name.data(), name.size() - 1);
    } catch (const UserError&) {
      writable = false;  // check_host says so
    }
  comm.broadcast(name.data(), static_cast<std::int64_t>(name.size()), 0);
  std::error_code absent;
  const bool seen = name[0] == '\0' || fs::exists(fs::path(options.directory) / name.data(), absent);
  const bool missing = comm.any(!seen);
  Finding directory{"directory", "all ranks", missing ? "not shared by the ranks" : "shared by the ranks"};
  if (missing) {
    directory.verdict = Verdict::note;
    directory.advice =
        "only ranks that see rank 0's directory write checkpoints, and a sharded optimizer needs all of them: put runs "
        "on a file system that the hosts share";
  }
  if (comm.rank() == 0) all.push_back(program);
  if (comm.rank() == 0 && writable) all.push_back(directory);
  return all;
}

}  // namespace longstride
