// Folders that have splits by name, as WikiText (wiki.train.tokens, wiki.valid.tokens, wiki.test.tokens) and PG-19
// (train/, validation/, test/, metadata.csv) do.
#pragma once
#include "datasets/prepare/prepare.h"

namespace longstride {

// If the only input is such a folder and neither --split nor other inputs are given, makes its files or folders the
// inputs of train, valid and test, and says so. Names are alike but for a word (train; valid, validation, val or dev;
// test) and digits; tables (.csv, .tsv, .json), pages (.md) and files without a dot (LICENSE) may lie beside
// them and are left out. Any other folder stays as it is.
PrepareBytesConfig with_named_splits(PrepareBytesConfig config, const PrepareOutput& output);

}  // namespace longstride
