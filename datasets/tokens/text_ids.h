// Text to the ids of a SentencePiece model, and the training of one. Needs the library, which is optional at build
// time; what ids mean is in piece_table.h, which does not.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/tokens/piece_table.h"

namespace longstride {

// Encodes word after word: spaces and what follows them up to the next ones, or a line feed. That gives what
// SentencePiece gives for the whole, unless pieces cross words (PieceTable::joins_words), where lines are encoded.
// Where the model has bytes, text that is no UTF-8, and U+2581, become those, so that no byte is lost that the model's
// own normaliser keeps; and the space that some models put before a text is left out.
class TextIds {
 public:
  virtual ~TextIds() = default;
  // Appends the ids. UserError for text that is no UTF-8, if the model has no bytes.
  virtual void encode(std::string_view text, std::vector<std::uint16_t>& out) = 0;
  // An encoder for another thread.
  virtual std::unique_ptr<TextIds> another() const = 0;
};

bool encodes_text();        // the library was found at build time
void check_encodes_text();  // UserError if not
// UserError, beginning with `where`, if the library is absent or refuses the model.
std::unique_ptr<TextIds> make_text_ids(const std::string& model, const PieceTable& pieces, const std::string& where);

// A place before `most` of a longer text at which it can be cut without changing what encode() gives; `most` or a
// little less if there is none.
std::size_t place_to_cut(std::string_view text, std::size_t most, bool at_lines);

// The serialised model of exactly `vocabulary` pieces, among them the 256 bytes and one for unknown text, trained on
// the lines that `next` gives until it returns false. It keeps the text as it is: no normalisation, no space in front.
// UserError if the library is absent, or the text is too little for as many pieces.
std::string train_pieces(std::int64_t vocabulary, const std::function<bool(std::string& line)>& next);

}  // namespace longstride
