// Text of a dataset of bytes, and the tokens that it becomes.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "datasets/dataset.h"
#include "datasets/prepare/dataset_writer.h"
#include "datasets/tokens/text_ids.h"

namespace longstride {

// Encodes a split in several threads, document by document, into the same split of `writer`. The tokens do not depend
// on the number of threads. `done` is called with the bytes done since the last call.
void encode_split(const Dataset& text, SplitId split, const PieceTable& pieces, const TextIds& encoder,
                  DatasetWriter& writer, const std::function<void(std::int64_t)>& done);

// Gives lines of train, spread evenly over it, some megabytes in all: UTF-8 only, none longer than a few thousand
// bytes.
std::function<bool(std::string&)> lines_to_train_on(const Dataset& text);

}  // namespace longstride
