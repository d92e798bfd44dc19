// Any files as bytes: the first part of them is train, the next valid, the last test.
#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "datasets/histogram.h"
#include "datasets/prepare/dataset_writer.h"
#include "datasets/prepare/documents/document_cutter.h"
#include "datasets/prepare/documents/labels.h"
#include "datasets/prepare/joined_inputs.h"
#include "datasets/prepare/prepare.h"
#include "datasets/prepare/split_rule.h"
#include "datasets/prepare/text/field_stream.h"
#include "datasets/prepare/text/named_splits.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"
#include "framework/core/text/printable.h"

namespace longstride {
namespace {

// Bytes of a part that go into each split, in their order. Without copies the whole is cut in two places; a copy is cut
// where the first file with its content is, and its bytes count there.
class Cuts {
 public:
  Cuts(const std::vector<ContentPart>& parts, const Copies& copies, const SplitCounts& counts) : parts_(parts) {
    std::int64_t before = 0;
    std::array<std::int64_t, 2> ends = {counts[0], counts[0] + counts[1]};
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto number = static_cast<std::int64_t>(i);
      const std::int64_t taken = copies.taken(number), bytes = parts[i].print.bytes;
      if (copies.first(number) != number) {
        cuts_.push_back(cuts_[static_cast<std::size_t>(copies.first(number))]);
        continue;
      }
      std::array<std::int64_t, 2> cut;
      for (std::size_t c = 0; c < 2; ++c)
        cut[c] = std::clamp<std::int64_t>((ends[c] - before + taken - 1) / taken, 0, bytes);
      cuts_.push_back(cut);
      before += taken * bytes;
      for (std::size_t s = 0; s < 3; ++s) counts_[s] += taken * of_split(i, s);
    }
  }

  // Every part belongs to the split of its input.
  explicit Cuts(const JoinedInputs& inputs) : parts_(inputs.parts()) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const std::int64_t bytes = parts_[i].print.bytes;
      const SplitId split = inputs.split_of(i);
      cuts_.push_back({split == SplitId::train ? bytes : 0, split == SplitId::test ? 0 : bytes});
      if (!inputs.copies().left_out(static_cast<std::int64_t>(i))) counts_[static_cast<std::size_t>(split)] += bytes;
    }
  }

  std::int64_t of_split(std::size_t part, std::size_t split) const {
    const std::array<std::int64_t, 4> at = {0, cuts_[part][0], cuts_[part][1], parts_[part].print.bytes};
    return at[split + 1] - at[split];
  }
  const SplitCounts& counts() const { return counts_; }

 private:
  const std::vector<ContentPart>& parts_;
  std::vector<std::array<std::int64_t, 2>> cuts_;  // where valid and test begin
  SplitCounts counts_{};
};

std::int64_t bytes_taken(const JoinedInputs& inputs) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < inputs.parts().size(); ++i)
    sum += inputs.copies().taken(static_cast<std::int64_t>(i)) * inputs.parts()[i].print.bytes;
  return sum;
}

Cuts cut(const JoinedInputs& inputs, const SplitRule& rule, bool rule_given, bool splits_given) {
  if (splits_given) return Cuts(inputs);
  const SplitCounts wanted = rule.divide(bytes_taken(inputs), inputs.name(), "bytes");
  Cuts cuts(inputs.parts(), inputs.copies(), wanted);
  if (rule.counted() && cuts.counts() != wanted)
    throw counts_split_copies(inputs.copies(), inputs.name(), rule.text(), cuts.counts());
  if (rule_given) rule.check_shares(cuts.counts(), inputs.name(), "bytes");
  return cuts;
}

// Warns of packed, encrypted or random bytes: text has 4 to 6 bits per byte; programs, pictures and sound below 7.8.
void warn_of_noise(const Histogram& train, const std::string& name, const PrepareOutput& output) {
  constexpr double most = 7.8;
  const double entropy = train.entropy();
  if (entropy <= most || !output.warn) return;
  output.warn(fmt::format(
      "{}: the bytes of train have an entropy of {:.2f} bits each, as packed or encrypted ones do, of which "
      "a model learns nothing; give what they unpack to",
      name, entropy));
}

// Documents are divided whole and at random, rather than by their place in the input.
bool is_random(const PrepareBytesConfig& config) {
  return !config.splits_given() && (config.seed || !config.labels.empty() || !config.group_labels.empty());
}

void check_field(const PrepareBytesConfig& config) {
  if (config.field.empty()) return;
  const std::string field = printable(config.field);
  if (config.raw)
    throw user_error(
        "--raw takes files as they are, but --field is '{}', which reads lines of JSON; leave one of them out", field);
  if (config.documents.documents == DocumentsAre::fasta)
    throw user_error(
        "--documents fasta reads FASTA, but --field is '{}', which reads lines of JSON; leave one of them out", field);
}

void check_splits(const PrepareBytesConfig& config, const SplitRule& split) {
  if (config.splits_given() && !config.split.empty())
    throw user_error("--split is '{}', but --valid-input and --test-input give the splits; leave one of them out",
                     config.split);
  if (config.splits_given() && config.seed)
    throw user_error(
        "--seed divides documents at random, but --valid-input and --test-input give the splits; leave one of them "
        "out");
  if (is_random(config) && split.counted())
    throw user_error("--split is {}, but {} divides documents at random; give fractions such as 0.8,0.1,0.1",
                     split.text(),
                     config.seed             ? "--seed"
                     : config.labels.empty() ? "--group-labels"
                                             : "--labels");
}

void check(const PrepareBytesConfig& config, const SplitRule& split) {
  const DocumentRule& rule = config.documents;
  check_field(config);
  check_splits(config, split);
  if (rule.mark.empty()) throw user_error("--mark is empty, but documents end at it; name it, such as <|endoftext|>");
  constexpr const char* say_where =
      "but --documents does not say where these end; set it to files, lines, marks or fasta";
  if (rule.documents == DocumentsAre::joined) {
    if (rule.groups != GroupsAre::none) throw user_error("--groups divides documents, {}", say_where);
    if (!config.labels.empty()) throw user_error("--labels gives documents labels, {}", say_where);
    if (!config.group_labels.empty()) throw user_error("--group-labels labels groups of documents, {}", say_where);
    if (config.seed) throw user_error("--seed divides documents, {}", say_where);
  }
  if (rule.documents == DocumentsAre::fasta && rule.groups != GroupsAre::none)
    throw user_error("--groups divides text, but --documents fasta reads letters without sentences; leave one out");
  if (!config.group_labels.empty() && rule.groups == GroupsAre::none)
    throw user_error(
        "--group-labels labels groups, but --groups does not say where these end; set it to sentences, paragraphs or "
        "lead");
}

// With a field, lines are records: their texts have lines of their own, but no byte of the mark.
DocumentRule cut_at(const PrepareBytesConfig& config) {
  DocumentRule rule = config.documents;
  if (!config.field.empty() && rule.documents == DocumentsAre::lines)
    rule.documents = DocumentsAre::marks, rule.mark = record_mark;
  return rule;
}

std::int64_t across_splits(const JoinedInputs& inputs) {
  std::int64_t across = 0;
  for (std::size_t i = 0; i < inputs.parts().size(); ++i) {
    const auto first = static_cast<std::size_t>(inputs.copies().first(static_cast<std::int64_t>(i)));
    across += inputs.split_of(i) != inputs.split_of(first) ? 1 : 0;
  }
  return across;
}

// For the dataset's attributes.
std::string text_of(const DocumentRule& rule) {
  switch (rule.documents) {
    case DocumentsAre::joined:
      return "";
    case DocumentsAre::marks:
      return "marks " + rule.mark;
    case DocumentsAre::files:
      return "files";
    case DocumentsAre::fasta:
      return "records of FASTA";
    default:
      return "lines";
  }
}

std::string text_of(GroupsAre groups) {
  constexpr const char* names[] = {"", "sentences", "paragraphs", "titles, leads and the rest"};
  return names[static_cast<std::size_t>(groups)];
}

std::optional<DocumentLabels> labels_of(const PrepareBytesConfig& config, const std::vector<ContentPart>& parts) {
  if (config.labels.empty()) return {};
  if (config.labels != "folder") return DocumentLabels::read_table(config.labels, config.classes);
  std::vector<std::string> files;
  for (const ContentPart& part : parts) files.push_back(part.below);
  return DocumentLabels::of_folders(files, config.classes);
}

void check_found(const DocumentCutter& documents, const DocumentRule& rule, const std::string& name) {
  if (rule.documents == DocumentsAre::marks && documents.marks() == 0)
    throw user_error(
        "{}: has no mark '{}', at which documents would end; name another with --mark, or set --documents files or "
        "lines",
        name, printable(rule.mark));
  if (rule.documents == DocumentsAre::fasta && documents.documents() == 0)
    throw user_error("{}: has no letters of FASTA, in lines below one of '>name'; give FASTA files", name);
}

// Writes the bytes of every part to its splits, and counts those of train.
void write_parts(JoinedInputs& inputs, const Cuts& cuts, DocumentCutter& documents, Histogram& train) {
  std::vector<std::uint8_t> buffer(std::size_t{1} << 20);
  constexpr std::int64_t sample = std::int64_t{1} << 16;  // bytes of each buffer that are counted: enough for a warning
  for (std::size_t part = 0; part < inputs.parts().size(); ++part) {
    const auto number = static_cast<std::int64_t>(part);
    documents.begin_file({inputs.parts()[part].name, inputs.parts()[part].below, inputs.copies().first(number)});
    for (std::size_t s = 0; s < 3; ++s)
      for (std::int64_t left = cuts.of_split(part, s); left > 0;) {
        const std::int64_t count = std::min(left, static_cast<std::int64_t>(buffer.size()));
        inputs.read(buffer.data(), static_cast<std::size_t>(count));
        left -= count;
        if (inputs.copies().left_out(number)) continue;
        documents.append(static_cast<SplitId>(s), buffer.data(), count);
        if (s == 0) train.add(buffer.data(), std::min(count, sample));
      }
    documents.end_file();
  }
}

// For the dataset's attribute, and a note of what is left out.
std::string divided_at_random(const SplitRule& rule, std::uint64_t seed, bool rule_given, const DatasetWriter& writer,
                              const std::string& name) {
  SplitCounts counts;
  for (std::size_t s = 0; s < 3; ++s) counts[s] = writer.files(static_cast<SplitId>(s));
  if (rule_given) rule.check_shares(counts, name, "documents");
  return fmt::format("{}: documents at random by the seed {}, {} train, {} valid, {} test", rule.text(), seed,
                     counts[0], counts[1], counts[2]);
}

std::string in_order(const PrepareBytesConfig& config, const SplitRule& rule, const SplitCounts& counts) {
  constexpr const char* included[] = {"", ", marks included", "", "", ", names included"};
  const std::string divided =
      config.splits_given()
          ? fmt::format("by the inputs given: {} bytes train, {} valid, {} test", counts[0], counts[1], counts[2])
          : fmt::format("{}: the first {} bytes train, the next {} valid, the last {} test", rule.text(), counts[0],
                        counts[1], counts[2]);
  return divided + included[static_cast<std::size_t>(cut_at(config).documents)];
}

}  // namespace

void prepare_bytes(const PrepareBytesConfig& given, const PrepareOutput& output) {
  check_output(output.path, output.replace, given.inputs);
  const bool rule_given = !given.split.empty();
  const SplitRule rule = SplitRule::parse(rule_given ? given.split : "0.9,0.05,0.05");
  check(given, rule);
  const PrepareBytesConfig config = with_named_splits(given, output);
  const bool random = is_random(config);
  const DocumentRule documents_rule = cut_at(config);
  const FoldersOf folders(output.path);  // standard input is kept there too
  JoinedInputs inputs(config, output);
  const Copies& copies = inputs.copies();
  // Bytes that go to splits at random are read as those of one.
  const Cuts cuts = random ? Cuts(inputs.parts(), copies, {bytes_taken(inputs), 0, 0})
                           : cut(inputs, rule, rule_given, config.splits_given());
  std::optional<DocumentLabels> labels = labels_of(config, inputs.parts()), group_labels;
  if (!config.group_labels.empty()) group_labels = DocumentLabels::read_groups(config.group_labels);

  DatasetInfo info;
  info.kind = DataKind::bytes;
  info.documents = text_of(config.documents);
  info.groups = text_of(config.documents.groups);
  if (labels) info.label_names = labels->names(), info.wide_labels = labels->wide();
  DatasetWriter writer(output.path, info, output.replace);
  for (const std::string& note : {inputs.misnamed_note(), inputs.packed_note()}) output.say(note);
  if (config.splits_given())
    warn_of_shared(copies, across_splits(inputs), "files", config.duplicates, output);
  else
    output.say(copies.note("files"));
  Histogram train;
  const std::uint64_t seed = config.seed.value_or(1);
  DocumentCutter documents(writer, documents_rule, labels ? &*labels : nullptr,
                           random ? std::optional(RandomSplits{rule.fractions(), seed}) : std::nullopt,
                           group_labels ? &*group_labels : nullptr);
  write_parts(inputs, cuts, documents, train);
  check_found(documents, config.documents, inputs.name());
  for (const auto* table : {&labels, &group_labels})
    if (*table) (*table)->finish();
  if (const std::int64_t empty = documents.records_without_letters(); empty > 0)
    output.say(fmt::format("{}: left out {} without letters", inputs.name(), counted(empty, "record")));
  for (const SourceFile& source : inputs.finish()) writer.add_source(source);
  writer.commit((random ? divided_at_random(rule, seed, rule_given, writer, inputs.name())
                        : in_order(config, rule, cuts.counts())) +
                copies.record());
  warn_of_noise(train, inputs.name(), output);
}

}  // namespace longstride
