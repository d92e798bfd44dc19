// Objectives: what rows ask of a model, and the figures of its answers, `objective:` of a recipe. The kinds are in
// datasets/objectives/, and the model of a recipe says which it can answer (ModelConfig::answers).
#pragma once
#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/core/batch.h"
#include "framework/core/settings/checker.h"
#include "framework/core/settings/visitor.h"

namespace longstride {

// The bytes, or other tokens, of the data that a row is made from.
struct RowBytes {
  const std::uint8_t* bytes = nullptr;  // as many as the batch has positions; `wide`: two for each
  std::uint16_t before = 0;             // byte or token that precedes them; not read if the row starts a stream
  bool starts = true;
  std::optional<std::int64_t> length = {};  // bytes of the data, behind which the row is padding; absent: all
  // Positions to hide and to ask for, in place of those that an objective that hides draws.
  std::optional<std::span<const std::int64_t>> hidden = {};
  RowEnds documents = {}, groups = {};         // where they end; none: the row is one of them
  std::int64_t offset = 0;                     // where the row begins in its sequence
  std::span<const std::uint32_t> labels = {};  // the sequence's; empty: there are none
  // Labels of groups, one for every two successive boundaries; empty: there are none.
  std::span<const std::uint16_t> group_labels = {};
  bool wide = false;  // tokens of 16 bits, which only some objectives read (Objective::reads_tokens)

  kernels::Ids ids() const { return {bytes, wide}; }
  // Calls f(begin, end) for every group in the first `count` bytes, none of which crosses the end of a document.
  template <class F>
  void each_group(std::int64_t count, const F& f) const {
    documents.each(count, [&](std::int64_t begin, std::int64_t end) {
      const RowEnds within{groups.boundaries, groups.offset + begin};
      within.each(end - begin, [&](std::int64_t from, std::int64_t to) { f(begin + from, begin + to); });
    });
  }
};

// Identifies a row, so that one that draws random numbers draws the same ones again. In training: the seed, and the
// number of the row in the run, which follows from its step; with stages, among rows of its length. In evaluation: 0,
// and the number of the window, so that all models are asked the same.
struct RowKey {
  std::uint64_t seed = 0;
  std::int64_t row = 0;
};

// The answers that a model gives, for the head that gives them.
struct Answers {
  std::int64_t choices = 0;  // to choose among, or each by itself; 0: the ids of tokens
  bool of_mean = false;      // a row's answer is read from the mean of its positions, not from the first
};

// A loss, which has been multiplied by its weight.
struct Answered {
  double loss = 0, weight = 1;
  double right = 0;         // how right the answer is, from 0 to 1 (Judges::judge); only known to objectives that judge
  std::int64_t number = 0;  // its number in what the row asks
};

// Sums over the losses of an evaluation, or of a step of training.
struct Scored {
  std::vector<double> sums;          // by Objective::add; of a step only the first, the sum of the losses
  double weight = 0;                 // sum of the losses' weights; without weights, their number
  std::optional<double> error = {};  // standard error of loss()
  // Bytes of text per token of the data; 0: not known. 1 where tokens are bytes.
  double bytes_per_token = 1;

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

// A row, in host memory, with a model's scores of the answers: (asked, answers).
struct AnsweredRow {
  const Batch& batch;  // one row
  const float* scores = nullptr;
  std::int64_t answers = 0;  // per asked
  std::int64_t first = 0;    // place of the row's first byte in its text
};

class Objective {
 public:
  virtual ~Objective() = default;
  virtual const char* kind() const = 0;  // `objective.kind` in recipes
  // Every key of `objective:` but `kind`.
  virtual void visit(SettingsVisitor& /*v*/) {}
  // Keys that must agree with each other.
  virtual void check(SettingsChecker& /*check*/) const {}
  // Fields that a model must read to answer, besides those that it reads anyway.
  virtual BatchFields fields() const { return {}; }
  virtual Answers answers() const { return {}; }
  // Ids that it writes before a row's bytes.
  virtual std::int64_t leading() const { return 0; }
  // Needs of the data: the labels of a sequence, 0 if it reads none, and groups or documents.
  virtual std::int64_t labels() const { return 0; }
  // Labels are classes or what a sequence has, which may have names, and no places in it.
  virtual bool labels_may_have_names() const { return true; }
  // The fault of the labels of a sequence of this length, such as "has class 7, but ..."; empty: none.
  virtual std::string problem_of_labels(std::span<const std::uint32_t> /*labels*/, std::int64_t /*bytes*/) const {
    return {};
  }
  virtual bool reads_groups() const { return false; }
  // True if it asks about tokens of any vocabulary, and not only about bytes.
  virtual bool reads_tokens() const { return false; }
  // Positions of the longest rows that it can ask about; 0: any number.
  virtual std::int64_t most_context() const { return 0; }
  // Labels of groups are below this number; 0: it reads none.
  virtual std::int64_t group_labels() const { return 0; }

  // Writes row `row` of a batch in host memory, those of its fields that are given: a pure function of bytes and key.
  // write_row_of() writes its groups, sentences and types besides.
  virtual void write(const Batch& batch, std::int64_t row, const RowBytes& of, const RowKey& key) const = 0;

  // True if it hides bytes, for which a byte of the same kind may stand: replaced() gives another.
  virtual bool hides() const { return false; }
  virtual std::uint8_t replaced(std::uint8_t byte) const { return byte; }
  // The answers of a row, for `predict`: an array of objects.
  virtual nlohmann::ordered_json answers_of(const AnsweredRow& row) const;

  // Adds a loss to the sums that figures are made from; the first is that of the losses.
  virtual std::size_t sums() const { return 1; }
  virtual void add(const Answered& one, double* sums) const { *sums += one.loss; }
  // Evaluations ask the model which answers are right (Judges::judge).
  virtual bool judges() const { return false; }
  // The figures in order, without those whose sums are absent. By the first one the best checkpoint is chosen.
  virtual std::vector<Figure> figures(const Scored& scored) const = 0;
  // Index of the figure for where there is room for one: lines, curves, tables. If it is absent, the last one is shown.
  virtual std::size_t shown() const { return 0; }
  // The shown figure of a step of training that only guesses.
  virtual double guess() const = 0;

  void write_row_of(const Batch& batch, std::int64_t row, const RowBytes& of, const RowKey& key) const;

  Figure shown_of(const Scored& scored) const;
  // The figures of a mean loss, as training knows it.
  std::vector<Figure> figures_of_loss(double loss) const { return figures({{loss}, 1, {}, bytes_per_token_}); }
  Figure shown_of_loss(double loss) const { return shown_of({{loss}, 1, {}, bytes_per_token_}); }
  // The shown figure of evaluations, for its name, key and direction.
  Figure shown_form() const { return shown_of({std::vector<double>(sums(), 0.0), 1, {}, bytes_per_token_}); }
  // The ids that tokens of the data have, and bytes of text per token of the training data (Scored).
  void set_tokens(std::int64_t vocabulary, double bytes_per_token) {
    vocabulary_ = vocabulary;
    bytes_per_token_ = bytes_per_token;
  }

 protected:
  std::int64_t vocabulary() const { return vocabulary_; }

 private:
  std::int64_t vocabulary_ = 256;
  double bytes_per_token_ = 1;
};

}  // namespace longstride
