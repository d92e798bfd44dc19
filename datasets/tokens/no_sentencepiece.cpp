// Replaces text_ids_sentencepiece.cpp if SentencePiece was not found at configure time.
#include "datasets/tokens/text_ids.h"
#include "framework/core/errors.h"

namespace longstride {
namespace {

UserError absent(const std::string& what) {
  return user_error("{} needs SentencePiece, which this build lacks; install libsentencepiece-dev and configure again",
                    what);
}

}  // namespace

bool encodes_text() { return false; }

void check_encodes_text() { throw absent("making tokens of text"); }

std::unique_ptr<TextIds> make_text_ids(const std::string&, const PieceTable&, const std::string& where) {
  throw absent(where + ": encoding text");
}

std::string train_pieces(std::int64_t, const std::function<bool(std::string&)>&) {
  throw absent("training a vocabulary");
}

}  // namespace longstride
