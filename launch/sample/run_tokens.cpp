#include "launch/sample/run_tokens.h"

#include <charconv>
#include <filesystem>
#include <sstream>

#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/text/printable.h"

namespace longstride {

void keep_tokenizer(const std::string& run, const std::string& model) {
  if (!model.empty()) write_file_atomically((std::filesystem::path(run) / tokenizer_file).string(), model);
}

RunTokens::RunTokens(const DataConfig& data, std::string model, std::string where)
    : kind_(data.kind), vocabulary_(data.vocabulary), model_(std::move(model)), where_(std::move(where)) {
  if (model_.empty()) return;
  pieces_.emplace(model_, where_);
  if (pieces_->size() != vocabulary_)
    throw user_error("{}: has {} pieces, but the run was trained with a vocabulary of {}; put its own model back",
                     where_, pieces_->size(), vocabulary_);
}

std::string RunTokens::text(std::string_view ids) const {
  if (kind_ != DataKind::tokens) return std::string(ids);
  const kernels::Ids all{ids.data(), token_bytes() > 1};
  const std::int64_t count = std::ssize(ids) / token_bytes();
  if (pieces_) return pieces_->text_of(all, count);
  std::string out;
  for (std::int64_t i = 0; i < count; ++i) out += std::to_string(all[i]) + " ";
  return out;
}

std::string RunTokens::text(int id) const {
  std::string one(static_cast<std::size_t>(token_bytes()), '\0');
  kernels::write_id(one.data(), token_bytes() > 1, 0, id);
  return text(one);
}

std::vector<std::uint8_t> RunTokens::text(const std::vector<std::uint8_t>& ids) const {
  const std::string out = text(std::string_view(reinterpret_cast<const char*>(ids.data()), ids.size()));
  return {out.begin(), out.end()};
}

std::vector<std::uint16_t> RunTokens::numbers(const std::string& text) const {
  std::vector<std::uint16_t> out;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    std::int64_t id = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size() || id < 0 || id >= vocabulary_)
      throw user_error(
          "'{}' is no id of a token below {}; the data of this run has no SentencePiece model, so give ids between "
          "spaces, or prepare the data with --model",
          printable_beginning(word), vocabulary_);
    out.push_back(static_cast<std::uint16_t>(id));
  }
  return out;
}

std::vector<std::uint8_t> RunTokens::ids(const std::vector<std::uint8_t>& text) const {
  if (kind_ != DataKind::tokens) return text;
  std::vector<std::uint16_t> found;
  const std::string given(text.begin(), text.end());
  if (pieces_)
    make_text_ids(model_, *pieces_, where_)->encode(given, found);
  else
    found = numbers(given);
  std::vector<std::uint8_t> out(found.size() * static_cast<std::size_t>(token_bytes()));
  for (std::size_t i = 0; i < found.size(); ++i)
    kernels::write_id(out.data(), token_bytes() > 1, static_cast<std::int64_t>(i), found[i]);
  return out;
}

}  // namespace longstride
