// Folders that have splits by name, as WikiText (wiki.train.tokens, wiki.valid.tokens, wiki.test.tokens) and PG-19
// (train/, validation/, test/, metadata.csv) do.
#pragma once
#include "datasets/prepare/prepare.h"

namespace longstride {

// If the only input is such a folder and neither --split nor other inputs are given, makes its files or folders the
// inputs of train, valid and test, and says so. Names differ in digits and in one word: train; valid, validation, val
// or dev; test. Tables (.csv, .tsv, .json), pages (.md) and files without a dot (LICENSE) beside them are left out. Any
// other folder stays as it is.
PrepareBytesConfig with_named_splits(PrepareBytesConfig config, const PrepareOutput& output);

}  // namespace longstride
