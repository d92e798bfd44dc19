// `longstride prepare`: from raw data to a dataset file. One function per kind, each with its own Config. None holds
// the whole dataset in memory. All write atomically, and throw UserError for bad input, leaving nothing behind.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace longstride {

// Called often with the bytes of input done and in total (0: not known yet, while it is looked at); an exception stops
// the work and leaves nothing behind.
using PrepareProgress = std::function<void(std::int64_t done, std::int64_t total)>;

// Counts the bytes done and reports progress.
class InputProgress {
 public:
  InputProgress(PrepareProgress progress, std::int64_t total) : progress_(std::move(progress)), total_(total) {}
  void add(std::int64_t bytes) {
    done_ = std::min(done_ + bytes, total_);
    if (progress_) progress_(done_, total_);
  }

 private:
  PrepareProgress progress_;
  std::int64_t total_, done_ = 0;
};

// Receives notes for the user about the input, one sentence per call.
using PrepareNote = std::function<void(const std::string& sentence)>;

struct PrepareOutput {
  std::string path;      // dataset file to write
  bool replace = false;  // a file of that name may be replaced
  PrepareProgress progress = {};
  PrepareNote note = {};  // may be empty
  PrepareNote warn = {};  // likewise: what the user has to know even if notes are not shown

  void say(const std::string& sentence) const {
    if (note && !sentence.empty()) note(sentence);
  }
  // Reports `bytes` of input that were looked at before the total is known.
  void looked_at(std::int64_t bytes) const {
    if (progress) progress(bytes, 0);
  }
};

// A file whose content an earlier one has goes into the split of that one, is left out, or ends the work (copies.h).
enum class Duplicates : std::uint8_t { keep, drop, refuse };

// How documents end in bytes (documents/document_cutter.h): nowhere, at marks, with their files, or with their lines;
// or they are the records of FASTA files.
enum class DocumentsAre : std::uint8_t { joined, marks, files, lines, fasta };
enum class GroupsAre : std::uint8_t { none, sentences, paragraphs, lead };  // lead: title, lead and rest

struct DocumentRule {
  DocumentsAre documents = DocumentsAre::joined;
  std::string mark = "<|endoftext|>";  // GPT-2's
  GroupsAre groups = GroupsAre::none;  // within documents
  std::string letters = "ACGTN";       // that FASTA may have; lower case is turned into upper case
  std::string other_letters = {};      // one of them in place of all others; empty: others are refused
};

struct PrepareBytesConfig {
  std::vector<std::string> inputs;  // files, folders, or "-", standard input; joined in this order (joined_inputs.h)
  std::string split = {};           // counts, fractions or "enwik8", for all inputs joined; empty: 0.9,0.05,0.05
  bool raw = false;                 // use the bytes of packed files as they are
  bool any = false;                 // take files that are no text
  Duplicates duplicates = Duplicates::keep;
  DocumentRule documents = {};
  std::vector<std::string> valid_inputs = {}, test_inputs = {};  // given splits; without both, `inputs` is divided
  std::string field = {};  // inputs are lines of JSON, of which this field is taken (field_stream.h)

  bool splits_given() const { return !valid_inputs.empty() || !test_inputs.empty(); }
  std::string labels = {};        // "folder", or a table for documents (documents/labels.h); empty: none
  std::string group_labels = {};  // table of numbers for the groups of documents; empty: none
  std::string classes = {};       // their names in order, separated by commas; empty: those that occur, sorted
  // Documents go to the splits whole, at random by this seed. Absent: by their place in the input; if they are
  // labelled, by the seed 1.
  std::optional<std::uint64_t> seed = {};
};
void prepare_bytes(const PrepareBytesConfig& config, const PrepareOutput& output);

// Tokens. Inputs: .bin files of 16-bit ids (tokens/id_files.h), of `vocabulary`; or text, as prepare_bytes takes it, by
// a SentencePiece model, which is given or trained on train. Labels and groups are not read.
struct PrepareTokensConfig : PrepareBytesConfig {
  std::int64_t vocabulary = 0;        // ids are below it; 0: the model's
  std::string model = {};             // SentencePiece's file
  std::int64_t train_vocabulary = 0;  // pieces of a model to train; 0: none
};
void prepare_tokens(const PrepareTokensConfig& config, const PrepareOutput& output);

// Examples of a task, made from nothing but a seed (examples/task.h).
struct Task;
struct PrepareExamplesConfig {
  const Task* task = nullptr;
  std::string split = {};  // numbers of examples; empty: the published ones
  std::uint64_t seed = 1;
};
void prepare_examples(const PrepareExamplesConfig& config, const PrepareOutput& output);

struct PrepareCifar10Config {
  std::vector<std::string> inputs;  // batch files, or a folder or archive of them; test_batch* is the test set
  std::uint64_t seed = 1;           // for dividing the training batches into train and valid
};
// 4% of the training records go to valid: 2,000 of all 50,000. Without a test batch, test is empty.
void prepare_cifar10(const PrepareCifar10Config& config, const PrepareOutput& output);

// Many files, divided by `split` unless the splits are given.
struct PrepareFilesConfig {
  std::vector<std::string> inputs;
  std::vector<std::string> valid_inputs, test_inputs;  // given splits; without both, `inputs` is divided
  std::string split = {};
  bool skip_others = false;  // accept inputs from which more files are left out than taken
  std::uint64_t seed = 1;    // for the division
  Duplicates duplicates = Duplicates::keep;

  bool splits_given() const { return !valid_inputs.empty() || !test_inputs.empty(); }
};

// A picture of another size: refused, or scaled so that the shorter side fits (the longer one is cut at both ends), or
// so that the longer side fits (the rest is black).
enum class PictureFit : std::uint8_t { exact, crop, pad };
// A picture that is partly transparent keeps its colours as they are, or gets a background.
enum class PictureAlpha : std::uint8_t { refuse, drop, black, white };

// Inputs: folders, archives, .npy, .npz or picture files (picture_source.h). split: counts or fractions, at random;
// empty: 0.9,0.05,0.05.
struct PrepareImagesConfig : PrepareFilesConfig {
  std::int64_t side = 64;     // rows and columns of every picture
  bool convert_grey = false;  // accept grey pictures
  PictureFit fit = PictureFit::exact;
  PictureAlpha alpha = PictureAlpha::refuse;
};
void prepare_images(const PrepareImagesConfig& config, const PrepareOutput& output);

// Inputs: folders, or sound files, recognised by their content. split: fractions of the duration; empty: 0.8,0.1,0.1.
struct PrepareAudioConfig : PrepareFilesConfig {
  std::int64_t rate = 12000;  // samples per second
  double cut = 0;             // seconds: where files may be divided between splits, at multiples of it; 0: nowhere
};
// Channels are averaged, resampled and mu-law encoded to 8 bits.
void prepare_audio(const PrepareAudioConfig& config, const PrepareOutput& output);

// Writes one file of an audio dataset as WAV: what the model hears.
struct DecodeAudioConfig {
  std::string dataset, split = "train";
  std::int64_t index = 0;  // the file's number in its split
};
void decode_audio(const DecodeAudioConfig& config, const PrepareOutput& output);

}  // namespace longstride
