// The keys that an unknown word may mean, including the names that other programs use.
#pragma once
#include <string>
#include <vector>

#include "launch/recipe/settings_tree.h"

namespace longstride {

// The key meant by `word` in `section` ("" is the root), whose keys are `known`: one of these, or one of another
// section, dotted; empty if none is likely. A section within a section, such as model.attention, excludes others, so
// its keys are meant only if the recipe has it.
std::string meant_key(const std::string& word, const std::string& section, const std::vector<std::string>& known,
                      const Setting& recipe);

// The key that an option of the same name is taken for: train.steps of "steps", train.global_batch of "batch-size".
// Empty if there is none.
std::string key_of_option(const std::string& word);

// In small letters and with underscores, as words of a recipe are written.
std::string as_key(std::string word);

// The present name of `key`, dotted; empty when it was never renamed.
std::string renamed_key(const std::string& key);

// Gives every renamed key its present name, so that runs that began under the former one are read.
void rename_keys(Setting& root);

}  // namespace longstride
