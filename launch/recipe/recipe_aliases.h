// What may be meant by a word that a recipe does not know: the names that other programs use, and the paper's.
#pragma once
#include <string>
#include <vector>

namespace longstride {

// The key meant by `word` in `section` ("" is the root), whose keys are `known`: one of these, or one of another
// section, dotted; empty when none is likely.
std::string meant_key(const std::string& word, const std::string& section, const std::vector<std::string>& known);

// What a word means as parts of attention, as "strided is [local, column]"; empty: nothing that is known.
std::string meant_parts(const std::string& word);

}  // namespace longstride
