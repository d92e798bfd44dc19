// The text of a run's tokens: what it draws, and what it is given to continue. Rows of ids have 2 bytes each beyond a
// vocabulary of 256, as samples and prompts have.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/data_config.h"
#include "datasets/tokens/text_ids.h"

namespace longstride {

inline constexpr const char* tokenizer_file = "tokenizer.model";  // in the run's folder
// Writes the run's tokenizer; nothing if the data has none.
void keep_tokenizer(const std::string& run, const std::string& model);

class RunTokens {
 public:
  // model: SentencePiece's, of the data; empty: bytes are their own text, and other ids are shown as numbers. where:
  // its file, in messages.
  RunTokens(const DataConfig& data, std::string model, std::string where);

  std::int64_t token_bytes() const { return vocabulary_ > 256 ? 2 : 1; }
  std::string text(std::string_view ids) const;
  std::vector<std::uint8_t> text(const std::vector<std::uint8_t>& ids) const;
  // UserError if the build lacks SentencePiece, or, without a model, for text that is not ids between spaces.
  std::vector<std::uint8_t> ids(const std::vector<std::uint8_t>& text) const;
  std::string text(int id) const;
  bool is_of_bytes() const { return kind_ != DataKind::tokens; }
  // SentencePiece's; empty: there is none.
  const std::string& model() const { return model_; }
  const char* unit() const { return kind_ == DataKind::tokens ? "token" : "byte"; }

 private:
  std::vector<std::uint16_t> numbers(const std::string& text) const;

  DataKind kind_;
  std::int64_t vocabulary_;
  std::string model_, where_;
  std::optional<PieceTable> pieces_;
};

}  // namespace longstride
