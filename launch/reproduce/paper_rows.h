// The rows of the paper's tables, as given by the recipes in recipes/table1 .. table4.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "launch/recipe/recipe.h"

namespace longstride {

// paper: the published training. smoke: the same patterns at toy size. speed: the published model, timed, not trained.
enum class Scale : std::uint8_t { paper, smoke, speed };

struct PaperRow {
  std::string key;               // the recipe file's name: "enwik8-fixed"
  std::string label;             // the row in the paper's words
  std::string run;               // directory, shared by rows with the same training
  Recipe published;              // as the file has it
  Recipe recipe;                 // at the scale, with the user's overrides
  std::int64_t min_context = 0;  // table 3
  double bits_per_byte = 0;      // the paper's
};

// In the paper's order; recipes for other rows come last. `wanted` are the keys of some of them, or empty for all; the
// overrides are for these alone. UserError if the folder holds none, or none of a wanted name.
std::vector<PaperRow> paper_rows(int table, const std::string& recipes, Scale scale,
                                 const std::vector<std::string>& overrides, const std::vector<std::string>& wanted);

}  // namespace longstride
