#include "datasets/prepare/text/field_stream.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "framework/core/text/printable.h"

namespace longstride {
namespace {

using nlohmann::json;

// Reads a line without building its values: only the field's text, and the names of the line's fields.
class FieldReader final : public json::json_sax_t {
 public:
  explicit FieldReader(const std::string& field) : field_(field) {}

  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("true or false"); }
  bool number_integer(number_integer_t) override { return value("a number"); }
  bool number_unsigned(number_unsigned_t) override { return value("a number"); }
  bool number_float(number_float_t, const string_t&) override { return value("a number"); }
  bool binary(binary_t&) override { return value("binary"); }
  bool string(string_t& x) override {
    if (depth_ == 1 && wanted_) {
      text = std::move(x);
      found = true;
    }
    return value("");
  }
  bool start_object(std::size_t) override { return enter("an object"); }
  bool start_array(std::size_t) override {
    is_object = is_object && depth_ > 0;
    return enter("a list");
  }
  bool key(string_t& name) override {
    if (depth_ > 1) return true;
    wanted_ = name == field_;
    if (names.size() < most_names) names.push_back(printable(name));
    return true;
  }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool parse_error(std::size_t at, const std::string&, const json::exception&) override {
    error_at = at;
    return false;
  }

  std::string text, other;  // other: what the field has instead of a text
  bool found = false, is_object = true;
  std::size_t error_at = 0;  // byte, from 1; 0: none
  std::vector<std::string> names;

 private:
  static constexpr std::size_t most_names = 12;

  bool value(const char* kind) {
    if (depth_ == 0) is_object = false;
    if (depth_ == 1 && wanted_) other = kind;
    return true;
  }
  bool enter(const char* kind) {
    if (depth_ == 1 && wanted_) other = kind;
    ++depth_;
    return true;
  }
  bool leave() {
    --depth_;
    return true;
  }

  const std::string& field_;
  int depth_ = 0;
  bool wanted_ = false;  // the value that follows is the field's
};

}  // namespace

std::string field_of_line(std::string_view line, const std::string& field, const std::string& where) {
  FieldReader reader(field);
  json::sax_parse(line.begin(), line.end(), &reader);
  if (reader.error_at > 0)
    throw user_error("{}: is not JSON from byte {} on; --field takes a file with an object on every line", where,
                     reader.error_at);
  if (!reader.is_object) throw user_error("{}: is no object; --field takes a file with an object on every line", where);
  if (!reader.other.empty())
    throw user_error("{}: field '{}' is {}, but must be text; name another with --field", where, printable(field),
                     reader.other);
  if (!reader.found)
    throw user_error(
        "{}: has no field '{}'; {}", where, printable(field),
        reader.names.empty() ? "the object is empty" : fmt::format("choose from {}", fmt::join(reader.names, ", ")));
  return std::move(reader.text);
}

std::size_t FieldStream::read(void* out, std::size_t most) {
  auto* to = static_cast<char*>(out);
  std::size_t got = 0;
  while (got < most) {
    if (given_ == text_.size() && !next_text()) break;
    const std::size_t count = std::min(most - got, text_.size() - given_);
    std::memcpy(to + got, text_.data() + given_, count);
    got += count, given_ += count;
  }
  return got;
}

bool FieldStream::next_text() {
  do {
    if (!next_line()) return false;
  } while (line_.find_first_not_of(" \t\r") == std::string::npos);
  text_ = field_of_line(line_, field_, fmt::format("{}:{}", name_, number_));
  if (!text_.ends_with('\n')) text_ += '\n';
  text_ += mark_;
  given_ = 0;
  return true;
}

bool FieldStream::next_line() {
  line_.clear();
  for (bool begun = false;;) {
    if (taken_ == buffer_.size()) {
      if (!ended_) {
        buffer_.resize(std::size_t{1} << 18);
        const std::size_t got = lines_->read(buffer_.data(), buffer_.size());
        ended_ = got < buffer_.size();
        buffer_.resize(got);
        taken_ = 0;
      }
      if (taken_ == buffer_.size()) return begun;
    }
    if (!begun) ++number_;
    begun = true;
    const std::size_t end = buffer_.find('\n', taken_), until = end == std::string::npos ? buffer_.size() : end;
    line_.append(buffer_, taken_, until - taken_);
    taken_ = end == std::string::npos ? until : until + 1;
    if (line_.size() > longest_line)
      throw user_error("{}:{}: is longer than {} bytes; --field takes a file with an object on every line", name_,
                       number_, longest_line);
    if (end != std::string::npos) return true;
  }
}

}  // namespace longstride
