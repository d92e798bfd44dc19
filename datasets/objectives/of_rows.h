// Questions about a row as a whole, answered by the labels of the sequence that it is from: a class, or labels that
// hold each by itself. A row that is read from its first position begins with the id [classify], and loses its last
// byte if it is full.
#pragma once
#include <vector>

#include "framework/core/objective.h"

namespace longstride {

inline constexpr Range class_counts{2, 65536, false, false, "a whole number from 2 to 65,536"};
inline constexpr Range label_counts{1, 65536, false, false, "a whole number from 1 to 65,536"};

// The best of some classes at a place of the text, with the probabilities of all.
nlohmann::ordered_json choice_of(std::int64_t position, const float* scores, std::int64_t classes);
// From the sums of losses and of right answers: the accuracy, which decides, and the loss. Training
// knows the loss alone.
std::vector<Figure> figures_of_choices(const Scored& scored);

enum class RowRead : std::uint8_t { classify, mean };

class OfRows : public Objective {
 public:
  void visit(SettingsVisitor& v) override;
  Answers answers() const override { return {count_, read_ == RowRead::mean}; }
  std::int64_t labels() const override { return asked(); }
  std::int64_t leading() const override { return read_ == RowRead::classify ? 1 : 0; }
  void write(const Batch& batch, std::int64_t row, const RowBytes& of, const RowKey& key) const override;
  BatchFields fields() const override { return {.wide = true, .targets = true, .weights = true, .asked = asked()}; }
  std::size_t sums() const override { return 2; }
  void add(const Answered& one, double* sums) const override;
  bool judges() const override { return true; }
  std::vector<Figure> figures(const Scored& scored) const override;

 protected:
  OfRows(std::int64_t count, RowRead read) : count_(count), read_(read) {}
  virtual std::int64_t asked() const = 0;   // targets of a row
  virtual const char* counted() const = 0;  // key of count_
  virtual const Range& counts() const { return class_counts; }
  std::int64_t count() const { return count_; }

 private:
  std::int64_t count_ = 2;
  RowRead read_ = RowRead::classify;
};

// One of `classes`; the score is the accuracy.
class Classes final : public OfRows {
 public:
  explicit Classes(std::int64_t classes = 2, RowRead read = RowRead::classify) : OfRows(classes, read) {}
  const char* kind() const override { return "classes"; }
  std::string problem_of_labels(std::span<const std::uint32_t> labels, std::int64_t bytes) const override;
  nlohmann::ordered_json answers_of(const AnsweredRow& row) const override;
  double guess() const override;

 private:
  std::int64_t asked() const override { return 1; }
  const char* counted() const override { return "classes"; }
};

// Each of `labels`, yes or no by itself, such as the functions of a protein.
class IndependentLabels final : public OfRows {
 public:
  explicit IndependentLabels(std::int64_t labels = 2, RowRead read = RowRead::classify) : OfRows(labels, read) {}
  const char* kind() const override { return "labels"; }
  std::string problem_of_labels(std::span<const std::uint32_t> labels, std::int64_t bytes) const override;
  nlohmann::ordered_json answers_of(const AnsweredRow& row) const override;
  double guess() const override;

 private:
  std::int64_t asked() const override { return count(); }
  const char* counted() const override { return "labels"; }
  const Range& counts() const override { return label_counts; }
};

}  // namespace longstride
