// The pieces of a SentencePiece model, read from its serialised form (sentencepiece_model.proto) without the library:
// which bytes of text every id stands for. White space is U+2581 in pieces and a space in text; <0x0A> is a byte;
// pieces that control, such as the beginning of a sentence, are no text.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/ids.h"

namespace longstride {

class PieceTable {
 public:
  static constexpr std::string_view space = "\xE2\x96\x81";  // U+2581

  // UserError, beginning with `where`, if `model` is something else, is cut short or damaged, or has fewer than 2
  // pieces or more than 65,535.
  PieceTable(std::string_view model, const std::string& where);

  std::int64_t size() const { return std::ssize(text_); }
  const std::string& text(std::int64_t id) const { return text_[static_cast<std::size_t>(id)]; }
  // Ids beyond the vocabulary are no text.
  std::string text_of(kernels::Ids ids, std::int64_t count) const;
  // The id of a byte; -1: the model has none, and what no piece covers is unknown to it.
  int of_byte(std::uint8_t byte) const { return of_byte_[byte]; }
  bool has_bytes() const { return of_byte_['\n'] >= 0; }
  // True if a piece of text holds white space behind something else, so that words cannot be encoded one by one.
  bool joins_words() const { return joins_words_; }

 private:
  enum class Type : std::uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  void add(std::string_view piece, Type type);

  std::vector<std::string> text_;
  std::array<int, 256> of_byte_;
  bool joins_words_ = false;
};

}  // namespace longstride
