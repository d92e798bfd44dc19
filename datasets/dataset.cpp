#include "datasets/dataset.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "datasets/formats/byte_input.h"
#include "datasets/hdf5/stored_array.h"
#include "datasets/split_view.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"
#include "framework/core/text/printable.h"

namespace longstride {
namespace {

constexpr std::int64_t longest_side = 1 << 20, largest_vocabulary = 65535;

struct KindName {
  DataKind kind;
  const char* name;
};
constexpr std::array<KindName, 5> kinds = {{{DataKind::bytes, "bytes"},
                                            {DataKind::cifar10, "cifar10"},
                                            {DataKind::images, "images"},
                                            {DataKind::audio, "audio"},
                                            {DataKind::tokens, "tokens"}}};

DatasetInfo read_info(hid_t file, const std::string& path) {
  DatasetInfo info;
  const auto kind = hdf5::text_attribute(file, "kind");
  if (!kind) throw not_ours(path, "has no attribute 'kind'");
  const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const KindName& k) { return *kind == k.name; });
  if (found == kinds.end())
    throw not_ours(path,
                   fmt::format("its kind is '{}', not bytes, cifar10, images, audio or tokens", printable(*kind)));
  info.kind = found->kind;
  const std::int64_t version = hdf5::integer_attribute(file, "format_version").value_or(1);
  if (version != 1)
    throw user_error("{}: has format_version {}, but this program reads version 1; prepare it again", path, version);

  const auto positive = [&](const char* name, std::int64_t most) {
    const auto value = hdf5::integer_attribute(file, name);
    if (!value) throw not_ours(path, fmt::format("has no attribute '{}', which {} needs", name, *kind));
    if (*value < 1 || *value > most)
      throw not_ours(path, fmt::format("its attribute '{}' is {}, not 1 to {}", name, *value, most));
    return *value;
  };
  if (info.kind == DataKind::cifar10 || info.kind == DataKind::images) {
    info.rows = positive("rows", longest_side);
    info.columns = positive("columns", longest_side);
    info.channels = positive("channels", 4);
  }
  if (info.kind == DataKind::audio) info.rate = positive("rate", 1 << 24);
  if (info.kind == DataKind::tokens) info.vocabulary = positive("vocabulary", largest_vocabulary);
  info.encoding = hdf5::text_attribute(file, "encoding").value_or("");
  info.documents = hdf5::text_attribute(file, "documents").value_or("");
  info.groups = hdf5::text_attribute(file, "groups").value_or("");
  info.split = hdf5::text_attribute(file, "split").value_or("");
  info.tool_version = hdf5::text_attribute(file, "tool_version").value_or("");
  return info;
}

// Numbers stored with a checksum of their bytes.
std::vector<std::int64_t> read_numbers(const std::shared_ptr<const Hdf5Input>& file, const std::string& name) {
  const StoredArray array(file, name, {1, sizeof(std::int64_t)});
  const std::vector<std::uint8_t> bytes = array.read_all();
  std::vector<std::int64_t> out(bytes.size() / sizeof(std::int64_t));
  if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

}  // namespace

Dataset::Dataset(std::shared_ptr<const Blob> blob, std::int64_t largest_resident)
    : file_(std::make_shared<const Hdf5Input>(std::move(blob))), largest_resident_(largest_resident) {
  const hdf5::Lock lock;
  info_ = read_info(file_->handle(), path());
  info_.label_names = lines_of("label_names", std::int64_t{1} << 26);
  if (info_.kind == DataKind::tokens) {
    const std::vector<std::uint8_t> model = optional_bytes("tokenizer", std::int64_t{1} << 26);
    info_.tokenizer.assign(model.begin(), model.end());
  }
  for (const char* name : split_names) open_split(name);
}

const std::string& Dataset::path() const { return file_->name(); }

std::shared_ptr<const SequenceSet> Dataset::split(const std::string& name, bool cross_files) const {
  const Split& split = find(name);
  const StoredArray& array = *split.array;
  const std::shared_ptr<const ByteStore> store = store_of(name);
  const SplitFacts whole = facts_of(name);
  SplitFacts facts = whole;
  facts.labels = std::make_shared<const Labels>(labels(name));
  if (info_.rows > 0) return images_view(store, array.rows(), array.row_bytes(), facts);
  if (split.boundaries.empty() || cross_files) return stream_view(store, {0, array.rows()}, whole);
  return stream_view(store, split.boundaries, facts);
}

std::shared_ptr<const SequenceSet> Dataset::split(const std::string& name, const DataConfig& config) const {
  const bool text = is_text(info_.kind);
  if (config.documents == Documents::joined) return split(name, text || config.cross_files);
  const Split& found = find(name);
  if (found.boundaries.empty() && found.array->bytes() > 0)
    throw user_error(
        "{}: has not kept where documents end in '{}', but data.documents is {}; prepare it with --documents marks, "
        "files, lines or fasta, or set data.documents: joined",
        path(), name, name_of(config.documents));
  if (config.documents == Documents::rows || found.boundaries.empty()) return split(name);
  return documents_view(store_of(name), found.boundaries, facts_of(name));
}

SplitFacts Dataset::facts_of(const std::string& name) const {
  SplitFacts facts{find(name).groups, nullptr, group_labels(name)};
  facts.vocabulary = info_.vocabulary;
  facts.where = find(name).array->where();
  if (info_.kind == DataKind::tokens) facts.bytes_per_token = size(name).bytes_per_token();
  return facts;
}

SplitSize Dataset::size(const std::string& name) const {
  const Split& split = find(name);
  const std::int64_t bytes = split.array->bytes() / info_.token_bytes();
  const std::int64_t groups = split.groups.empty() ? 0 : std::ssize(split.groups) - 1;
  return {bytes == 0 ? 0 : sequences(name), bytes, holds(name + "_labels"), groups, split.text_bytes};
}

std::string Dataset::sha256_of_boundaries(const std::string& name) const {
  if (find(name).boundaries.empty()) return "";
  return StoredArray(file_, name + "_boundaries", {1, sizeof(std::int64_t)}).stored_sha256();
}

std::string Dataset::stored_sha256(const std::string& name) const { return find(name).array->stored_sha256(); }

void Dataset::scan(const std::string& name, const std::function<void(const std::uint8_t*, std::int64_t)>& piece) const {
  find(name).array->scan(piece);
}

std::int64_t Dataset::sequences(const std::string& name) const {
  const Split& split = find(name);
  if (info_.rows > 0) return split.array->rows();
  return split.boundaries.empty() ? 1 : std::ssize(split.boundaries) - 1;
}

Labels Dataset::labels(const std::string& split) const {
  constexpr std::int64_t most = 4096;  // labels per sequence
  const std::string name = split + "_labels";
  if (!holds(name)) return {};
  const int rank = StoredArray::type_in(*file_, name).rank;
  const auto [array, values] = read_labels(name, rank == 2 ? 2 : 1, 4);
  const std::int64_t each = rank == 2 && array->rows() > 0 ? std::ssize(values) / array->rows() : 1;
  if (array->rows() > sequences(split) || each > most)
    throw user_error("{} has {} rows of {} labels for {} sequences; prepare the file again", array->where(),
                     thousands(array->rows()), thousands(each), thousands(sequences(split)));
  return {values, each};
}

std::vector<std::uint16_t> Dataset::group_labels(const std::string& split) const {
  const std::string name = split + "_group_labels";
  if (!holds(name)) return {};
  const auto [array, values] = read_labels(name, 1, 2);
  const std::int64_t groups = std::max<std::int64_t>(std::ssize(find(split).groups) - 1, 0);
  if (array->rows() != groups)
    throw user_error("{} has {} labels for {} groups; prepare the file again", array->where(), thousands(array->rows()),
                     thousands(groups));
  return {values.begin(), values.end()};
}

// Numbers of 8, 16 or 32 bits in little-endian order, as this program's are everywhere.
Dataset::StoredLabels Dataset::read_labels(const std::string& name, int rank, std::size_t widest) const {
  const std::size_t entry = StoredArray::type_in(*file_, name).entry;
  const std::size_t bytes_of_one = entry <= widest && (entry == 2 || entry == 4) ? entry : 1;
  StoredLabels out{std::make_unique<const StoredArray>(file_, name, StoredArray::Type{rank, bytes_of_one}), {}};
  const std::vector<std::uint8_t> bytes = out.array->read_all();
  for (std::size_t at = 0; at + bytes_of_one <= bytes.size(); at += bytes_of_one) {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes.data() + at, bytes_of_one);
    out.values.push_back(value);
  }
  return out;
}

std::vector<SourceFile> Dataset::sources() const {
  constexpr std::int64_t most = std::int64_t{1} << 30;
  const std::vector<std::uint8_t> text = optional_bytes("sources", most);
  std::istringstream lines(std::string(text.begin(), text.end()));
  std::vector<SourceFile> out;
  for (SourceFile source; lines >> source.sha256 >> source.bytes && std::getline(lines.ignore(), source.name);)
    out.push_back(source);
  return out;
}

void Dataset::verify() const {
  for (const auto& [name, split] : splits_) {
    split.array->verify();
    labels(name);
    group_labels(name);
  }
  sources();
}

std::shared_ptr<const ByteStore> Dataset::store_of(const std::string& name) const {
  const Split& split = find(name);
  if (split.array->bytes() <= largest_resident_) return resident(name);
  return split.array;
}

void Dataset::open_split(const std::string& name) {
  const auto array = std::make_shared<StoredArray>(
      file_, name, StoredArray::Type{info_.rows > 0 ? 2 : 1, static_cast<std::size_t>(info_.token_bytes())});
  if (info_.rows > 0 && array->rows() > 0 && array->row_bytes() != info_.image_bytes())
    throw user_error("{} has rows of {} bytes, but {} x {} x {} make {}; prepare the file again", array->where(),
                     array->row_bytes(), info_.rows, info_.columns, info_.channels, info_.image_bytes());
  Split& split = splits_[name];
  if (holds(name + "_zeros")) array->note_zero_chunks(read_numbers(file_, name + "_zeros"));
  split.array = array;
  if (info_.rows > 0) return;
  split.text_bytes = hdf5::integer_attribute(file_->handle(), (name + "_text_bytes").c_str()).value_or(0);
  if (split.text_bytes < 0) throw not_ours(path(), fmt::format("its attribute '{}_text_bytes' is negative", name));
  split.boundaries = offsets(name, "boundaries");
  split.groups = offsets(name, "groups");
}

// Where files, documents or groups end; empty if the file does not say.
std::vector<std::int64_t> Dataset::offsets(const std::string& split, const char* level) const {
  const std::string name = fmt::format("{}_{}", split, level);
  if (!holds(name)) return {};
  std::vector<std::int64_t> b = read_numbers(file_, name);
  const std::int64_t length = find(split).array->rows();
  if (b.empty() || b.front() != 0 || b.back() != length || !std::is_sorted(b.begin(), b.end()))
    throw user_error("{}: '{}' must rise from 0 to {}, the length of its split; prepare the file again", path(), name,
                     length);
  return b;
}

bool Dataset::holds(const std::string& name) const {
  const hdf5::Lock lock;
  return H5Lexists(file_->handle(), name.c_str(), H5P_DEFAULT) > 0;
}

const Dataset::Split& Dataset::find(const std::string& name) const {
  const auto found = splits_.find(name);
  if (found == splits_.end()) throw user_error("{}: has no split '{}'; choose train, valid or test", path(), name);
  return found->second;
}

std::shared_ptr<const ByteStore> Dataset::resident(const std::string& name) const {
  const std::lock_guard lock(loading_);
  auto& kept = resident_[name];
  if (kept == nullptr) kept = std::make_shared<const ResidentBytes>(find(name).array->read_all());
  return kept;
}

std::vector<std::uint8_t> Dataset::optional_bytes(const std::string& name, std::int64_t most) const {
  if (!holds(name)) return {};
  const StoredArray array(file_, name, {1, 1});
  if (array.bytes() > most) throw user_error("{} has {} bytes, more than {}", array.where(), array.bytes(), most);
  return array.read_all();
}

std::vector<std::string> Dataset::lines_of(const std::string& name, std::int64_t most) const {
  const std::vector<std::uint8_t> text = optional_bytes(name, most);
  std::istringstream lines(std::string(text.begin(), text.end()));
  std::vector<std::string> out;
  for (std::string line; std::getline(lines, line);) out.push_back(line);
  return out;
}

const char* name_of(DataKind kind) { return kinds[static_cast<std::size_t>(kind)].name; }

std::shared_ptr<const Dataset> Dataset::open(const std::string& path) {
  if (std::error_code failure; !std::filesystem::exists(path, failure) && !failure)
    throw user_error("{}: does not exist; make it with `longstride prepare`, or correct the path", path);
  return std::make_shared<const Dataset>(std::make_shared<const FileBlob>(path), std::int64_t{512} << 20);
}

void check_fits(const Dataset& dataset, const DataConfig& config) {
  const DatasetInfo& info = dataset.info();
  if (info.kind != config.kind)
    throw user_error("{}: holds {}, but the recipe's data.kind is {}; change data.kind or data.path", dataset.path(),
                     name_of(info.kind), name_of(config.kind));
  if (info.rows > 0 && config.context != info.image_bytes())
    throw user_error("{}: its images have {} x {} x {} = {} bytes, but data.context is {}; set data.context to that",
                     dataset.path(), info.rows, info.columns, info.channels, info.image_bytes(), config.context);
  if (info.vocabulary != config.vocabulary)
    throw user_error("{}: its tokens have {} ids, but data.vocabulary is {}; set data.vocabulary to that",
                     dataset.path(), info.vocabulary, config.vocabulary);
}

void check_grouped(const SequenceSet& sequences, const std::string& reader, const std::string& where) {
  if (!reader.empty() && sequences.sequences() > 0 && sequences.groups(0).boundaries.empty())
    throw user_error("{}: has not kept where groups end, which {} reads; prepare it with --groups", where, reader);
}

void check_answered(const SequenceSet& sequences, const Objective& objective, const std::string& where) {
  const char* const kind = objective.kind();
  if (sequences.sequences() == 0) return;
  if (objective.reads_groups() && sequences.documents(0).empty() && sequences.groups(0).boundaries.empty())
    throw user_error(
        "{}: has not kept where groups end, of which objective.kind {} asks some as a whole; prepare it with --groups",
        where, kind);
  if (objective.group_labels() > 0) {
    const std::span<const std::uint16_t> labels = sequences.group_labels();
    if (labels.empty())
      throw user_error("{}: has no labels of groups, which objective.kind {} asks for; prepare it with some", where,
                       kind);
    if (const std::uint16_t most = *std::max_element(labels.begin(), labels.end()); most >= objective.group_labels())
      throw user_error("{}: has a group of class {}, but objective.classes is {}; set it to the number of classes",
                       where, most, objective.group_labels());
  }
  if (objective.labels() == 0) return;
  for (std::int64_t s = 0; s < sequences.sequences(); ++s) {
    const std::span<const std::uint32_t> labels = sequences.labels(s);
    if (std::ssize(labels) != objective.labels())
      throw user_error(
          "{}: has {} of every sequence, but objective.kind {} reads {}; prepare it with labels, and for those of "
          "documents set data.documents: rows",
          where, counted(std::ssize(labels), "label"), kind, objective.labels());
    if (const std::string problem = objective.problem_of_labels(labels, sequences.length(s)); !problem.empty())
      throw user_error("{}: sequence {} {}", where, s, problem);
  }
}

void check_labels_are_read(const DatasetInfo& info, const Objective& objective, const std::string& where) {
  if (info.label_names.empty() || objective.labels() == 0 || objective.labels_may_have_names()) return;
  throw user_error(
      "{}: its labels have names, such as '{}', but those of objective.kind {} are where an answer begins and ends; "
      "set objective.kind: classes or labels, or prepare it with spans",
      where, printable_beginning(info.label_names.front()), objective.kind());
}

std::unique_ptr<BatchSource> open_training_data(const Dataset& dataset, const DataConfig& config, std::uint64_t seed,
                                                std::int64_t rows, const std::vector<RowStage>& stages,
                                                const Objective& objective) {
  check_fits(dataset, config);
  const std::shared_ptr<const SequenceSet> train = dataset.split("train", config);
  const std::string where = fmt::format("{}: 'train'", config.path);
  check_labels_are_read(dataset.info(), objective, where);
  check_answered(*train, objective, where);
  if (config.order == DataOrder::streams) {
    LONGSTRIDE_CHECK(stages.empty(), "streams of {} stages", stages.size());
    return make_stream_source(train, config.context, rows, where, seed, objective);
  }
  const auto of_length = [&](std::int64_t context) {
    return make_batch_source(train, context, seed, where, objective, config.documents == Documents::rows);
  };
  return stages.empty() ? of_length(config.context) : make_staged_source(stages, rows, config.context, of_length);
}

}  // namespace longstride
