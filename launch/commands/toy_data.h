// Small datasets for runs at toy size: prepared from the user's folder, or from generated data (sentences, drawn
// pictures, plucked strings), which shows that everything works but says nothing about quality.
#pragma once
#include <string>

#include "datasets/data_config.h"

namespace longstride {

// The dataset of this kind in `folder`, empty if there is none: a prepared *.h5, or one that is prepared into `output`
// from the raw data in text/, cifar10/, images/ or audio/.
std::string dataset_in(const std::string& folder, DataKind kind, const std::string& output);

// A generated dataset in `output`; an existing one is kept.
std::string made_up_dataset(DataKind kind, const std::string& output);

}  // namespace longstride
