// The files in a checkpoint's directory: their names, which rank writes which part of them, and their contents.
// checkpoint.h and checkpoint_writer.h have the rest.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/core/files/files.h"
#include "framework/core/files/safetensors.h"
#include "framework/train/checkpoint/checkpoint.h"

namespace longstride {

namespace checkpoint_names {
inline constexpr const char* state = "state.json";
inline constexpr const char* model = "model.safetensors";
inline constexpr const char* average = "ema";           // prefix of the average's file or shards
inline constexpr const char* optimizer = "optimizer-";  // prefix of the moments' shards
inline constexpr const char* factors = "optimizer-factors.safetensors";
inline constexpr const char* states = "states-";  // prefix of the shards of what rows remember
}  // namespace checkpoint_names

std::string checkpoints_directory(const std::string& run);
std::string checkpoint_directory(const std::string& run, std::int64_t step);
void create_checkpoints_directory(const std::string& run);

// The part that one of several writers writes.
struct CheckpointShare {
  bool model = false;  // and Adafactor's moments
  std::vector<FlatRange> moments, average;
  int shard = 0, shards = 1;  // for the moments
  int average_shard = 0, average_shards = 1;
  bool states = false;  // memory of this rank's rows
  int state_shard = 0, state_shards = 1;
  bool empty() const { return !model && moments.empty() && average.empty() && !states; }
  // Its part of a tensor of `count` elements in this file.
  std::vector<FlatRange> part_of(SavedIn file, std::int64_t count) const;
};

// Divides the state as evenly as possible. The model and its average are one file each, for the first two writers; the
// `moments` flat buffers of moments may be cut anywhere and go to the writers that have less.
CheckpointShare share_of_writer(int writer, int writers, std::int64_t flat_size, bool with_average, int moments = 2);
// For a sharded optimizer: every rank writes its own part of the state.
CheckpointShare share_of_owner(int rank, int ranks, const std::vector<FlatRange>& owned, bool with_average);
// One of the two, as the tensors are sharded or not, with the states of the writer's rows.
CheckpointShare share_of(const TrainingTensors& tensors, int writer, int writers);
std::int64_t elements_of(const std::vector<FlatRange>& ranges);

// Removes what earlier crashes left, then creates the directory of a new checkpoint under a temporary name. For one
// rank.
std::unique_ptr<AtomicDirectory> begin_checkpoint(const std::string& run, std::int64_t step);

// Writes a share's files into `directory`, from tensors that hold only that share.
std::map<std::string, FileDigest> write_share(const std::string& directory, std::int64_t step,
                                              const TrainingTensors& tensors, const CheckpointShare& share);

// Writes state.json, which lists `files`, gives the directory its name, and removes the run's oldest checkpoints.
void commit_checkpoint(const std::string& run, const CheckpointState& state,
                       const std::map<std::string, FileDigest>& files, AtomicDirectory& directory, std::int64_t keep,
                       bool keep_best = false);

// Deletes the oldest checkpoints beyond `keep` (0: none), counting only those up to step `newest`: checkpoints of later
// steps were skipped as damaged when the run resumed. With `keep_best` the one with the lowest validation loss stays
// too.
void remove_oldest_checkpoints(const std::string& run, std::int64_t newest, std::int64_t keep, bool keep_best = false);

// Fills the parameters from a file that holds exactly these; `flat` as in TrainingTensors, or the parameters' own
// masters if absent.
void read_parameters(const std::string& path, const ParameterSet& parameters, const Tensor& flat = {});
// Fills all moments, or the average, from all of their shards; `flat` as above.
void read_moments(const std::string& directory, const std::vector<std::string>& shards, const TrainingTensors& tensors);
void read_average(const std::string& directory, const std::vector<std::string>& shards, const ParameterSet& parameters,
                  const Tensor& flat = {});

}  // namespace longstride
