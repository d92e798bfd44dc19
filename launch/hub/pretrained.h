// A folder in the layout of Hugging Face, as `export --hf`, save_pretrained of the Python package and transformers' own
// write it: config.json, whose "settings" are a recipe's `model:` with the context and the geometry of pictures,
// weights as safetensors, and the files of package_files.h. Programs of Hugging Face read it with its code, and the
// commands that read a run take it as one.
#pragma once
#include <string>

#include "framework/train/checkpoint/checkpoint.h"
#include "launch/run/run_directory.h"

namespace longstride {

// The path of data in the recipe of such a folder, which does not name any.
inline constexpr const char* unnamed_data = "(not named)";

// The state that a checkpoint of such a model would record: a recipe that has the model and the kind of data, and the
// steps of the run and of transformers' Trainer. UserError if the folder is not of a model that Longstride wrote, or
// its settings are not those of one.
CheckpointState read_pretrained(const std::string& folder);

// The SHA-256 of the tokenizer, which is all that such a folder records of its data. One that was written without it
// has that of its tokenizer.model. UserError if config.json is no JSON object, or the file is no SentencePiece model.
DataRecord data_of_pretrained(const std::string& folder);

// UserError as above, if the weights are not whole, finite and those of these settings, or if there is a tokenizer that
// is another than the recorded one.
LoadedRun load_pretrained(const std::string& folder);

// Writes a new folder, which appears whole. `run`: the name that config.json gives as the origin. UserError if there
// are files in the folder, or if the Python package cannot compute this model.
void write_pretrained(const LoadedRun& loaded, const std::string& run, const std::string& folder);

}  // namespace longstride
