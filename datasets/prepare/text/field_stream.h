// The texts in one field of lines of JSON (.jsonl), as `prepare bytes --field` takes them.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "datasets/formats/byte_input.h"

namespace longstride {

// The text that the field of a line of JSON has. UserError, beginning with `where`, if the line is no object, or its
// field is absent or no text.
std::string field_of_line(std::string_view line, const std::string& field, const std::string& where);

// Behind the text of a record, where it has to be told apart from text: no byte of UTF-8.
inline constexpr const char* record_mark = "\xff";

// Every record's text, in the order of the lines, with a line feed at its end, and behind it `mark`. Blank lines are
// left out. `lines` is a stream of a file of this name.
class FieldStream final : public UnsizedStream {
 public:
  static constexpr std::size_t longest_line = std::size_t{1} << 28;

  FieldStream(std::unique_ptr<UnsizedStream> lines, std::string name, std::string field, std::string mark = "")
      : lines_(std::move(lines)), name_(std::move(name)), field_(std::move(field)), mark_(std::move(mark)) {}

  std::size_t read(void* out, std::size_t most) override;

 private:
  bool next_text();
  bool next_line();

  std::unique_ptr<UnsizedStream> lines_;
  std::string name_, field_, mark_;
  std::string line_, text_, buffer_;  // the line, what is to be given of its text, and bytes that follow the line
  std::size_t given_ = 0, taken_ = 0;
  std::int64_t number_ = 0;  // of the line, from 1
  bool ended_ = false;
};

}  // namespace longstride
