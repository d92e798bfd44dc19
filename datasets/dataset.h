// A prepared dataset: one HDF5 file (the only HDF5 in the project).
//
// Layout: datasets `train`, `valid`, `test` of uint8, shape (sequences, length) for images or (bytes) for streams.
// Streams of several files (audio) also have `train_boundaries` etc.: int64 offsets, first 0, last the length.
// Labelled images have `train_labels` etc.: uint8 (sequences). `train_zeros` etc. notes the chunks that hold zeros
// only: int64 pairs of first and count. `sources` is text, one line per file: sha256, bytes, name. Attributes of the
// root: kind ("bytes" | "cifar10" | "images" | "audio"), format_version, tool_version, split (text, with its seed where
// one is drawn), and geometry: rows, columns, channels; or rate, encoding ("mu-law 255"). Each array has the sha256 of
// its bytes. Only kind, the splits and the geometry are needed to read one, so other programs may write such files too.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "datasets/data_config.h"
#include "framework/core/batch_source.h"

namespace longstride {

class Blob;
class ByteStore;
class Hdf5Input;
class StoredArray;

inline constexpr const char* split_names[] = {"train", "valid", "test"};

struct DatasetInfo {
  DataKind kind = DataKind::bytes;
  std::int64_t rows = 0, columns = 0, channels = 0;  // images
  std::int64_t rate = 0;                             // audio, samples per second
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
// it was opened) is a UserError. A file whose name another file takes stays open, and is read as it was.
class Dataset {
 public:
  static std::shared_ptr<const Dataset> open(const std::string& path);
  // Splits of up to `largest_resident` bytes are read into memory. Messages begin with the blob's name.
  Dataset(std::shared_ptr<const Blob> blob, std::int64_t largest_resident);
  const DatasetInfo& info() const { return info_; }
  const std::string& path() const;
  // split: "train", "valid" or "test". cross_files joins the files of a stream into one sequence. A split of up to
  // 512 MiB is read into memory here, once, and compared with its checksum. A larger one is read from the file chunk by
  // chunk; a chunk of zeros that the writer did not note is refused, unless the whole split has its checksum.
  std::shared_ptr<const SequenceSet> split(const std::string& name, bool cross_files = false) const;

  SplitSize size(const std::string& split) const;
  // For `info`. The checksum of a split as it was written, empty when the file has none; all bytes of a split from
  // first to last, in pieces, not compared with the checksum; class labels, empty when there are none.
  std::string stored_sha256(const std::string& split) const;
  void scan(const std::string& split,
            const std::function<void(const std::uint8_t* bytes, std::int64_t count)>& piece) const;
  std::vector<std::uint8_t> labels(const std::string& split) const;
  std::vector<SourceFile> sources() const;
  // Reads everything. UserError where something has another checksum than was stored with it.
  void verify() const;

 private:
  struct Split {
    std::shared_ptr<const StoredArray> array;
    std::vector<std::int64_t> boundaries;  // empty: one sequence
  };

  void open_split(const std::string& name);
  bool holds(const std::string& name) const;
  const Split& find(const std::string& name) const;
  std::shared_ptr<const ByteStore> resident(const std::string& name) const;
  std::vector<std::uint8_t> optional_bytes(const std::string& name, std::int64_t most) const;

  std::shared_ptr<const Hdf5Input> file_;
  std::int64_t largest_resident_;
  DatasetInfo info_;
  std::map<std::string, Split> splits_;
  mutable std::mutex loading_;
  mutable std::map<std::string, std::shared_ptr<const ByteStore>> resident_;
};

// Training rows of a split. Streams: each epoch a seeded offset and a seeded permutation of the non-overlapping
// windows of `context` bytes; images: a seeded permutation (batch_source.cpp says how epochs are counted). UserError,
// beginning with `where`, when the split holds no whole window.
std::unique_ptr<BatchSource> make_batch_source(std::shared_ptr<const SequenceSet> sequences, std::int64_t context,
                                               std::uint64_t seed, const std::string& where);

// UserError when the dataset's kind, or the size of its pictures, is not the recipe's.
void check_fits(const Dataset& dataset, const DataConfig& config);

// The training rows of a dataset that fits the recipe's kind and context.
std::unique_ptr<BatchSource> open_training_data(const Dataset& dataset, const DataConfig& config, std::uint64_t seed);

}  // namespace longstride
