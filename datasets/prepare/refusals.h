// Files that cannot be used: all are listed in one go, so that a user need not start once for each, or left out.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "datasets/prepare/prepare.h"

namespace longstride {

class Refusals {
 public:
  // kind: "pictures" or "sound files". skip: --skip-others.
  Refusals(const char* kind, bool skip, PrepareNote note);

  // How many files there are in all.
  void expect(std::int64_t total) { total_ = total; }

  // why: a sentence that begins with the file's name. Throws what finish() throws once so many are refused that
  // looking further has no point.
  void add(const std::string& why);
  // True if the result is not wanted any more.
  bool final() const { return !skip_ && count_ > 0; }
  // UserError that lists what was added, unless it is to be left out; then says how many there are. UserError if
  // nothing is left.
  void finish() const;

 private:
  std::string list() const;

  const char* kind_;
  std::int64_t total_ = 0, count_ = 0;
  bool skip_;
  PrepareNote note_;
  std::vector<std::string> first_;
};

}  // namespace longstride
