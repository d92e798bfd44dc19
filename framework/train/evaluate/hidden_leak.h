// How far scores of hidden bytes depend on what is hidden from them: the bytes themselves, and other documents of the
// row, padding among them.
#pragma once
#include "framework/train/evaluate/replaced_futures.h"
#include "framework/train/evaluate/row_reader.h"

namespace longstride {

// Over at most `windows` windows of the reader's length, spread evenly, asked as an evaluation asks them.
ReplacedFutures::Leak leak_of_hidden(RowReader& reader, const Objective& objective, const SequenceSet& sequences,
                                     std::int64_t windows);

}  // namespace longstride
