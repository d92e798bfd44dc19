// Patterns over pictures: a stride that is the row of pictures of another size.
#pragma once
#include <string>

#include "launch/recipe/recipe.h"

namespace longstride {

// A sentence that names the stride to set; empty if the model has none or its stride may be meant. Strided patterns see
// the pixels above if the stride is a row; others, such as the paper's 128 for rows of 192, are no row of any picture.
std::string stride_of_other_pictures(const Recipe& recipe, const Model& model);

}  // namespace longstride
