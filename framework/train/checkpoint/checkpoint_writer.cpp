#include "framework/train/checkpoint/checkpoint_writer.h"

#include <signal.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <sstream>

#include "framework/comm/failure.h"
#include "framework/core/errors.h"
#include "framework/train/checkpoint/checkpoint_mirror.h"
#include "framework/train/run/file_work.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr const char* failed = "failed";

// A rank's report when its files are written: one line per file with name, size and checksum.
std::string report_of(const std::map<std::string, FileDigest>& files) {
  std::string report;
  for (const auto& [name, digest] : files) report += fmt::format("{} {} {}\n", name, digest.bytes, digest.sha256);
  return report;
}

// Puts a copy of what the share has into `memory`, or only counts its bytes.
std::size_t place_share(TrainingTensors& copy, const CheckpointShare& share, std::byte* memory) {
  return place(copy, memory, [&](const SavedTensor& saved, const Tensor& t) {
    return elements_of(share.part_of(saved.file, t.count()));
  });
}

}  // namespace

std::int64_t snapshot_bytes(int ranks, const TrainingTensors& tensors) {
  std::size_t most = 0;
  for (int r = 0; r < ranks; ++r) {
    TrainingTensors copy = tensors;
    most = std::max(most, place_share(copy, share_of(tensors, r, ranks), nullptr));
  }
  return static_cast<std::int64_t>(most);
}

CheckpointWriter::CheckpointWriter(Communicator& comm, CheckpointPaths paths, const TrainingTensors& tensors,
                                   const Queue& queue, std::int64_t last)
    : comm_(comm), paths_(std::move(paths)), tensors_(tensors), queue_(queue), copy_(tensors), committed_(last) {
  find_writers();
  choose_share();
  const std::size_t bytes = place_share(copy_, share_, nullptr);
  if (bytes == 0) return;
  memory_ = Block::host_side(queue_.device(), bytes);
  place_share(copy_, share_, memory_.data());
}

void CheckpointWriter::choose_share() {
  const auto writers = static_cast<int>(writers_.size());
  if (!tensors_.moment_ranges.empty() && writers < comm_.size())
    throw user_error(
        "{}: is not visible to all {} ranks, each of which writes its part of a sharded optimizer; put it on a file "
        "system that the hosts share, or set optimizer.shard: false",
        paths_.run, comm_.size());
  if (tensors_.states.given() && writers < comm_.size())
    throw user_error(
        "{}: is not visible to all {} ranks, each of which writes what its rows remember; put it on a file system that "
        "the hosts share",
        paths_.run, comm_.size());
  const auto writer = std::find(writers_.begin(), writers_.end(), comm_.rank()) - writers_.begin();
  if (writer < writers) share_ = share_of(tensors_, static_cast<int>(writer), writers);
}

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

// Rank 0 writes a file that the others look for: it is missing from a directory of the same name on a local disk.
void CheckpointWriter::find_writers() {
  const std::string all = checkpoints_directory(paths_.run);
  std::string name;
  std::unique_ptr<AtomicFile> probe;
  if (comm_.rank() == 0) {
    const FileWork work(all);
    create_checkpoints_directory(paths_.run);
    probe = std::make_unique<AtomicFile>(all + "/shared-by-the-ranks");
    name = fs::path(probe->temporary_path()).filename().string();
  }
  name = comm_.broadcast_text(name, 0);
  std::vector<float> sees(static_cast<std::size_t>(comm_.size()), 0.0f);
  std::error_code absent;
  sees[static_cast<std::size_t>(comm_.rank())] = fs::exists(all + "/" + name, absent) ? 1.0f : 0.0f;
  comm_.all_reduce_sum(sees.data(), comm_.size());
  for (int r = 0; r < comm_.size(); ++r)
    if (r == 0 || sees[static_cast<std::size_t>(r)] > 0) writers_.push_back(r);
}

void CheckpointWriter::begin(const CheckpointState& state) {
  finish();
  state_ = state;
  std::string name;
  if (comm_.rank() == 0) {
    const FileWork work(checkpoints_directory(paths_.run));
    try {
      directory_ = begin_checkpoint(paths_.run, state.step);
    } catch (const UserError& e) {  // the other ranks wait until this ends them
      throw not_saved(e.what());
    }
    name = fs::path(directory_->path()).filename().string();
  }
  name = comm_.broadcast_text(name, 0);
  path_ = checkpoints_directory(paths_.run) + "/" + name;
  files_.clear();
  error_.clear();
  for (const SavedTensor& saved : saved_tensors) {
    const Tensor &from = tensors_.*saved.tensor, &to = copy_.*saved.tensor;
    if (!to.given()) continue;
    const bool whole = from.count() == to.count();
    const std::int64_t at = whole ? 0 : share_.part_of(saved.file, from.count()).front().begin;
    queue_.copy_to_host(to.data(), from.slice(0, at, at + to.count()).data(), to.bytes());
  }
  copied_.record(queue_);
  phase_ = Phase::copying;
  if (queue_.immediate()) poll();  // the copy is already complete
}

// The main thread handles signals and throws errors.
void CheckpointWriter::start(std::function<void()> work) {
  if (thread_.joinable()) thread_.join();
  busy_ = true;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, work = std::move(work)] {
    try {
      work();
    } catch (const std::exception& error) {
      error_ = error.what();
    }
    busy_ = false;
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// On a GPU the next step is already on the stream when the host waits here for the preceding copy.
void CheckpointWriter::poll() {
  if (phase_ == Phase::idle) return;
  if (phase_ == Phase::copying) {
    copied_.wait();
    phase_ = Phase::writing;
    if (!share_.empty()) start([this] { files_ = write_share(path_, state_.step, copy_, share_); });
    return;
  }
  if (comm_.any(busy_)) return;
  if (thread_.joinable()) thread_.join();
  if (phase_ == Phase::writing) return collect();
  if (comm_.any(!error_.empty())) end_with(0);  // only rank 0 commits
  phase_ = Phase::idle;
  committed_ = state_.step;
  if (mirror_error_.empty()) return;
  spdlog::warn("the checkpoint of step {} has no second copy: {}", committed_, mirror_error_);
  mirror_error_.clear();
}

void CheckpointWriter::collect() {
  const std::string mine = error_.empty() ? report_of(files_) : failed;
  for (int writer : writers_) {
    const std::string report = comm_.broadcast_text(mine, writer);
    if (report == failed) return end_with(writer);
    std::istringstream lines(report);
    FileDigest digest;
    for (std::string name; comm_.rank() == 0 && lines >> name >> digest.bytes >> digest.sha256;) files_[name] = digest;
  }
  phase_ = Phase::committing;
  if (comm_.rank() == 0) start([this] { commit(); });
}

// The checkpoint is valid once it has its name; a failed second copy does not end the run.
void CheckpointWriter::commit() {
  commit_checkpoint(paths_.run, state_, files_, *directory_, paths_.keep, paths_.keep_best);
  if (paths_.mirror.empty()) return;
  try {
    mirror_checkpoint(paths_.run, state_.step, paths_.mirror, paths_.keep, paths_.keep_best, paths_.check_mirror);
  } catch (const UserError& error) {
    mirror_error_ = error.what();
  }
}

// Looks at the disk, because the directory may have been removed or renamed.
std::string CheckpointWriter::last_saved() const try {
  const FileWork work(paths_.run);
  for (const std::string& path : {paths_.run, paths_.mirror})
    if (const std::vector<std::int64_t> steps = checkpoint_steps(path); !path.empty() && !steps.empty())
      return fmt::format("the last checkpoint is step {}{}", steps.back(), path == paths_.run ? "" : " in " + path);
  return fmt::format("there is no checkpoint in {}", paths_.run);
} catch (const UserError& unreadable) {
  return unreadable.what();
}

UserError CheckpointWriter::not_saved(const std::string& reason) const {
  return user_error("the checkpoint of step {} cannot be saved: {}; {}", state_.step, reason, last_saved());
}

// Removes what was written; then the rank that knows the cause reports it, which ends the others.
void CheckpointWriter::end_with(int failed_rank) {
  comm_.barrier();
  {
    const FileWork work(path_);
    directory_.reset();
  }
  comm_.barrier();
  phase_ = Phase::idle;
  if (comm_.rank() != failed_rank) std::this_thread::sleep_for(std::chrono::duration<double>(surely_said));
  throw not_saved(error_.empty() ? fmt::format("rank {} has failed", failed_rank) : error_);
}

void CheckpointWriter::finish() {
  std::optional<FileWork> waiting;  // for this rank's thread
  while (phase_ != Phase::idle) {
    if (busy_ && !waiting) waiting.emplace(path_);
    if (!busy_) waiting.reset();
    if (busy_) comm_.still_working();
    poll();
    if (busy_) std::this_thread::sleep_for(milliseconds(2));
  }
}

}  // namespace longstride
