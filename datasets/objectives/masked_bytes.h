// Masked bytes (Devlin et al. 2019): some units of a row are asked, most of them hidden, and every byte of them is
// predicted from all others; the score is in bits per masked byte.
//
// Which units is a function of the row's key alone, so that another program can draw the same
// (docs/develop/numerics.md): a unit whose first byte is at position p draws philox(seed, row, p, masks, 0) = w0 .. w3.
// It is asked if w0 < 2^32 share; of a row with units, at least the one with the least w0 is. If asked, it is hidden
// behind mask ids if w1 < 2^32 mask, replaced by drawn bytes if w1 < 2^32 (mask + random), and shown otherwise.
#pragma once
#include <vector>

#include "framework/core/objective.h"

namespace longstride {

// byte: each by itself. word: letters, digits and bytes from 128 on in a row, at most 32. span: pieces of `length`
// bytes, from a drawn offset on. group: a sentence or document. None crosses the end of a group or document.
enum class MaskedUnit : std::uint8_t { byte, word, span, group };

struct MaskedSettings {
  MaskedUnit unit = MaskedUnit::byte;
  double share = 0.15;                          // share of units that are asked
  double mask = 0.8, random = 0.1, keep = 0.1;  // shares of those that are hidden, replaced, shown
  std::int64_t length = 8;                      // bytes in a span
};

class Masked final : public Objective {
 public:
  static constexpr std::int64_t longest_word = 32;
  struct Unit {
    std::int64_t begin, end;
  };

  Masked() = default;
  explicit Masked(const MaskedSettings& settings) : s_(settings) {}
  const MaskedSettings& settings() const { return s_; }

  const char* kind() const override { return "masked"; }
  void visit(SettingsVisitor& v) override;
  void check(SettingsChecker& check) const override;
  BatchFields fields() const override { return {.wide = true, .targets = true, .weights = true}; }
  bool reads_groups() const override { return s_.unit == MaskedUnit::group; }
  void write(const Batch& batch, std::int64_t row, const RowBytes& of, const RowKey& key) const override;
  bool hides() const override { return true; }
  std::uint8_t replaced(std::uint8_t byte) const override;
  nlohmann::ordered_json answers_of(const AnsweredRow& row) const override;
  std::size_t sums() const override { return 2; }
  void add(const Answered& one, double* sums) const override;
  bool judges() const override { return true; }
  std::vector<Figure> figures(const Scored& scored) const override;
  std::size_t shown() const override { return 1; }
  double guess() const override { return 8; }

  // The units of a row that may be asked, in order.
  std::vector<Unit> units(const RowBytes& of, std::int64_t count, const RowKey& key) const;

 private:
  void add_units(const std::uint8_t* bytes, Unit part, std::int64_t phase, std::vector<Unit>& units) const;

  MaskedSettings s_;
};

}  // namespace longstride
