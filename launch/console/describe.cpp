#include "launch/console/describe.h"

#include <fmt/format.h>

#include <algorithm>

#include "framework/core/text/numbers.h"
#include "framework/core/text/printable.h"
#include "framework/train/metrics/progress.h"

namespace longstride {
namespace {

std::string geometry(const DatasetInfo& info) {
  if (info.rows > 0)
    return fmt::format("pictures of {} x {} x {} = {} bytes (rows, columns, channels)", info.rows, info.columns,
                       info.channels, thousands(info.image_bytes()));
  if (info.rate > 0) return fmt::format("{} samples per second, {}", thousands(info.rate), printable(info.encoding));
  const std::string ids =
      info.kind == DataKind::tokens
          ? fmt::format("{} ids, {}", thousands(info.vocabulary),
                        info.tokenizer.empty() ? "without their text; " : "with SentencePiece's model; ")
          : "";
  if (info.documents.empty()) return ids + fmt::format("one sequence of {}s per split", info.unit());
  return ids + fmt::format("documents end with {}{}{}", printable(info.documents),
                           info.groups.empty() ? "" : "; groups are ", printable(info.groups));
}

std::string size(const DatasetInfo& info, const SplitSize& split) {
  if (split.bytes == 0) return "empty";
  if (info.rows > 0) return counted(split.sequences, "picture") + (split.labelled ? ", labelled" : "");
  if (info.rate > 0)
    return fmt::format("{}, {} in {}", counted(split.bytes, "byte"),
                       duration_text(static_cast<double>(split.bytes) / static_cast<double>(info.rate)),
                       counted(split.sequences, "file"));
  const std::string text = split.text_bytes > 0 ? fmt::format(" for {}", counted(split.text_bytes, "byte")) : "";
  if (!info.documents.empty())
    return fmt::format(
        "{} in {}{}", counted(split.bytes, info.unit()) + text, counted(split.sequences, "document"),
        (split.groups > 0 ? ", " + counted(split.groups, "group") : "") + (split.labelled ? ", labelled" : ""));
  return counted(split.bytes, info.unit()) + text;
}

// "8 classes: arch, drivers .."; empty if they have no names.
std::string labels_line(const DatasetInfo& info, bool classes) {
  constexpr std::size_t most = 8;
  std::string out = counted(std::ssize(info.label_names), classes ? "class" : "label", classes ? "classes" : "labels");
  for (std::size_t i = 0; i < std::min(most, info.label_names.size()); ++i)
    out += (i == 0 ? ": " : ", ") + printable_beginning(info.label_names[i]);
  return info.label_names.size() > most ? out + " .." : out;
}

// Labels per sequence.
std::int64_t labels_each(const Dataset& dataset) {
  for (const char* name : split_names)
    if (dataset.size(name).labelled) return dataset.labels(name).each;
  return 0;
}

}  // namespace

std::string describe(const Dataset& dataset, std::size_t most_sources) {
  const DatasetInfo& info = dataset.info();
  std::string out = fmt::format("{}: {}, {}\n", printable(dataset.path()), name_of(info.kind), geometry(info));
  for (const char* name : split_names) {
    const std::string sha = dataset.stored_sha256(name);
    out += fmt::format("  {:<8}{:<43} {}\n", name, size(info, dataset.size(name)),
                       sha.empty() ? "" : "sha256 " + printable(sha));
  }
  if (!info.label_names.empty())
    out += fmt::format("  {:<8}{}\n", "labels",
                       labels_line(info, labels_each(dataset) == 1 && info.label_names.size() > 1));
  if (!info.split.empty()) out += fmt::format("  {:<8}{}\n", "split", printable(info.split));
  const auto sources = dataset.sources();
  for (std::size_t i = 0; i < std::min(sources.size(), most_sources); ++i)
    out += fmt::format("  {:<8}{}, {}, sha256 {}\n", i == 0 ? "from" : "", printable(sources[i].name),
                       counted(sources[i].bytes, "byte"), printable(sources[i].sha256));
  if (sources.size() > most_sources)
    out += fmt::format("  {:<8}and {}\n", "",
                       counted(std::ssize(sources) - static_cast<std::int64_t>(most_sources), "more file"));
  if (!info.tool_version.empty()) out += fmt::format("  {:<8}{}\n", "by", printable(info.tool_version));
  return out;
}

nlohmann::ordered_json describe_as_json(const Dataset& dataset) {
  const DatasetInfo& info = dataset.info();
  nlohmann::ordered_json out = {{"file", dataset.path()}, {"kind", name_of(info.kind)}};
  if (info.rows > 0) out.update({{"rows", info.rows}, {"columns", info.columns}, {"channels", info.channels}});
  if (info.rate > 0) out.update({{"rate", info.rate}, {"encoding", info.encoding}});
  if (info.kind == DataKind::tokens)
    out.update({{"vocabulary", info.vocabulary}, {"tokenizer", !info.tokenizer.empty()}});
  if (!info.documents.empty()) out["documents"] = info.documents;
  if (!info.groups.empty()) out["groups"] = info.groups;
  if (const std::int64_t each = labels_each(dataset); each > 0) out["labels"] = each;
  if (!info.label_names.empty()) out["label_names"] = info.label_names;
  for (const char* name : split_names) {
    const SplitSize size = dataset.size(name);
    out["splits"][name] = {{fmt::format("{}s", info.unit()), size.bytes},
                           {"sequences", size.sequences},
                           {"labelled", size.labelled},
                           {"sha256", dataset.stored_sha256(name)}};
    if (size.groups > 0) out["splits"][name]["groups"] = size.groups;
    if (size.text_bytes > 0) out["splits"][name]["text_bytes"] = size.text_bytes;
  }
  out["split_rule"] = info.split;
  out["sources"] = nlohmann::ordered_json::array();
  for (const SourceFile& source : dataset.sources())
    out["sources"].push_back({{"name", source.name}, {"bytes", source.bytes}, {"sha256", source.sha256}});
  out["tool_version"] = info.tool_version;
  return out;
}

}  // namespace longstride
