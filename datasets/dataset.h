// A prepared dataset: one HDF5 file (design: datasets are the only HDF5 in the project).
//
// Layout: datasets `train`, `valid`, `test` of uint8, shape (sequences, length) for images or (bytes) for streams.
// Streams of several files (audio) also have `train_boundaries` etc.: int64 offsets, first 0, last the length.
// Attributes of the root: kind ("bytes" | "cifar10" | "images" | "audio"), format_version, tool_version, split (text),
// sources (JSON: file, bytes, sha256), and geometry: rows, columns, channels; or rate, encoding ("mu-law 255").
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "datasets/data_config.h"
#include "framework/core/batch_source.h"

namespace longstride {

struct DatasetInfo {
  DataKind kind = DataKind::bytes;
  std::int64_t rows = 0, columns = 0, channels = 0;  // images
  std::int64_t rate = 0;                             // audio, samples a second
  std::string encoding, split, sources_json, tool_version;
};

// An open file. Every error (not there, not HDF5, not ours, truncated, wrong types or sizes) is a UserError.
class Dataset {
 public:
  static std::shared_ptr<const Dataset> open(const std::string& path);
  virtual ~Dataset() = default;
  virtual const DatasetInfo& info() const = 0;
  virtual const std::string& path() const = 0;
  // split: "train", "valid" or "test". cross_files joins the files of a stream into one sequence.
  virtual std::shared_ptr<const SequenceSet> split(const std::string& name, bool cross_files = false) const = 0;
};

// Training rows of a split. Streams: each epoch a seeded offset and a seeded permutation of the non-overlapping
// windows of `context` bytes; images: a seeded permutation. UserError when the split holds no whole window.
std::unique_ptr<BatchSource> make_batch_source(std::shared_ptr<const SequenceSet> sequences, std::int64_t context,
                                               std::uint64_t seed, const std::string& where);

// Opens config.path, checks that it fits the recipe's kind and context, and gives the training rows.
std::unique_ptr<BatchSource> open_training_data(const DataConfig& config, std::uint64_t seed);

}  // namespace longstride
