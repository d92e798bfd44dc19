// A class of every group of a row, such as whether a sentence is part of the summary, asked at the group's last
// position (Zhang et al. 2019, HIBERT). A group that the row's end cuts is asked in the next row. The score is the
// accuracy.
#pragma once
#include <vector>

#include "framework/core/objective.h"

namespace longstride {

class Sentences final : public Objective {
 public:
  explicit Sentences(std::int64_t classes = 2) : classes_(classes) {}

  const char* kind() const override { return "sentences"; }
  void visit(SettingsVisitor& v) override;
  Answers answers() const override { return {classes_}; }
  BatchFields fields() const override { return {.wide = true, .targets = true, .weights = true}; }
  bool reads_groups() const override { return true; }
  std::int64_t group_labels() const override { return classes_; }
  void write(const Batch& batch, std::int64_t row, const RowBytes& of, const RowKey& key) const override;
  nlohmann::ordered_json answers_of(const AnsweredRow& row) const override;
  std::size_t sums() const override { return 2; }
  void add(const Answered& one, double* sums) const override;
  bool judges() const override { return true; }
  std::vector<Figure> figures(const Scored& scored) const override;
  double guess() const override;

 private:
  std::int64_t classes_;
};

}  // namespace longstride
