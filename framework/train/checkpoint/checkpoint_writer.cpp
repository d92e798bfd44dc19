#include "framework/train/checkpoint/checkpoint_writer.h"

#include <signal.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "framework/core/errors.h"
#include "framework/train/checkpoint/checkpoint_mirror.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr std::size_t most_files = 3;

// What a rank tells the others when its files are written: their names, sizes and checksums, or why they are not.
struct Report {
  struct File {
    char name[64];
    std::uint64_t bytes;
    char sha256[72];
  };
  File files[most_files];
  std::int32_t count, failed;
};

void put(char* to, std::size_t size, const std::string& text) {
  LONGSTRIDE_CHECK(text.size() < size, "'{}' does not fit {} bytes", text, size);
  std::memcpy(to, text.data(), text.size());
}

Report report_of(const std::map<std::string, FileDigest>& files, bool failed) {
  Report report = {};
  report.failed = failed ? 1 : 0;
  for (const auto& [name, digest] : files) {
    Report::File& file = report.files[report.count++];
    put(file.name, sizeof(file.name), name);
    put(file.sha256, sizeof(file.sha256), digest.sha256);
    file.bytes = digest.bytes;
  }
  return report;
}

std::size_t padded(std::int64_t elements) { return Arena::rounded(static_cast<std::size_t>(elements) * sizeof(float)); }

std::size_t share_bytes(const CheckpointShare& share, std::int64_t flat_size) {
  return (share.model ? padded(flat_size) : 0) + padded(elements_of(share.average)) +
         2 * padded(elements_of(share.moments));
}

}  // namespace

std::int64_t snapshot_bytes(int ranks, std::int64_t flat_size, bool with_average, bool sharded) {
  const std::vector<FlatRange> own = {{0, flat_size / ranks}};
  std::size_t most = 0;
  for (int r = 0; r < ranks; ++r) {
    const CheckpointShare share = sharded && ranks > 1 ? share_of_owner(r, ranks, own, with_average)
                                                       : share_of_writer(r, ranks, flat_size, with_average);
    most = std::max(most, share_bytes(share, flat_size));
  }
  return static_cast<std::int64_t>(most);
}

CheckpointWriter::CheckpointWriter(Communicator& comm, std::string run, const TrainingTensors& tensors,
                                   std::int64_t keep, Device device, std::int64_t last, std::string mirror)
    : comm_(comm),
      run_(std::move(run)),
      mirror_(std::move(mirror)),
      tensors_(tensors),
      keep_(keep),
      device_(device),
      copy_{tensors.parameters, {}, {}, {}, {}},
      committed_(last) {
  find_writers();
  choose_share();
  const std::int64_t flat = tensors_.parameters.flat_size();
  const std::size_t bytes = share_bytes(share_, flat);
  if (bytes == 0) return;
  std::byte* next = device_ == Device::cpu ? host_.emplace(bytes).data() : pinned_.emplace(bytes).data();
  if (device_ == Device::cuda) copied_ = std::make_unique<Event>();
  const auto take = [&](std::int64_t elements) {
    if (elements == 0) return Tensor{};
    const Tensor t(next, Dtype::f32, {elements});
    next += padded(elements);
    return t;
  };
  copy_.masters = take(share_.model ? flat : 0);
  copy_.ema = take(elements_of(share_.average));
  copy_.m = take(elements_of(share_.moments));
  copy_.v = take(elements_of(share_.moments));
}

void CheckpointWriter::choose_share() {
  const bool average = tensors_.ema.given();
  if (!tensors_.moment_ranges.empty()) {
    if (static_cast<int>(writers_.size()) < comm_.size())
      throw user_error(
          "{}: is not seen by all {} ranks, which each write their part of a sharded optimizer; put it on "
          "a file system that the hosts share, or do without sharding",
          run_, comm_.size());
    share_ = share_of_owner(comm_.rank(), comm_.size(), tensors_.moment_ranges, average);
    return;
  }
  const auto place = std::find(writers_.begin(), writers_.end(), comm_.rank()) - writers_.begin();
  const auto writers = static_cast<int>(writers_.size());
  if (place < writers)
    share_ = share_of_writer(static_cast<int>(place), writers, tensors_.parameters.flat_size(), average);
}

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

std::size_t CheckpointWriter::bytes() const { return host_ ? host_->bytes() : pinned_ ? pinned_->bytes() : 0; }

// Rank 0 writes a file for the others to look for: a directory of the same name on a disk of their own does not have
// it.
void CheckpointWriter::find_writers() {
  const std::string all = checkpoints_directory(run_);
  std::array<char, 256> name{};
  std::unique_ptr<AtomicFile> probe;
  if (comm_.rank() == 0) {
    create_checkpoints_directory(run_);
    probe = std::make_unique<AtomicFile>(all + "/shared-by-the-ranks");
    put(name.data(), name.size(), fs::path(probe->temporary_path()).filename().string());
  }
  comm_.broadcast(name.data(), static_cast<std::int64_t>(name.size()), 0);
  std::vector<float> sees(static_cast<std::size_t>(comm_.size()), 0.0f);
  std::error_code absent;
  sees[static_cast<std::size_t>(comm_.rank())] = fs::exists(all + "/" + name.data(), absent) ? 1.0f : 0.0f;
  comm_.all_reduce_sum(sees.data(), comm_.size());
  for (int r = 0; r < comm_.size(); ++r)
    if (r == 0 || sees[static_cast<std::size_t>(r)] > 0) writers_.push_back(r);
}

void CheckpointWriter::begin(const CheckpointState& state, const Stream* stream) {
  finish();
  state_ = state;
  std::array<char, 256> name{};
  if (comm_.rank() == 0) {
    try {
      directory_ = begin_checkpoint(run_, state.step);
    } catch (const UserError& e) {  // the others wait, until this ends them
      throw not_saved(e.what());
    }
    put(name.data(), name.size(), fs::path(directory_->path()).filename().string());
  }
  comm_.broadcast(name.data(), static_cast<std::int64_t>(name.size()), 0);
  path_ = checkpoints_directory(run_) + "/" + name.data();
  files_.clear();
  error_.clear();
  // A part of what the tensor holds, or all of it.
  const auto copy = [&](const Tensor& from, const Tensor& to, std::int64_t at) {
    if (!to.given()) return;
    const Tensor part = from.slice(0, at, at + to.count());
    if (device_ == Device::cpu)
      std::memcpy(to.data(), part.data(), to.bytes());
    else
      copy_to_host(to.data(), part.data(), to.bytes(), stream->handle());
  };
  const bool whole = tensors_.moment_ranges.empty() && !share_.moments.empty();
  const std::int64_t first = whole ? share_.moments.front().begin : 0;
  copy(tensors_.masters, copy_.masters, 0);
  copy(tensors_.ema, copy_.ema, 0);
  copy(tensors_.m, copy_.m, first);
  copy(tensors_.v, copy_.v, first);
  if (copied_) copied_->record(*stream);
  phase_ = Phase::copying;
  if (device_ == Device::cpu) poll();  // the copy is there
}

// Signals are for the main thread, and an error is thrown there.
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

// On a GPU the next step is already on the stream when the host waits here for the copy before it.
void CheckpointWriter::poll() {
  if (phase_ == Phase::idle) return;
  if (phase_ == Phase::copying) {
    if (copied_) copied_->wait();
    phase_ = Phase::writing;
    if (!share_.empty()) start([this] { files_ = write_share(path_, state_.step, copy_, share_); });
    return;
  }
  if (comm_.any(busy_)) return;
  if (thread_.joinable()) thread_.join();
  if (phase_ == Phase::writing) return collect();
  const bool failed = comm_.any(!error_.empty());  // only rank 0 commits
  if (failed) end_with(0);
  phase_ = Phase::idle;
  committed_ = state_.step;
  if (mirror_error_.empty()) return;
  spdlog::warn("the checkpoint of step {} has no second copy: {}", committed_, mirror_error_);
  mirror_error_.clear();
}

void CheckpointWriter::collect() {
  const Report mine = report_of(files_, !error_.empty());
  for (int writer : writers_) {
    Report report = mine;
    comm_.broadcast(&report, sizeof(report), writer);
    if (report.failed != 0) return end_with(writer);
    for (int i = 0; comm_.rank() == 0 && i < report.count; ++i)
      files_[report.files[i].name] = {report.files[i].bytes, report.files[i].sha256};
  }
  phase_ = Phase::committing;
  if (comm_.rank() == 0) start([this] { commit(); });
}

// The checkpoint counts once it has its name; that a second copy fails is no reason to end the run.
void CheckpointWriter::commit() {
  commit_checkpoint(run_, state_, files_, *directory_, keep_);
  if (mirror_.empty()) return;
  try {
    mirror_checkpoint(run_, state_.step, mirror_, keep_);
  } catch (const UserError& error) {
    mirror_error_ = error.what();
  }
}

// Which checkpoint is there, not which was: the directory may have been removed or renamed.
std::string CheckpointWriter::last_saved() const {
  for (const std::string& place : {run_, mirror_})
    if (const std::vector<std::int64_t> steps = checkpoint_steps(place); !place.empty() && !steps.empty())
      return fmt::format("the last checkpoint is step {}{}", steps.back(), place == run_ ? "" : " in " + place);
  return fmt::format("there is no checkpoint in {}", run_);
}

UserError CheckpointWriter::not_saved(const std::string& reason) const {
  return user_error("the checkpoint of step {} cannot be saved: {}; {}", state_.step, reason, last_saved());
}

// What was written goes; then the rank that knows why it failed says so, which ends the others.
void CheckpointWriter::end_with(int failed_rank) {
  comm_.barrier();
  directory_.reset();
  comm_.barrier();
  phase_ = Phase::idle;
  if (comm_.rank() != failed_rank) std::this_thread::sleep_for(std::chrono::seconds(2));
  throw not_saved(error_.empty() ? fmt::format("rank {} has failed", failed_rank) : error_);
}

void CheckpointWriter::finish() {
  while (phase_ != Phase::idle) {
    if (busy_) comm_.still_working();
    poll();
    if (busy_) std::this_thread::sleep_for(milliseconds(2));
  }
}

}  // namespace longstride
