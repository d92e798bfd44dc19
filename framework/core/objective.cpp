#include "framework/core/objective.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

namespace longstride {

std::string Figure::key() const {
  std::string key = name;
  std::transform(key.begin(), key.end(), key.begin(),
                 [](unsigned char c) { return c == ' ' ? '_' : static_cast<char>(std::tolower(c)); });
  return key;
}

nlohmann::ordered_json Objective::answers_of(const AnsweredRow& /*row*/) const {
  return nlohmann::ordered_json::array();
}

namespace {

// The groups of a document have types 0 and 1 in turn, wherever a row begins. Without groups the documents of a row do.
void write_types(const Batch& batch, std::int64_t row, const RowBytes& of, std::int64_t leading, std::int64_t count) {
  if (!batch.types.given()) return;
  const std::int64_t seq = batch.types.size(1);
  auto* const types = batch.types.as<std::uint8_t>() + row * seq;
  std::fill_n(types, seq, std::uint8_t{0});
  const auto& groups = of.groups.boundaries;
  const std::int64_t first = of.groups.offset;
  std::int64_t document = of.documents.boundaries.empty() ? -of.offset : 0, number = 0;  // where it begins
  of.documents.each(count, [&](std::int64_t begin, std::int64_t end) {
    if (groups.empty())
      return static_cast<void>(std::fill(types + leading + begin, types + leading + end, number++ & 1));
    const auto& documents = of.documents.boundaries;
    if (!documents.empty())
      document = *(std::upper_bound(documents.begin(), documents.end(), of.documents.offset + begin) - 1) -
                 of.documents.offset;
    const auto before = std::upper_bound(groups.begin(), groups.end(), first + document);
    RowEnds{groups, first + begin}.each(end - begin, [&](std::int64_t from, std::int64_t to) {
      const auto own = std::upper_bound(groups.begin(), groups.end(), first + begin + from);
      std::fill(types + leading + begin + from, types + leading + begin + to, (own - before) & 1);
    });
  });
}

// The groups of a row, within documents, in order. Ids before the bytes are of the first one, padding of the last.
void write_sentences(const Batch& batch, std::int64_t row, const RowBytes& of, std::int64_t leading,
                     std::int64_t count) {
  if (!batch.sentences.given()) return;
  const std::int64_t seq = batch.sentences.size(1);
  auto* const sentences = batch.sentences.as<std::int32_t>() + row * seq;
  std::int32_t last = -1;
  of.each_group(count, [&](std::int64_t begin, std::int64_t end) {
    std::fill(sentences + leading + begin, sentences + leading + end, ++last);
  });
  std::fill_n(sentences, leading, 0);
  std::fill(sentences + leading + count, sentences + seq, std::max(last, 0));
}

}  // namespace

void Objective::write_row_of(const Batch& batch, std::int64_t row, const RowBytes& of, const RowKey& key) const {
  const std::int64_t seq = batch.tokens.size(1);
  write(batch, row, of, key);
  const std::int64_t count = std::min(of.length.value_or(seq) + leading(), seq);
  write_groups(batch, row, of.documents, count);
  write_sentences(batch, row, of, leading(), count - leading());
  write_types(batch, row, of, leading(), count - leading());
}

Figure Objective::shown_of(const Scored& scored) const {
  std::vector<Figure> all = figures(scored);
  return std::move(all[std::min(shown(), all.size() - 1)]);
}

}  // namespace longstride
