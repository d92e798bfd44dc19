// The settings of a model of any kind, from a recipe's `model:` section and from the data.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/core/objective.h"
#include "framework/core/settings/checker.h"
#include "framework/core/settings/visitor.h"
#include "framework/models/model.h"

namespace longstride {

struct Geometry {
  std::int64_t rows = 0, columns = 0, channels = 0;  // pictures; all 0 for text and audio
};

struct ModelConfig;

// A choice of results that backward keeps or computes again; the gradients are the same.
struct RecomputePolicy {
  std::string name;                     // `model.recompute` in recipes
  std::string summary;                  // results that are kept, for the plan
  std::shared_ptr<ModelConfig> config;  // the settings with this policy
};

// A model's memory and limit of distances: settings that no weight depends on, so that an evaluation may have others
// than training had. Absent: the model has no such setting, or it is not to be changed.
struct EvaluatedMemory {
  std::optional<std::int64_t> length;           // positions that rows remember
  std::optional<std::int64_t> clamp;            // the farthest distance of its own: farther ones count as this one
  std::optional<std::int64_t> compressed = {};  // rows before the memory, made of what has left it
  bool same_length =
      false;  // every position reads as many keys as rows are remembered, and not those of its window too

  bool given() const { return length.has_value() || clamp.has_value() || compressed.has_value() || same_length; }
  bool operator==(const EvaluatedMemory&) const = default;
};

// How a model reads documents, as the data has them (datasets/data_config.h).
struct DocumentForm {
  bool separate = false;  // rows say which document a position belongs to (Batch::groups), and no document sees another
  bool restart = false;   // positions count from the beginning of their document
  bool padded = false;    // rows end with positions of weight 0
};

struct ModelConfig {
  std::int64_t context = 0;       // longest sequence; this and the geometry come from the data
  std::int64_t vocabulary = 256;  // ids of tokens; from the data, but for kinds that have ids of their own
  Geometry geometry;
  DocumentForm documents;                      // likewise
  std::shared_ptr<const Objective> objective;  // the recipe's, one that it answers; null: the next byte

  virtual ~ModelConfig() = default;
  virtual const char* kind() const = 0;  // `model.kind` in recipes
  // Tells which kinds of objective the model can answer.
  virtual bool answers(std::string_view asked) const { return asked == "next_byte"; }
  // True if `vocabulary` may be any, and not only that of bytes.
  virtual bool reads_tokens() const { return false; }
  virtual std::unique_ptr<Model> make_model() const = 0;

  // Every key of `model:` but `kind`.
  virtual void visit(SettingsVisitor& v) = 0;
  // Keys that must agree with each other or with the data, for `sequence_ranks` ranks per sequence.
  virtual void check(SettingsChecker& check, std::int64_t sequence_ranks) const = 0;
  // Settings that are consistent but with which training has no effect or diverges; messages name the value to set.
  virtual void check_training(SettingsChecker&) const {}

  // The fault of the windows that a stage of training gives the model (SetsWindows); empty: none.
  virtual std::string problem_of_windows(const std::vector<std::int64_t>& of_layers) const;

  // True if the model has states (framework/core/state.h), which requires rows that are read in order.
  virtual bool remembers() const { return false; }
  // Why these settings cannot keep documents apart; empty: they can.
  virtual std::string problem_of_documents() const;
  // The key by which it reads the groups of a row (Batch::sentences); empty: it reads none.
  virtual std::string reader_of_groups() const { return {}; }
  // Why the Python package (launch/python), and so programs of Hugging Face, cannot compute these settings; empty: they
  // can.
  virtual std::string problem_in_python() const;
  // The settings of a model with the same parameters that reads documents in another form. UserError if it cannot.
  virtual std::shared_ptr<ModelConfig> with_documents(const DocumentForm& changed) const;
  // The memory of these settings, as an evaluation reports it.
  virtual EvaluatedMemory evaluated_memory() const { return {}; }
  // The settings of a model with the same parameters and another memory. UserError, which names the options of `eval`,
  // if there is none.
  virtual std::shared_ptr<ModelConfig> with_memory(const EvaluatedMemory& changed) const;
  // The settings of a model with the same scores of streams of at most `read` positions. Its memory is no longer than
  // such a stream.
  virtual std::shared_ptr<ModelConfig> for_streams_of(std::int64_t read) const;
  virtual double activation_bytes() const = 0;  // approximate, per position: to refuse what no memory could hold
  virtual std::string summary() const = 0;      // the sizes in a few words, for the report
  // The policies to choose from, the fastest first: one unless the recipe leaves the choice to the planner
  // (framework/train/step/recompute_choice.h). None if the kind has no names for them.
  virtual std::vector<RecomputePolicy> recompute_policies() const { return {}; }
  // Overrides by which what repeats with a row of pictures of `geometry` repeats with a row of `row` bytes; none if
  // nothing does.
  virtual std::vector<std::string> overrides_for_rows(std::int64_t /*row*/) const { return {}; }
  // Overrides that let a CPU train a similar model in seconds: `reproduce --scale smoke`.
  virtual std::vector<std::string> toy_overrides() const { return {}; }
};

}  // namespace longstride
