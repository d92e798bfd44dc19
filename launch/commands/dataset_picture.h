// A view of a prepared dataset: a contact sheet of its pictures, or strips of its sound.
#pragma once
#include <string>

#include "datasets/dataset.h"

namespace longstride {

// UserError if the dataset holds neither pictures nor sound.
void check_can_be_drawn(const Dataset& dataset);

// Writes a PNG with a band for each split that holds anything, from train to test. Pictures: up to 96 of train and 24
// of the others, at even distances, each enlarged to at least 64 pixels or reduced to 128. Sound: the range of the
// samples over the whole split, file boundaries in grey. Returns what was drawn, for a message.
std::string draw_dataset(const Dataset& dataset, const std::string& path);

}  // namespace longstride
