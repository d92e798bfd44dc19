// FASTA: records of a line ">name words" and lines of letters, for `prepare bytes --documents fasta`.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace longstride {

// Reads the bytes of FASTA files in pieces of any size.
//  - A line ends with a line feed, a carriage return, or both; the last one also with its file.
//  - A record's name is the first word of its line. It may lack letters.
//  - Letters are turned into upper case, and those that the rule lacks into `other`, or refused. White space is left
//  out,
//    and so are lines that begin with a semicolon, which are comments.
class FastaReader {
 public:
  // Receives the name of each record, and its letters in pieces, which are never empty.
  struct Receiver {
    std::function<void(const std::string& name)> begin;
    std::function<void(const std::uint8_t* letters, std::int64_t count)> append;
  };
  // letters: those that are taken. other: one of them, in place of all others; empty: none. UserError, by the options
  // that they are, for letters that a FASTA file cannot have.
  FastaReader(const std::string& letters, const std::string& other, Receiver receiver);

  void begin_file(const std::string& name);
  // UserError that begins with file and line.
  void read(const std::uint8_t* bytes, std::int64_t count);
  void end_file();

  std::string place() const;                                         // "FILE:LINE"
  std::int64_t without_letters() const { return without_letters_; }  // records that have ended

 private:
  enum class In : std::uint8_t { line_start, name, title, comment, letters };
  void take(std::uint8_t byte);
  void take_letter(std::uint8_t byte);
  void end_line();
  void flush();

  std::string letters_;
  std::array<std::uint8_t, 256> taken_{};  // the letter for a byte; 0: refused
  Receiver receiver_;
  std::string file_, name_;
  In in_ = In::line_start;
  bool returned_ = false;  // the byte before was a carriage return
  bool begun_ = false;     // a record of this file has begun
  bool empty_ = false;     // so far, it has no letters
  std::int64_t line_ = 1;
  std::int64_t without_letters_ = 0;
  std::vector<std::uint8_t> held_;  // letters not yet passed on
};

}  // namespace longstride
