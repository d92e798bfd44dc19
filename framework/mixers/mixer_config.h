// The settings of a mixer, as an entry of a recipe's `model.mixers` has them, and the kinds that there are. A kind is
// one folder framework/mixers/<kind>/ and one line in kinds.cpp.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/core/settings/checker.h"
#include "framework/core/settings/visitor.h"
#include "framework/layers/block_form.h"
#include "framework/mixers/mixer.h"

namespace longstride {

// Settings that a mixer takes from its model and from its place there.
struct MixerForm {
  BlockForm block;
  std::int64_t heads = 0;    // the mixer's own heads, among the block's
  std::int64_t segment = 0;  // positions of the model's context
  bool output_bias = true;   // in the output projection: side by side, only the first mixer has one
  std::string prefix;        // before the names of what its layers share
  bool documents = false;    // rows have documents that do not see one another
};

// The recipe around a mixer's settings, for their check.
struct MixerChecks {
  SettingsChecker& check;
  std::string key;         // the settings' own: "model.attention", "model.mixers.1"
  std::string memory_key;  // key of the memory: "model.memory", "model.mixers.1.memory"
  const MixerForm& form;
  std::int64_t sequence_ranks = 1;

  std::string of(const std::string& name) const { return key + "." + name; }
  bool in_list() const { return key.starts_with("model.mixers."); }
};

struct MixerConfig {
  virtual ~MixerConfig() = default;
  virtual const char* kind() const = 0;  // `kind` in recipes
  virtual std::unique_ptr<MixerConfig> clone() const = 0;
  // Sets the default of a direction, that of the model, before keys are read.
  virtual void set_direction(kernels::Direction /*direction*/) {}
  // Every key but `kind`, and `layers` and `heads`, which all kinds have.
  virtual void visit(SettingsVisitor& v) = 0;
  // Keys that must agree with each other, with the model or with the data.
  virtual void check(const MixerChecks& checks) const = 0;
  // Settings that are consistent but with which training has no effect.
  virtual void check_training(const MixerChecks& /*checks*/) const {}
  // Declares what its layers share.
  virtual std::unique_ptr<MixerFamily> make(const MixerForm& form, ParameterSet& parameters,
                                            StateSet& states) const = 0;
  virtual std::int64_t stride() const { return 0; }       // the pattern's, which position tables may follow; 0: none
  virtual bool remembers() const { return false; }        // layers keep states of a row from step to step
  virtual bool has_global_rows() const { return false; }  // follows BlockForm::global
  virtual bool transforms() const { return true; }        // applies BlockForm::transform() to queries and keys
  // Why its layers cannot keep documents apart (Context::documents); empty: they can.
  virtual std::string problem_of_documents() const { return std::string(kind()) + " cannot keep documents apart"; }
  virtual bool has_windows() const { return false; }  // a stage of training may set windows
  // The fault of a stage's windows, one for all layers or one for each; empty: none.
  virtual std::string problem_of_windows(const std::vector<std::int64_t>& of_layers, std::int64_t layers) const;
};

using MixerKind = std::unique_ptr<MixerConfig> (*)();
const std::vector<MixerKind>& mixer_kinds();

}  // namespace longstride
