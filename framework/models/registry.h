// The kinds of model that a recipe may name. A kind is registered in one line, in registry.cpp or in a source file that
// is linked into the program as an object:
//   const bool registered = register_model<BigramConfig>();
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/models/model_config.h"

namespace longstride {

// The settings of a model with their defaults, one per kind; the first is the default.
using ModelKind = std::unique_ptr<ModelConfig> (*)();
std::vector<ModelKind>& model_kinds();

// Names of models that are settings of a kind, each with what a recipe says instead.
const OtherWords& models_of_kinds();

template <class Config>
std::unique_ptr<ModelConfig> default_config() {
  return std::make_unique<Config>();
}
template <class Config>
bool register_model() {
  model_kinds().push_back(default_config<Config>);
  return true;
}

}  // namespace longstride
