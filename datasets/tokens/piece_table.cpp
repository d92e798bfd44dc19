#include "datasets/tokens/piece_table.h"

#include <charconv>
#include <optional>

#include "framework/core/errors.h"

namespace longstride {
namespace {

// A message of protobuf, field by field. Never reads behind its end.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  // False at the end, and from the first mistake on.
  bool next() {
    if (rest_.empty() || damaged_) return false;
    const std::optional<std::uint64_t> tag = varint();
    if (!tag || *tag >> 3 == 0) return fail();
    number_ = *tag >> 3;
    bytes_ = {};
    value_ = 0;
    switch (*tag & 7) {
      case 0:
        if (const auto value = varint()) return value_ = *value, true;
        return fail();
      case 1:
        return skip(8);
      case 2:
        if (const auto length = varint(); length && *length <= rest_.size())
          return bytes_ = rest_.substr(0, static_cast<std::size_t>(*length)), skip(*length);
        return fail();
      case 5:
        return skip(4);
      default:
        return fail();
    }
  }
  std::uint64_t number() const { return number_; }
  std::uint64_t value() const { return value_; }
  std::string_view bytes() const { return bytes_; }
  bool damaged() const { return damaged_; }

 private:
  bool fail() {
    damaged_ = true;
    return false;
  }
  bool skip(std::uint64_t bytes) {
    if (bytes > rest_.size()) return fail();
    rest_.remove_prefix(static_cast<std::size_t>(bytes));
    return true;
  }
  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < 10 && i < rest_.size(); ++i) {
      const auto byte = static_cast<std::uint8_t>(rest_[i]);
      value |= std::uint64_t{byte & 127u} << (7 * i);
      if (byte >= 128) continue;
      rest_.remove_prefix(i + 1);
      return value;
    }
    return std::nullopt;
  }

  std::string_view rest_, bytes_;
  std::uint64_t number_ = 0, value_ = 0;
  bool damaged_ = false;
};

constexpr std::string_view unknown_text = " \xE2\x81\x87 ";  // as SentencePiece shows it

// "<0x0A>" as 10.
std::optional<std::uint8_t> byte_of(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece.back() != '>') return std::nullopt;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(piece.data() + 3, piece.data() + 5, value, 16);
  if (error != std::errc() || end != piece.data() + 5) return std::nullopt;
  return static_cast<std::uint8_t>(value);
}

std::string with_spaces(std::string_view piece) {
  std::string text;
  for (std::size_t at = 0; at < piece.size();) {
    const bool space = piece.substr(at).starts_with(PieceTable::space);
    text += space ? ' ' : piece[at];
    at += space ? PieceTable::space.size() : 1;
  }
  return text;
}

}  // namespace

PieceTable::PieceTable(std::string_view model, const std::string& where) {
  constexpr std::int64_t most = 65535;
  of_byte_.fill(-1);
  Fields all(model);
  bool damaged = false;
  while (all.next() && size() <= most) {
    if (all.number() != 1) continue;
    std::string_view piece;
    std::uint64_t type = 1;
    Fields one(all.bytes());
    while (one.next()) {
      if (one.number() == 1) piece = one.bytes();
      if (one.number() == 3) type = one.value();
    }
    damaged = damaged || one.damaged() || piece.empty() || type < 1 || type > 6;
    if (!damaged) add(piece, static_cast<Type>(type));
  }
  if (damaged || all.damaged() || size() < 2)
    throw user_error(
        "{}: is no SentencePiece model, or is damaged or cut short; choose the .model file that its "
        "training wrote",
        where);
  if (size() > most)
    throw user_error("{}: has more than {} pieces, but ids of tokens have 16 bits; choose a smaller vocabulary", where,
                     most);
}

void PieceTable::add(std::string_view piece, Type type) {
  std::string text;
  if (type == Type::byte) {
    if (const auto byte = byte_of(piece)) {
      text.push_back(static_cast<char>(*byte));
      of_byte_[*byte] = static_cast<int>(size());
    }
  } else if (type == Type::unknown) {
    text = unknown_text;
  } else if (type == Type::normal || type == Type::user_defined) {
    text = with_spaces(piece);
    const std::size_t word = text.find_first_not_of(' ');
    joins_words_ = joins_words_ || text.find('\n') != std::string::npos ||
                   (word != std::string::npos && text.find(' ', word) != std::string::npos);
  }
  text_.push_back(std::move(text));
}

std::string PieceTable::text_of(kernels::Ids ids, std::int64_t count) const {
  std::string out;
  for (std::int64_t i = 0; i < count; ++i)
    if (ids[i] < size()) out += text(ids[i]);
  return out;
}

}  // namespace longstride
