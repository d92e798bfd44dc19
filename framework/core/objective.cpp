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

void Objective::write_row_of(const Batch& batch, std::int64_t row, const RowBytes& of, const RowKey& key) const {
  const std::int64_t seq = batch.tokens.size(1);
  write(batch, row, of, key);
  write_groups(batch, row, of.documents, std::min(of.length.value_or(seq) + leading(), seq));
  write_sentences(batch, row, of, leading());
}

// Ids before the bytes are of the first sentence.
void Objective::write_sentences(const Batch& batch, std::int64_t row, const RowBytes& of, std::int64_t leading) {
  if (!batch.sentences.given()) return;
  const std::int64_t seq = batch.tokens.size(1), count = std::min(of.length.value_or(seq - leading), seq - leading);
  auto* sentences = batch.sentences.as<std::int32_t>() + row * seq;
  std::int32_t last = -1;
  of.each_group(count, [&](std::int64_t begin, std::int64_t end) {
    std::fill(sentences + leading + begin, sentences + leading + end, ++last);
  });
  std::fill_n(sentences, leading, 0);
  std::fill(sentences + leading + count, sentences + seq, std::max(last, 0));
}

Figure Objective::shown_of(const Scored& scored) const {
  std::vector<Figure> all = figures(scored);
  return std::move(all[std::min(shown(), all.size() - 1)]);
}

}  // namespace longstride
