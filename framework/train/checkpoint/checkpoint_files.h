// The files of a checkpoint's directory: their names, which rank writes which part of them, and what is in them. The
// rest is checkpoint.h's and checkpoint_writer.h's.
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
inline constexpr const char* average = "ema";           // what the names of the average's file or shards begin with
inline constexpr const char* optimizer = "optimizer-";  // and of the moments' shards
}  // namespace checkpoint_names

std::string checkpoints_directory(const std::string& run);
std::string checkpoint_directory(const std::string& run, std::int64_t step);
void create_checkpoints_directory(const std::string& run);

// What one writer of several writes.
struct CheckpointShare {
  bool model = false;
  std::vector<FlatRange> moments, average;
  int shard = 0, shards = 1;  // of the moments
  int average_shard = 0, average_shards = 1;
  bool empty() const { return !model && moments.empty() && average.empty(); }
};

// As even as it gets while the model and its average are one file each: they go to the first two writers, and the
// moments, cut anywhere, to those who have less.
CheckpointShare share_of_writer(int writer, int writers, std::int64_t flat_size, bool with_average);
// Where every rank has its own part of the optimizer's state, it writes that.
CheckpointShare share_of_owner(int rank, int ranks, const std::vector<FlatRange>& owned, bool with_average);
std::int64_t elements_of(const std::vector<FlatRange>& ranges);

// The directory of a new checkpoint, under a temporary name, after those of earlier crashes are gone. For one rank.
std::unique_ptr<AtomicDirectory> begin_checkpoint(const std::string& run, std::int64_t step);

// Writes a share's files into `directory`, from tensors that hold just that share.
std::map<std::string, FileDigest> write_share(const std::string& directory, std::int64_t step,
                                              const TrainingTensors& tensors, const CheckpointShare& share);

// Writes state.json, which lists `files`, gives the directory its name, and removes the run's oldest checkpoints.
void commit_checkpoint(const std::string& run, const CheckpointState& state,
                       const std::map<std::string, FileDigest>& files, AtomicDirectory& directory, std::int64_t keep);

// Deletes the oldest checkpoints beyond `keep` (0: none), counting only those up to step `newest`: checkpoints of later
// steps were passed over as damaged when the run resumed.
void remove_oldest_checkpoints(const std::string& run, std::int64_t newest, std::int64_t keep);

// Fills the parameters from a file that holds these and no others; `flat` as in TrainingTensors, or the parameters' own
// masters when absent.
void read_parameters(const std::string& path, const ParameterSet& parameters, const Tensor& flat = {});
// Fills both moments, or the average, from all of their shards; `flat` as above.
void read_moments(const std::string& directory, const std::vector<std::string>& shards, const TrainingTensors& tensors);
void read_average(const std::string& directory, const std::vector<std::string>& shards, const ParameterSet& parameters,
                  const Tensor& flat = {});

}  // namespace longstride
