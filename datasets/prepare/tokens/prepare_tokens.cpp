// Tokens: ids from files of them, or text through a SentencePiece model.
#include <algorithm>
#include <filesystem>
#include <optional>

#include "datasets/formats/input_files.h"
#include "datasets/prepare/dataset_writer.h"
#include "datasets/prepare/prepare.h"
#include "datasets/prepare/split_rule.h"
#include "datasets/prepare/text/named_splits.h"
#include "datasets/prepare/tokens/encode_split.h"
#include "datasets/prepare/tokens/id_files.h"
#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/files/temporaries.h"
#include "framework/core/text/numbers.h"
#include "framework/core/text/printable.h"

namespace longstride {
namespace {

using Config = PrepareTokensConfig;

struct Model {
  std::string content, name;
  PieceTable pieces;
};

std::optional<Model> read_model(const Config& config) {
  if (config.model.empty()) return std::nullopt;
  std::string content = read_file(config.model);
  PieceTable pieces(content, config.model);
  if (config.vocabulary > 0 && config.vocabulary != pieces.size())
    throw user_error(
        "--vocabulary is {}, but {} has {} pieces: it is of another vocabulary; choose the model that the "
        "ids were made with, or leave --vocabulary out",
        config.vocabulary, printable(config.model), pieces.size());
  return Model{std::move(content), config.model, std::move(pieces)};
}

std::vector<std::string> all_inputs(const Config& config) {
  std::vector<std::string> all = config.inputs;
  for (const auto* more : {&config.valid_inputs, &config.test_inputs})
    all.insert(all.end(), more->begin(), more->end());
  return all;
}

bool is_id_file(const std::string& path) { return lower_extension(path) == "bin"; }

// True if the inputs are files of ids, and not text.
bool are_id_files(const Config& config) {
  const std::vector<std::string> inputs = all_inputs(config);
  const auto ids = std::count_if(inputs.begin(), inputs.end(), is_id_file);
  for (const std::string& input : inputs) {
    if (ids > 0 && !is_id_file(input))
      throw user_error("{}: is no .bin file of ids, but others of the inputs are; give one kind", printable(input));
    if (!is_folder(input)) continue;
    const std::vector<std::string> files = files_under(input);
    if (std::any_of(files.begin(), files.end(), is_id_file))
      throw user_error("{}: holds .bin files; name them, as in --input {}/train.bin --valid-input {}/val.bin",
                       printable(input), printable(input), printable(input));
  }
  return ids > 0;
}

DatasetInfo info_of(const std::optional<Model>& model, std::int64_t vocabulary) {
  DatasetInfo info;
  info.kind = DataKind::tokens;
  info.vocabulary = vocabulary;
  if (model) info.tokenizer = model->content;
  return info;
}

void check_of_ids(const Config& config) {
  const auto refuse = [](const char* option) {
    throw user_error("{} is about text, but the inputs are .bin files of ids; leave it out", option);
  };
  if (config.train_vocabulary > 0) refuse("--train-vocabulary");
  if (!config.field.empty()) refuse("--field");
  if (config.documents.documents != DocumentsAre::joined) refuse("--documents");
  if (config.duplicates != Duplicates::keep) refuse("--duplicates");
  if (config.vocabulary == 0 && config.model.empty())
    throw user_error(
        "--vocabulary is missing, but .bin files do not say how many ids there are; add it, such as --vocabulary 50257 "
        "for GPT-2's, or their SentencePiece model with --model");
}

// The splits of ids of one file: how many go to each, in order.
using Shares = std::vector<std::pair<IdFile, SplitCounts>>;

void write_ids(Shares& files, const std::optional<Model>& model, DatasetWriter& writer, std::int64_t vocabulary,
               const PrepareOutput& output) {
  std::int64_t total = 0;
  for (const auto& [file, counts] : files) total += 2 * file.count();
  InputProgress progress(output.progress, total);
  for (auto& [file, counts] : files) {
    SplitCounts left = counts;
    std::size_t split = 0;
    file.read(vocabulary, [&](std::span<const std::uint16_t> ids) {
      progress.add(2 * std::ssize(ids));
      while (!ids.empty()) {
        while (left[split] == 0) ++split;
        const auto part = ids.first(static_cast<std::size_t>(std::min<std::int64_t>(left[split], std::ssize(ids))));
        std::int64_t bytes = 0;
        if (model)
          for (const std::uint16_t id : part) bytes += std::ssize(model->pieces.text(id));
        writer.append_tokens(static_cast<SplitId>(split), part, bytes);
        left[split] -= std::ssize(part);
        ids = ids.subspan(part.size());
      }
    });
    writer.add_source(file.source());
  }
}

void prepare_ids(const Config& config, const PrepareOutput& output) {
  check_of_ids(config);
  check_distinct(all_inputs(config));
  if (config.splits_given() && !config.split.empty())
    throw user_error("--split is '{}', but --valid-input and --test-input give the splits; leave one of them out",
                     config.split);
  const std::optional<Model> model = read_model(config);
  const std::int64_t vocabulary = model ? model->pieces.size() : config.vocabulary;
  Shares files;
  SplitCounts counts{};
  const std::vector<std::string>* const inputs[] = {&config.inputs, &config.valid_inputs, &config.test_inputs};
  for (std::size_t s = 0; s < 3; ++s)
    for (const std::string& path : *inputs[s]) {
      IdFile file(path);
      SplitCounts own{};
      own[s] = file.count();
      counts[s] += own[s];
      files.emplace_back(std::move(file), own);
    }
  std::string divided = "by the inputs given";
  if (!config.splits_given()) {
    const SplitRule rule = SplitRule::parse(config.split.empty() ? "0.9,0.05,0.05" : config.split);
    const std::string name = files.size() == 1 ? config.inputs.front() : "the inputs";
    counts = rule.divide(counts[0], name, "ids");
    if (!config.split.empty()) rule.check_shares(counts, name, "ids");
    SplitCounts left = counts;
    for (auto& [file, own] : files) {
      std::int64_t of_file = file.count();
      for (std::size_t s = 0; s < 3; ++s) {
        own[s] = std::min(of_file, left[s]);
        of_file -= own[s], left[s] -= own[s];
      }
    }
    divided = rule.text();
  }
  const FoldersOf folders(output.path);
  DatasetWriter writer(output.path, info_of(model, vocabulary), output.replace);
  write_ids(files, model, writer, vocabulary, output);
  writer.commit(fmt::format("{}: {} tokens train, {} valid, {} test", divided, counts[0], counts[1], counts[2]));
}

void check_of_text(const Config& config) {
  if (config.model.empty() == (config.train_vocabulary == 0))
    throw user_error(
        "text becomes tokens by a SentencePiece model: give one with --model, or have one trained with "
        "--train-vocabulary 4096{}",
        config.model.empty() ? "" : ", and not both");
  if (config.train_vocabulary > 0 && config.vocabulary > 0)
    throw user_error("--vocabulary is {}, but --train-vocabulary is {}; leave --vocabulary out", config.vocabulary,
                     config.train_vocabulary);
  check_encodes_text();
}

// The dataset of bytes that `prepare bytes` makes of the text: a file beside the output, removed at the end.
class PreparedText {
 public:
  PreparedText(const Config& config, const PrepareOutput& output) : path_(temporary_path(output.path)) {
    PrepareOutput here = output;
    here.path = path_;
    here.replace = true;
    prepare_bytes(config, here);
    dataset_ = Dataset::open(path_);
  }
  ~PreparedText() {
    std::error_code ignored;
    dataset_.reset();
    std::filesystem::remove(path_, ignored);
  }
  PreparedText(const PreparedText&) = delete;
  PreparedText& operator=(const PreparedText&) = delete;
  const Dataset& dataset() const { return *dataset_; }

 private:
  std::string path_;
  std::shared_ptr<const Dataset> dataset_;
};

void prepare_text(const Config& config, const PrepareOutput& output) {
  check_of_text(config);
  std::optional<Model> model = read_model(config);
  const FoldersOf folders(output.path);
  const PreparedText prepared(config, output);
  const Dataset& text = prepared.dataset();
  if (!model) {
    if (text.size("train").bytes == 0)
      throw user_error("--train-vocabulary trains on 'train', which is empty; give it a larger share of the text");
    const std::string name = fmt::format("--train-vocabulary {}", config.train_vocabulary);
    std::string content = train_pieces(config.train_vocabulary, lines_to_train_on(text));
    PieceTable pieces(content, name);
    model = Model{std::move(content), name, std::move(pieces)};
  }
  const auto encoder = make_text_ids(model->content, model->pieces, model->name);
  DatasetInfo info = info_of(model, model->pieces.size());
  info.documents = text.info().documents;
  DatasetWriter writer(output.path, info, output.replace);
  std::int64_t total = 0;
  for (const char* split : split_names) total += text.size(split).bytes;
  InputProgress progress(output.progress, total);
  for (std::size_t s = 0; s < 3; ++s)
    encode_split(text, static_cast<SplitId>(s), model->pieces, *encoder, writer,
                 [&](std::int64_t bytes) { progress.add(bytes); });
  for (const SourceFile& source : text.sources()) writer.add_source(source);
  writer.commit(text.info().split);
}

}  // namespace

void prepare_tokens(const PrepareTokensConfig& given, const PrepareOutput& output) {
  std::vector<std::string> inputs = all_inputs(given);
  if (!given.model.empty()) inputs.push_back(given.model);
  check_output(output.path, output.replace, inputs);
  Config config = given;
  static_cast<PrepareBytesConfig&>(config) = with_named_splits(given, output);
  are_id_files(config) ? prepare_ids(config, output) : prepare_text(config, output);
}

}  // namespace longstride
