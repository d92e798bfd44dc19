// Checkpoints that barely delay training, written by all ranks at once. A rank copies its share of the state into
// memory reserved for it (on a GPU by the step's stream, while the host continues), and a thread writes the copy. When
// the files of all ranks are on disk, rank 0 lists them in state.json and gives the directory its name; until then the
// previous checkpoint is the last one. Only one checkpoint is in progress at a time.
//
//   writer.begin(state);   // after a step
//   writer.poll();         // after every step: cheap; throws when writing has failed
//   writer.finish();       // waits until the checkpoint is complete
//
// All functions are collective, and communicate only from the caller's thread.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/core/device/memory.h"
#include "framework/train/checkpoint/checkpoint_files.h"

namespace longstride {

// Host memory in bytes for the largest copy that any of `ranks` ranks makes, if all see the run's directory.
std::int64_t snapshot_bytes(int ranks, const TrainingTensors& tensors);

// Where checkpoints go.
struct CheckpointPaths {
  std::string run;          // directory
  std::int64_t keep = 0;    // newest checkpoints kept; 0: all
  std::string mirror = "";  // a directory for a second copy, made by rank 0's thread; failure is only a warning.
                            // Empty: none
  bool keep_best = false;   // the checkpoint with the lowest validation loss is kept as well
  std::function<void()> check_mirror = {};  // throws when the mirror is no longer this process's; may be empty
};

class CheckpointWriter {
 public:
  // Finds out which ranks see the run's directory: only these write. Allocates. Only work on `queue` may write
  // `tensors`. `last`: the step of the existing checkpoint, or -1.
  CheckpointWriter(Communicator& comm, CheckpointPaths paths, const TrainingTensors& tensors, const Queue& queue,
                   std::int64_t last = -1);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Waits for the previous checkpoint if it is still being written.
  void begin(const CheckpointState& state);
  void poll();
  void finish();
  std::int64_t committed() const { return committed_; }  // step of the last whole checkpoint; -1: none yet
  // "the last checkpoint is step 40", looking at the disk, or a statement that there is none.
  std::string last_saved() const;
  bool under_way() const { return phase_ != Phase::idle; }
  std::size_t bytes() const { return memory_.bytes(); }  // the copy's

 private:
  enum class Phase : std::uint8_t { idle, copying, writing, committing };
  void find_writers();
  void choose_share();
  void start(std::function<void()> work);
  void collect();
  void commit();
  UserError not_saved(const std::string& reason) const;
  void end_with(int failed_rank);

  Communicator& comm_;
  const CheckpointPaths paths_;
  const TrainingTensors tensors_;
  const Queue queue_;
  std::vector<int> writers_;  // ranks, ascending
  CheckpointShare share_;
  Block memory_;  // holds the copy
  Event copied_;
  TrainingTensors copy_;

  Phase phase_ = Phase::idle;
  CheckpointState state_;
  std::unique_ptr<AtomicDirectory> directory_;  // rank 0's
  std::string path_;                            // that directory's, as this rank sees it
  std::map<std::string, FileDigest> files_;     // this rank's; on rank 0, when all are written, those of all ranks
  std::string error_;                           // the thread's
  std::string mirror_error_;                    // the thread's
  std::atomic<bool> busy_ = false;
  std::thread thread_;
  std::int64_t committed_;
};

}  // namespace longstride
