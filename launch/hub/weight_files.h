// Weights in files of other programs: a safetensors file, or a folder in the layout of Hugging Face.
#pragma once
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/core/files/safetensors.h"
#include "framework/core/parameters.h"

namespace longstride {

// True if the folder has a config.json, as those of Hugging Face do, and no checkpoints.
bool is_pretrained(const std::string& folder);

// The files of weights: `path` itself, or those of such a folder. None: `path` may name a run. UserError, which begins
// with `shown`, if the folder is not of a model that Longstride wrote.
std::vector<std::string> weight_files(const std::string& path, const std::string& shown);

const Parameter* find_parameter(const ParameterSet& parameters, const std::string& name);

// The tensors of some files by the names of parameters; save_pretrained puts "model." before them.
class WeightFiles {
 public:
  using InFile = std::pair<const SafetensorsReader*, const TensorEntry*>;

  // UserError, which begins with `shown` where the file is of another format.
  WeightFiles(const std::vector<std::string>& paths, const ParameterSet& parameters, const std::string& shown);

  const std::map<std::string, InFile>& tensors() const { return tensors_; }
  const InFile* find(const std::string& name) const;  // null: not there

  // As f32, to which f64 is rounded. UserError if it is of no such type.
  static std::vector<float> values(const InFile& from);

 private:
  std::deque<SafetensorsReader> files_;
  std::map<std::string, InFile> tensors_;
};

// UserError, which begins with `shown` and ends with the consequence, if a weight is not finite.
void refuse_infinite(const ParameterSet& parameters, const std::string& shown, const std::string& consequence);

}  // namespace longstride
