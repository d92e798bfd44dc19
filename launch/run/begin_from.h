// A new run that begins with the weights of another, or of a file (train --from): which weights, and whether they fit
// the recipe.
#pragma once
#include <string>
#include <vector>

#include "framework/comm/communicator.h"
#include "launch/recipe/recipe.h"
#include "launch/run/run_directory.h"

namespace longstride {

struct BeginFrom {
  std::string run =
      {};  // directory of a run, a safetensors file of weights, or a folder that save_pretrained has written
  CheckpointChoice checkpoint = {};
  std::string weights = "automatic";  // as load_run() has it
  std::vector<std::string> fresh =
      {};  // components, such as a head, that start as in a new run; others may be left out
  std::vector<std::string> repeated = {};  // tables whose rows are those of the other run, again and again

  bool is_fresh(const std::string& parameter) const;
  bool is_repeated(const std::string& parameter) const;
};

// For rank 0. Reads only. UserError if `from` is neither a run nor such a file or folder, holds no whole checkpoint of
// this choice, or has parameters with other names or shapes than the recipe's model, unless the rest says how they
// begin (Init::like). A file's tensors must be finite; they are F32, BF16, F16 or F64, which is rounded, and may have
// "model." before their names.
LoadedRun load_to_begin(const BeginFrom& from, const Recipe& recipe);

// "/home/me/runs/base, step 2000, averaged weights", or the file's path: what the new run records.
std::string origin_text(const BeginFrom& from, const LoadedRun& loaded);

// Keys of the model that leave its parameters as they are and yet differ, such as the stride of attention.
std::vector<Change> changes_of_model(const LoadedRun& loaded, const Recipe& recipe);

// Every rank calls it with the (host) masters of its model; `loaded` is rank 0's, and the others get the same bits.
void hand_over_weights(const LoadedRun* loaded, const BeginFrom& from, ParameterSet& parameters, Communicator& comm);

// Names of parameters of the other run that the recipe's model lacks, and which are left out: with BeginFrom::fresh.
std::vector<std::string> left_out(const LoadedRun& loaded, const ParameterSet& parameters);

}  // namespace longstride
