// A recipe: everything a run needs to know, from a strict YAML file.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "datasets/data_config.h"
#include "datasets/objectives/kinds.h"
#include "framework/models/registry.h"
#include "framework/train/train_config.h"

namespace longstride {

struct Setting;

// The published figure a recipe is meant to reproduce.
struct Reproduces {
  int table = 0;      // number in the Sparse Transformer's paper; 0: none
  std::string paper;  // another paper; empty: none
  std::string row;    // row of the table, or of the paper's results
  double bits_per_byte = 0;
  double parameters = 0;          // published parameter count, e.g. 94.9e6; 0: not published
  double time_per_iteration = 0;  // table 2, seconds on the paper's hardware; 0: not published

  bool given() const { return table > 0 || !paper.empty(); }
  std::string where() const { return table > 0 ? "table " + std::to_string(table) : paper; }
};

struct Recipe {
  std::string name;
  Reproduces reproduces;
  // Settings the paper does not give, by key ("train.lr"), each with the reason for the value chosen.
  std::vector<std::pair<std::string, std::string>> unpublished;
  DataConfig data;
  // Copies share them, and only reading fills them. The model has the objective too.
  std::shared_ptr<Objective> objective = objective_kinds().front()();
  std::shared_ptr<ModelConfig> model = model_kinds().front()();
  TrainConfig train;
  std::string resolved;  // the whole recipe as YAML, every key written out; what a run directory keeps
};

// Reads `path`, its `base:` (one level, relative to the file) and overrides "model.layers=12" in order. UserError on
// anything unknown, missing, ill-typed, out of range or unable to train, with all such mistakes at once.
Recipe read_recipe(const std::string& path, const std::vector<std::string>& overrides = {});
// The same from text; `name` replaces the file in messages. base: is resolved against the working directory.
Recipe parse_recipe(const std::string& text, const std::string& name, const std::vector<std::string>& overrides = {});

// The tree of a recipe's file with its base merged in, neither checked nor completed: to write another recipe from it.
Setting settings_of_recipe(const std::string& path);

// How a model reads the documents of this data.
DocumentForm document_form(const DataConfig& data);

// The recipe with other settings of its model, resolved accordingly.
Recipe with_model(Recipe recipe, std::shared_ptr<ModelConfig> model);

// The resolved recipe that a run keeps. It was accepted when the run began, so settings that cannot train, which an
// earlier version allowed, do not prevent evaluating the run.
Recipe recipe_of_run(const std::string& text, const std::string& name);

}  // namespace longstride
