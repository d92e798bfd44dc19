// The settings of a model of any kind, from a recipe's `model:` section and from the data.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/core/settings/checker.h"
#include "framework/core/settings/visitor.h"
#include "framework/models/model.h"

namespace longstride {

struct Geometry {
  std::int64_t rows = 0, columns = 0, channels = 0;  // pictures; all 0 for text and audio
};

struct ModelConfig {
  std::int64_t context = 0;  // longest sequence; this and the geometry come from the data
  Geometry geometry;

  virtual ~ModelConfig() = default;
  virtual const char* kind() const = 0;  // `model.kind` in recipes
  virtual std::unique_ptr<Model> make_model() const = 0;

  // Every key of `model:` but `kind`.
  virtual void visit(SettingsVisitor& v) = 0;
  // Keys that must agree with each other or with the data, for `sequence_ranks` ranks per sequence.
  virtual void check(SettingsChecker& check, std::int64_t sequence_ranks) const = 0;
  // Settings that are consistent but with which training has no effect or diverges; messages name the value to set.
  virtual void check_training(SettingsChecker&) const {}

  virtual double activation_bytes() const = 0;  // approximate, per position: to refuse what no memory could hold
  virtual std::string summary() const = 0;      // the sizes in a few words, for the report
  // Overrides that let a CPU train a similar model in seconds: `reproduce --scale smoke`.
  virtual std::vector<std::string> toy_overrides() const { return {}; }
};

}  // namespace longstride
