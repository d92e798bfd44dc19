// The data of a run: what a checkpoint records about it, and whether a dataset is that data.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "framework/train/checkpoint/checkpoint.h"
#include "launch/run/run_directory.h"

namespace longstride {

// path, kind, geometry or rate and encoding or the SHA-256 of the tokenizer, the bytes or tokens of train and the
// SHA-256 of each split, and of where the documents of train end. Checksums that the file lacks, because another
// program wrote it, are computed here.
DataRecord record_of(const Dataset& dataset);
inline constexpr const char *train_bytes_name = "train_bytes", *train_text_bytes_name = "train_text_bytes";  // in it
// Tells the recipe's objective how many bytes of text a token of train has, if its data is tokens.
void tell_objective(const Recipe& recipe, const DataRecord& data);

std::string sha256_of_text(const std::string& text);
// For messages: that the ids of tokens are not those that the model was trained on, as far as is known: "its ids are of
// tokenizer 0123..., but the model was trained on ids without a tokenizer, so ..."; empty if they are.
std::string other_tokenizer(const DataRecord& trained_on, const DataRecord& now);
// For messages: the first digits of a SHA-256; other text as it is.
std::string short_checksum(const std::string& text);

// How often training reads every byte or token of train, on average.
struct Passes {
  double count = 0;
  std::int64_t train_bytes = 0;
  const char* unit = "bytes";

  std::string number() const;   // "0.43", "18,963"
  std::string text() const;     // "12 passes over 4,150,000 bytes of train"
  std::string warning() const;  // empty for up to 100
};
Passes passes_of(const Recipe& recipe, std::int64_t train_bytes);

// The training rows that a recipe's steps read. Tells the objective what a record would.
std::unique_ptr<BatchSource> open_rows(const Dataset& dataset, const Recipe& recipe);

// The fields of the rows that a recipe's model reads, for other programs and for people. Where the model reads the byte
// before a position and predicts its own, tokens are what it predicts.
BatchFields exported_fields(const Recipe& recipe);

// Opens the run's dataset to score or show its `split`, or `other` if that is not empty. UserError if its kind,
// geometry, sampling rate or encoding differ from what the model was trained on, or if the run's own dataset has
// changed since.
std::shared_ptr<const Dataset> open_run_data(const LoadedRun& run, const std::string& other, const std::string& split);
// The same for a command that reads no other dataset; `remedy` says what a user may do if it has changed.
std::shared_ptr<const Dataset> open_own_data(const LoadedRun& run, const std::string& split, const std::string& remedy);

// Names of the classes or labels, by number, from the dataset that the run was trained on. Empty if they have none, or
// if the dataset is not there any more or has others.
std::vector<std::string> label_names_of(const LoadedRun& run);

}  // namespace longstride
