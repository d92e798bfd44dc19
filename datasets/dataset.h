// A prepared dataset: one HDF5 file (the only HDF5 in the project).
//
// Layout: datasets `train`, `valid`, `test` of uint8, shape (sequences, length) for images or (bytes) for text and
// sound; of tokens uint16 where the vocabulary exceeds 256, shape (tokens). Sound from several files and text in
// documents also have `train_boundaries` etc.: int64 offsets, the first 0, the last the length, in tokens if it has
// those; `train_groups` etc. likewise, of sentences or paragraphs, which no document cuts. Labelled sequences have
// `train_labels` etc.: uint8, uint16 or uint32, (sequences) or (sequences, labels); objectives say what they mean: a
// class, labels that are 0 or 1, or where a span begins and ends, in bytes. Labelled groups have `train_group_labels`
// etc.: uint8 or uint16, (groups). `train_zeros` etc. lists the chunks that hold only zeros: int64 pairs of first and
// count. `label_names` is text, one line per class or label. `sources` is text, one line per file: sha256, bytes, name.
// `tokenizer` is the SentencePiece model of tokens (tokens/piece_table.h). Attributes of the root: kind ("bytes" |
// "cifar10" | "images" | "audio" | "tokens"), format_version, tool_version, split (text, with the seed if one is used),
// and geometry: rows, columns, channels; or rate, encoding ("mu-law 255"); or documents ("lines") and groups
// ("sentences"), in words; or vocabulary, and train_text_bytes etc. where the bytes of the tokens' text are known. Each
// array has the sha256 of its bytes. Reading needs only the kind, the splits and the geometry, so other programs can
// write these files too.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "datasets/data_config.h"
#include "datasets/objectives/kinds.h"
#include "framework/core/batch_source.h"

namespace longstride {

class Blob;
class ByteStore;
class Hdf5Input;
class StoredArray;
struct SplitFacts;

inline constexpr const char* split_names[] = {"train", "valid", "test"};

struct DatasetInfo {
  DataKind kind = DataKind::bytes;
  std::int64_t rows = 0, columns = 0, channels = 0;  // images
  std::int64_t rate = 0;                             // audio, samples per second
  std::string encoding, split, tool_version;
  std::string documents, groups;         // how they end; empty: nothing is recorded
  std::vector<std::string> label_names;  // by number; empty: they have none
  bool wide_labels = false;              // to be written in 16 bits
  std::int64_t vocabulary = 256;         // ids of tokens
  std::string tokenizer;                 // SentencePiece's serialised model; empty: none

  std::int64_t image_bytes() const { return rows * columns * channels; }  // 0: not images
  std::int64_t token_bytes() const { return vocabulary > 256 ? 2 : 1; }
  const char* unit() const { return kind == DataKind::tokens ? "token" : "byte"; }
};

const char* name_of(DataKind kind);

// The labels of a split, as many for every sequence; none: it has none.
struct Labels {
  std::vector<std::uint32_t> values;
  std::int64_t each = 1;
};

// A file that the dataset was made from.
struct SourceFile {
  std::string name;
  std::int64_t bytes = 0;
  std::string sha256;
};

struct SplitSize {
  std::int64_t sequences = 0, bytes = 0;  // or tokens
  bool labelled = false;
  std::int64_t groups = 0;      // 0: none are kept
  std::int64_t text_bytes = 0;  // bytes of the tokens' text; 0: not known

  double bytes_per_token() const {
    return bytes > 0 ? static_cast<double>(text_bytes) / static_cast<double>(bytes) : 0;
  }
};

// An open file. Every error (missing, not HDF5, not ours, truncated, wrong types, sizes or checksums, changed since it
// was opened) is a UserError. If another file takes its name, the original stays open and is still read.
class Dataset {
 public:
  static std::shared_ptr<const Dataset> open(const std::string& path);
  // Splits of up to `largest_resident` bytes are read into memory. Messages begin with the blob's name.
  Dataset(std::shared_ptr<const Blob> blob, std::int64_t largest_resident);
  const DatasetInfo& info() const { return info_; }
  const std::string& path() const;
  // split: "train", "valid" or "test". cross_files joins the files of a split into one sequence. A split of up to
  // 512 MiB is read into memory once, here, and compared with its checksum. A larger one is read from the file chunk by
  // chunk; a chunk of zeros that the writer did not list is refused, unless the checksum of the whole split matches.
  std::shared_ptr<const SequenceSet> split(const std::string& name, bool cross_files = false) const;

  // The same as `config` wants it: files, documents or all of it as sequences. UserError if it wants documents that the
  // dataset has not kept.
  std::shared_ptr<const SequenceSet> split(const std::string& name, const DataConfig& config) const;

  SplitSize size(const std::string& split) const;
  // Where the groups within documents end, from 0; empty if none are kept.
  const std::vector<std::int64_t>& groups(const std::string& split) const { return find(split).groups; }
  // The stored checksum of where the files or documents of a split end; empty if they are not kept, or without it.
  std::string sha256_of_boundaries(const std::string& split) const;
  // For `info`: the stored checksum of a split, empty if there is none; all its bytes from first to last, in pieces,
  // not compared with the checksum; its labels.
  std::string stored_sha256(const std::string& split) const;
  void scan(const std::string& split,
            const std::function<void(const std::uint8_t* bytes, std::int64_t count)>& piece) const;
  Labels labels(const std::string& split) const;
  std::vector<std::uint16_t> group_labels(const std::string& split) const;
  std::vector<SourceFile> sources() const;
  // Reads everything. UserError if a checksum differs from the stored one.
  void verify() const;

 private:
  struct Split {
    std::shared_ptr<const StoredArray> array;
    std::vector<std::int64_t> boundaries, groups;  // empty: one sequence, no groups
    std::int64_t text_bytes = 0;
  };

  struct StoredLabels {
    std::unique_ptr<const StoredArray> array;
    std::vector<std::uint32_t> values;
  };

  void open_split(const std::string& name);
  SplitFacts facts_of(const std::string& split) const;                                    // without labels of sequences
  StoredLabels read_labels(const std::string& name, int rank, std::size_t widest) const;  // in bytes
  std::shared_ptr<const ByteStore> store_of(const std::string& name) const;
  bool holds(const std::string& name) const;
  std::vector<std::int64_t> offsets(const std::string& split, const char* level) const;
  const Split& find(const std::string& name) const;
  std::int64_t sequences(const std::string& split) const;
  std::shared_ptr<const ByteStore> resident(const std::string& name) const;
  std::vector<std::uint8_t> optional_bytes(const std::string& name, std::int64_t most) const;
  std::vector<std::string> lines_of(const std::string& name, std::int64_t most) const;

  std::shared_ptr<const Hdf5Input> file_;
  std::int64_t largest_resident_;
  DatasetInfo info_;
  std::map<std::string, Split> splits_;
  mutable std::mutex loading_;
  mutable std::map<std::string, std::shared_ptr<const ByteStore>> resident_;
};

// Training rows of a split. Text and sound: in each epoch a seeded offset and a seeded permutation of the
// non-overlapping windows of `context` bytes; images: a seeded permutation (batch_source.cpp says how epochs are
// counted). UserError, beginning with `where`, if the split holds no whole window. The objective writes the rows, and
// must outlive the source, here and below. `padded`: sequences are cut into windows from their beginning instead, of
// which the last is padded with positions of weight 0.
std::unique_ptr<BatchSource> make_batch_source(std::shared_ptr<const SequenceSet> sequences, std::int64_t context,
                                               std::uint64_t seed, const std::string& where,
                                               const Objective& objective = default_objective(), bool padded = false);

// Training rows in order (DataOrder::streams): row r of the global batch of `rows` reads the r-th of as many equal
// parts of the one sequence, floor(length / rows) bytes each, `context` bytes per step. A part's last bytes that fill
// no context are not read. UserError if there are several sequences, or a part is shorter than the context.
std::unique_ptr<BatchSource> make_stream_source(std::shared_ptr<const SequenceSet> sequences, std::int64_t context,
                                                std::int64_t rows, const std::string& where, std::uint64_t seed = 0,
                                                const Objective& objective = default_objective());

// Rows of steps before `until` that differ from those of later ones.
struct RowStage {
  std::int64_t until = 0, rows = 0, context = 0;
};

// Training rows whose number or length changes on the way: `stages`, of which `until` increases, and then `rows` rows
// of `context` bytes. A stage continues at the place in the data that the steps before it have reached: at the row of
// its own length with number floor(bytes read / context). So what a step reads is a function of the step and the
// stages. `make(context)` gives the rows of a length.
using SourceOfLength = std::function<std::unique_ptr<BatchSource>(std::int64_t context)>;
std::unique_ptr<BatchSource> make_staged_source(const std::vector<RowStage>& stages, std::int64_t rows,
                                                std::int64_t context, const SourceOfLength& make);

// UserError, beginning with `where`, if sequences lack what the objective reads, or have labels that it cannot mean.
void check_answered(const SequenceSet& sequences, const Objective& objective, const std::string& where);
// UserError if its labels have names, but those of the objective are places.
void check_labels_are_read(const DatasetInfo& info, const Objective& objective, const std::string& where);
// The same if they lack the groups that the key `reader` of a recipe reads; empty: none does.
void check_grouped(const SequenceSet& sequences, const std::string& reader, const std::string& where);

// UserError if the dataset's kind, picture size or vocabulary differs from the recipe's.
void check_fits(const Dataset& dataset, const DataConfig& config);

// The training rows of a dataset that fits the recipe's kind and context, for a global batch of `rows`. Stages with
// rows of their own need DataOrder::windows.
std::unique_ptr<BatchSource> open_training_data(const Dataset& dataset, const DataConfig& config, std::uint64_t seed,
                                                std::int64_t rows, const std::vector<RowStage>& stages = {},
                                                const Objective& objective = default_objective());

}  // namespace longstride
