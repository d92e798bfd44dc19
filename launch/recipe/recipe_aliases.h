// Which key an unknown word may mean, including the names that other programs use.
#pragma once
#include <string>
#include <vector>

#include "launch/recipe/settings_tree.h"

namespace longstride {

// The key meant by `word` in `section` ("" is the root), whose keys are `known`: one of these, or one of another
// section, dotted; empty if none is likely.
std::string meant_key(const std::string& word, const std::string& section, const std::vector<std::string>& known);

// What `key`, dotted, is called now; empty when it was never renamed.
std::string renamed_key(const std::string& key);

// Gives every renamed key its present name, so that runs that began under the former one are read.
void rename_keys(Setting& root);

}  // namespace longstride
