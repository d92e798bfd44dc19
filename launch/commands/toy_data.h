// Small datasets for runs at toy size: prepared from a folder of the user's, or from data that is made up here, by
// rule: sentences, drawn pictures, plucked strings. Made-up data shows that everything works, and nothing about
// quality.
#pragma once
#include <string>

#include "datasets/data_config.h"

namespace longstride {

// The dataset of this kind in `folder`, empty when there is none: a prepared *.h5, or one that is prepared into
// `output` from the raw data in text/, cifar10/, images/ or audio/.
std::string dataset_in(const std::string& folder, DataKind kind, const std::string& output);

// Made up, into `output`; what is there already stays.
std::string made_up_dataset(DataKind kind, const std::string& output);

}  // namespace longstride
