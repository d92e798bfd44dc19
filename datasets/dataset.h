// A prepared dataset: one HDF5 file (the only HDF5 in the project).
//
// Layout: datasets `train`, `valid`, `test` of uint8, shape (sequences, length) for images or (bytes) for streams.
// Streams of several files (audio) also have `train_boundaries` etc.: int64 offsets, first 0, last the length.
// Labelled images have `train_labels` etc.: uint8 (sequences). `train_zeros` etc. notes the chunks that hold zeros
// only: int64 pairs of first and count. `sources` is text, a line a file: sha256, bytes, name. Attributes of the root:
// kind ("bytes" | "cifar10" | "images" | "audio"), format_version, tool_version, split (text, with its seed where one
// is drawn), and geometry: rows, columns, channels; or rate, encoding ("mu-law 255"). Of each array: sha256 of its
// bytes. Only kind, the splits and the geometry are needed to read one, so other programs may write such files too.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "datasets/data_config.h"
#include "framework/core/batch_source.h"

namespace longstride {

inline constexpr const char* split_names[] = {"train", "valid", "test"};

struct DatasetInfo {
  DataKind kind = DataKind::bytes;
  std::int64_t rows = 0, columns = 0, channels = 0;  // images
  std::int64_t rate = 0;                             // audio, samples a second
  std::string encoding, split, tool_version;

  std::int64_t image_bytes() const { return rows * columns * channels; }  // 0: a stream
};

const char* name_of(DataKind kind);

// A file that the dataset was made from.
struct SourceFile {
  std::string name;
  std::int64_t bytes = 0;
  std::string sha256;
};

struct SplitSize {
  std::int64_t sequences = 0, bytes = 0;
  bool labelled = false;
};

// An open file. Every error (not there, not HDF5, not ours, truncated, wrong types, sizes or checksums, changed since
// it was opened) is a UserError. A file that another takes the name of stays open, and is read as it was.
class Dataset {
 public:
  static std::shared_ptr<const Dataset> open(const std::string& path);
  virtual ~Dataset() = default;
  virtual const DatasetInfo& info() const = 0;
  virtual const std::string& path() const = 0;
  // split: "train", "valid" or "test". cross_files joins the files of a stream into one sequence. A split of up to
  // 512 MiB is read into memory here, once, and held against its checksum. A larger one is read from the file chunk by
  // chunk; a chunk of zeros that the writer did not note is refused, unless the whole split has its checksum.
  virtual std::shared_ptr<const SequenceSet> split(const std::string& name, bool cross_files = false) const = 0;

  virtual SplitSize size(const std::string& split) const = 0;
  // For `info`. The checksum of a split as it was written, empty when the file has none; all bytes of a split from
  // first to last, in pieces, not held against the checksum; class labels, empty when there are none.
  virtual std::string stored_sha256(const std::string& split) const = 0;
  virtual void scan(const std::string& split,
                    const std::function<void(const std::uint8_t* bytes, std::int64_t count)>& piece) const = 0;
  virtual std::vector<std::uint8_t> labels(const std::string& split) const = 0;
  virtual std::vector<SourceFile> sources() const = 0;
  // Reads everything. UserError where something has another checksum than was stored with it.
  virtual void verify() const = 0;
};

// Training rows of a split. Streams: each epoch a seeded offset and a seeded permutation of the non-overlapping
// windows of `context` bytes; images: a seeded permutation (batch_source.cpp says how epochs are counted). UserError,
// beginning with `where`, when the split holds no whole window.
std::unique_ptr<BatchSource> make_batch_source(std::shared_ptr<const SequenceSet> sequences, std::int64_t context,
                                               std::uint64_t seed, const std::string& where);

// UserError when the dataset's kind, or the size of its pictures, is not the recipe's.
void check_fits(const Dataset& dataset, const DataConfig& config);

// Opens config.path, checks that it fits the recipe's kind and context, and gives the training rows.
std::unique_ptr<BatchSource> open_training_data(const DataConfig& config, std::uint64_t seed);

}  // namespace longstride
