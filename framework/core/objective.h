// Objectives: what rows ask of a model, and the figures of its answers, `objective:` of a recipe. The kinds are in
// datasets/objectives/, and the model of a recipe says which it can answer (ModelConfig::answers).
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/core/batch.h"
#include "framework/core/settings/visitor.h"

namespace longstride {

// The bytes of the data that a row is made from.
struct RowBytes {
  const std::uint8_t* bytes = nullptr;  // as many as the batch has positions
  std::uint8_t before = 0;              // byte that precedes them; not read if the row starts a stream
  bool starts = true;
};

// Identifies a row, so that one that draws random numbers draws the same ones again. In training: the seed, and the
// number of the row in the run, which follows from its step; with stages, among rows of its length. In evaluation: 0,
// and the number of the window, so that all models are asked the same.
struct RowKey {
  std::uint64_t seed = 0;
  std::int64_t row = 0;
};

// Sums over the losses of an evaluation, or of a step of training.
struct Scored {
  std::vector<double> sums;          // by Objective::add; of a step only the first, the sum of the losses
  double weight = 0;                 // sum of the losses' weights; without weights, their number
  std::optional<double> error = {};  // standard error of loss()

  double loss() const { return sums.front() / weight; }
};

struct Figure {
  std::string name;  // "bits per byte"
  double value = 0;
  bool lower_is_better = true;
  std::optional<double> error = {};  // standard error
  std::string unit = {};             // behind the value in lines for people; empty: the name

  std::string key() const;  // in files: "bits_per_byte"
  const std::string& shown_unit() const { return unit.empty() ? name : unit; }
};

class Objective {
 public:
  virtual ~Objective() = default;
  virtual const char* kind() const = 0;  // `objective.kind` in recipes
  // Every key of `objective:` but `kind`.
  virtual void visit(SettingsVisitor& /*v*/) {}
  // Fields that a model must read to answer, besides those that it reads anyway.
  virtual BatchFields fields() const { return {}; }

  // Writes row `row` of a batch in host memory, those of its fields that are given: a pure function of bytes and key.
  virtual void write(const Batch& batch, std::int64_t row, const RowBytes& of, const RowKey& key) const = 0;

  // Adds a loss, which has been multiplied by its weight, to the sums that figures are made from; the first is that of
  // the losses.
  virtual std::size_t sums() const { return 1; }
  virtual void add(double loss, double /*weight*/, double* sums) const { *sums += loss; }
  // The figures in order, without those whose sums are absent. By the first one the best checkpoint is chosen.
  virtual std::vector<Figure> figures(const Scored& scored) const = 0;
  // Index of the figure for where there is room for one: lines, curves, tables. If it is absent, the last one is shown.
  virtual std::size_t shown() const { return 0; }
  // The shown figure of a step of training that only guesses.
  virtual double guess() const = 0;

  Figure shown_of(const Scored& scored) const;
  // The figures of a mean loss, as training knows it.
  std::vector<Figure> figures_of_loss(double loss) const { return figures({{loss}, 1}); }
  Figure shown_of_loss(double loss) const { return shown_of({{loss}, 1}); }
  // The shown figure of evaluations, for its name, key and direction.
  Figure shown_form() const { return shown_of({std::vector<double>(sums(), 0.0), 1}); }
};

}  // namespace longstride
