// Files with the same content under different names. Divided like others they would leak from one split into another,
// so a copy goes where the first file with its content goes.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/prepare/prepare.h"
#include "framework/core/errors.h"

namespace longstride {

// The properties that two copies have in common. Only files that agree in them are read once more, for their SHA-256.
struct Fingerprint {
  std::int64_t bytes = 0;
  std::uint64_t head = 0;  // head_of() its first bytes

  static constexpr std::size_t head_bytes = 4096;  // enough to tell apart what encoders write to files of one size
};
std::uint64_t head_of(std::string_view first);  // `first`: at least head_bytes, or the whole file
Fingerprint fingerprint_of(const std::string& path);

class Copies {
 public:
  // sha256_of: of the files with these numbers, which rise. name_of: of one file. UserError if there are copies and
  // `rule` refuses them. Empty files are no copies.
  Copies(const std::vector<Fingerprint>& files, Duplicates rule,
         const std::function<std::vector<std::string>(const std::vector<std::int64_t>&)>& sha256_of,
         const std::function<std::string(std::int64_t)>& name_of);

  std::int64_t files() const { return static_cast<std::int64_t>(first_.size()); }
  std::int64_t count() const { return copies_; }
  // The first file with the content of file i.
  std::int64_t first(std::int64_t i) const { return first_[static_cast<std::size_t>(i)]; }
  bool left_out(std::int64_t i) const { return rule_ == Duplicates::drop && first(i) != i; }
  // How many files with the content of file i are taken; 0 of a copy, which is counted with the first.
  std::int64_t taken(std::int64_t i) const { return taken_[static_cast<std::size_t>(i)]; }
  // One sentence, and what a dataset records; empty without copies.
  std::string note(const char* what) const;
  std::string record() const;
  // "a.txt is a copy of b.txt".
  const std::string& example() const { return example_; }

 private:
  Duplicates rule_;
  std::vector<std::int64_t> first_, taken_;
  std::int64_t copies_ = 0;
  std::string example_;
};

// UserError: exact counts cannot be had, because a copy has to go where the first is. `nearest`: counts that can.
UserError counts_split_copies(const Copies& copies, const std::string& where, const std::string& split,
                              const std::array<std::int64_t, 3>& nearest);

// Where the splits are given, copies stay where they are: says how many are in another split than the first.
void warn_of_shared(const Copies& copies, std::int64_t across, const char* what, Duplicates rule,
                    const PrepareOutput& output);

}  // namespace longstride
