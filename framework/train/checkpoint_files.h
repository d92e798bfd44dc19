// The files of a checkpoint's directory: their names, which rank writes which part of them, and what is in them. The
// rest is checkpoint.h's and checkpoint_writer.h's.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/core/files.h"
#include "framework/core/safetensors.h"
#include "framework/train/checkpoint.h"

namespace longstride {

namespace checkpoint_names {
inline constexpr const char* state = "state.json";
inline constexpr const char* model = "model.safetensors";
inline constexpr const char* average = "ema.safetensors";
inline constexpr const char* optimizer = "optimizer-";  // what the names of the moments' shards begin with
}  // namespace checkpoint_names

std::string checkpoints_directory(const std::string& run);
std::string checkpoint_directory(const std::string& run, std::int64_t step);
void create_checkpoints_directory(const std::string& run);

// What one writer of several writes.
struct CheckpointShare {
  bool model = false, average = false;
  std::int64_t begin = 0, end = 0;  // of the moments' flat buffers
  int shard = 0, shards = 1;        // the number of that range, and of ranges
  std::int64_t elements(std::int64_t flat_size) const {
    return (model ? flat_size : 0) + (average ? flat_size : 0) + 2 * (end - begin);
  }
  int files() const { return (model ? 1 : 0) + (average ? 1 : 0) + (end > begin ? 1 : 0); }
};

// As even as it gets while the model and its average are one file each: they go to the first two writers, and the
// moments, cut anywhere, to those who have less.
CheckpointShare share_of_writer(int writer, int writers, std::int64_t flat_size, bool with_average);

// The directory of a new checkpoint, under a temporary name, after those of earlier crashes are gone. For one rank.
std::unique_ptr<AtomicDirectory> begin_checkpoint(const std::string& run, std::int64_t step);

// Writes a share's files into `directory`. Of `tensors` only what the share names must be there.
std::map<std::string, FileDigest> write_share(const std::string& directory, std::int64_t step,
                                              const TrainingTensors& tensors, const CheckpointShare& share);

// Writes state.json, which lists `files`, gives the directory its name, and removes the run's oldest checkpoints.
void commit_checkpoint(const std::string& run, const CheckpointState& state,
                       const std::map<std::string, FileDigest>& files, AtomicDirectory& directory, std::int64_t keep);

// Fills the parameters from a file that holds these and no others; `flat` as in TrainingTensors, or the parameters' own
// masters when absent.
void read_parameters(const std::string& path, const ParameterSet& parameters, const Tensor& flat = {});
// Fills both moments from all shards.
void read_moments(const std::string& directory, const std::vector<std::string>& shards, const TrainingTensors& tensors);

}  // namespace longstride
