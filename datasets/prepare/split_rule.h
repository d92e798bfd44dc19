// How a whole is divided into train, valid and test: `--split`.
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "datasets/prepare/prepare.h"

namespace longstride {

// Entries of train, valid and test.
using SplitCounts = std::array<std::int64_t, 3>;

class SplitRule {
 public:
  // Two or three counts ("90000000,5000000,5000000"), fractions, recognised by their dots ("0.9,0.05,0.05"), or
  // "enwik8": 90M, 5M and 5M of exactly 100,000,000 bytes. UserError for anything else.
  static SplitRule parse(const std::string& text);

  // The configuration's rule, or `fallback` if it has none. UserError if it has one although the splits are given.
  static SplitRule of(const PrepareFilesConfig& config, const char* fallback);

  // Divides `total` `units`. UserError, beginning with `where`, if the rule's counts do not add up to that.
  SplitCounts divide(std::int64_t total, const std::string& where, const char* units) const;
  // UserError if a split with a share gets nothing because the total is too small.
  void check_shares(const SplitCounts& counts, const std::string& where, const char* units) const;
  bool counted() const { return counted_; }
  const SplitCounts& counts() const { return counts_; }                  // when counted
  const std::array<double, 3>& fractions() const { return fractions_; }  // when not counted
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  bool counted_ = false;
  std::array<double, 3> fractions_{};
  SplitCounts counts_{};
};

}  // namespace longstride
