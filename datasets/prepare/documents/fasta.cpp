#include "datasets/prepare/documents/fasta.h"

#include <cctype>

#include "framework/core/errors.h"
#include "framework/core/text/printable.h"

namespace longstride {
namespace {

constexpr std::size_t longest_name = 1000;  // beyond, a file is something else

bool is_space(std::uint8_t byte) { return byte == ' ' || byte == '\t' || byte == '\v' || byte == '\f'; }

std::uint8_t upper(std::uint8_t byte) { return byte >= 'a' && byte <= 'z' ? byte - 'a' + 'A' : byte; }

}  // namespace

FastaReader::FastaReader(const std::string& letters, const std::string& other, Receiver receiver)
    : receiver_(std::move(receiver)) {
  for (const char c : letters) {
    const std::uint8_t letter = upper(static_cast<std::uint8_t>(c));
    if (letter <= ' ' || letter > '~' || letter == '>' || letter == ';')
      throw user_error("--letters is '{}', but {} is no letter of a FASTA file; name letters such as ACGTN",
                       printable(letters), c == ' ' ? "a space" : "'" + printable(std::string(1, c)) + "'");
    taken_[letter] = letter;
    if (letter >= 'A' && letter <= 'Z') taken_[letter - 'A' + 'a'] = letter;
    letters_ += static_cast<char>(letter);
  }
  if (letters.empty()) throw user_error("--letters is empty; name those that are taken, such as ACGTN");
  if (other.empty()) return;
  const std::uint8_t in_place = other.size() == 1 ? taken_[static_cast<std::uint8_t>(other[0])] : 0;
  if (in_place == 0)
    throw user_error("--other-letters is '{}', but must be one of --letters {}", printable(other), letters_);
  for (int letter = '!'; letter <= '~'; ++letter)  // no control characters, and no bytes that are not ASCII
    if (std::isalpha(letter) != 0 && taken_[static_cast<std::size_t>(letter)] == 0)
      taken_[static_cast<std::size_t>(letter)] = in_place;
  for (const char c : {'-', '*'})
    if (taken_[static_cast<std::size_t>(c)] == 0) taken_[static_cast<std::size_t>(c)] = in_place;
}

void FastaReader::begin_file(const std::string& name) {
  file_ = name;
  in_ = In::line_start;
  begun_ = returned_ = false;
  line_ = 1;
}

std::string FastaReader::place() const { return printable(file_) + ":" + std::to_string(line_); }

void FastaReader::read(const std::uint8_t* bytes, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const bool ended = returned_ && bytes[i] == '\n';  // with the carriage return
    returned_ = bytes[i] == '\r';
    if (ended) continue;
    if (returned_ || bytes[i] == '\n')
      end_line();
    else
      take(bytes[i]);
  }
  flush();
}

void FastaReader::end_file() {
  if (in_ != In::line_start) end_line();
  flush();
  without_letters_ += empty_ ? 1 : 0;
  empty_ = false;
}

void FastaReader::take(std::uint8_t byte) {
  if (in_ == In::line_start) {
    in_ = byte == '>' ? In::name : byte == ';' ? In::comment : In::letters;
    if (in_ == In::name) name_.clear();
    if (in_ != In::letters) return;
  }
  if (in_ == In::letters) return take_letter(byte);
  if (in_ != In::name) return;
  if (is_space(byte) && name_.empty()) return;
  if (is_space(byte)) {
    in_ = In::title;
    return;
  }
  name_ += static_cast<char>(byte);
  if (name_.size() > longest_name)
    throw user_error("{}: has a name of more than {} characters; give FASTA files", place(), longest_name);
}

void FastaReader::take_letter(std::uint8_t byte) {
  if (is_space(byte)) return;
  if (!begun_)
    throw user_error(
        "{}: has letters before the first line '>name', with which records of FASTA begin; give FASTA files", place());
  const std::uint8_t letter = taken_[byte];
  if (letter == 0)
    throw user_error(
        "{}: has '{}', but --letters is {}; add it there, or have letters replaced with --other-letters {}", place(),
        printable(std::string(1, static_cast<char>(byte))), letters_, letters_.back());
  held_.push_back(letter);
  empty_ = false;
}

void FastaReader::end_line() {
  if (in_ == In::name || in_ == In::title) {
    flush();
    without_letters_ += empty_ ? 1 : 0;
    begun_ = empty_ = true;
    receiver_.begin(name_);
  }
  in_ = In::line_start;
  ++line_;
}

void FastaReader::flush() {
  if (!held_.empty()) receiver_.append(held_.data(), std::ssize(held_));
  held_.clear();
}

}  // namespace longstride
