// Where the answer of a document is: the first and the last of its bytes, from its labels begin and end, behind its
// last byte (Devlin et al. 2019). A row begins with the id [classify], which both choices point at where the row does
// not have the whole answer, or begin equals end. The scores are F1 by bytes, and exact matches.
#pragma once
#include <vector>

#include "framework/core/objective.h"

namespace longstride {

class Spans final : public Objective {
 public:
  const char* kind() const override { return "spans"; }
  Answers answers() const override { return {2}; }
  BatchFields fields() const override { return {.wide = true, .targets = true, .weights = true, .asked = 2}; }
  std::int64_t labels() const override { return 2; }
  bool labels_may_have_names() const override { return false; }
  std::int64_t leading() const override { return 1; }
  std::int64_t most_context() const override { return 65536; }  // targets have 16 bits
  std::string problem_of_labels(std::span<const std::uint32_t> labels, std::int64_t bytes) const override;
  void write(const Batch& batch, std::int64_t row, const RowBytes& of, const RowKey& key) const override;
  nlohmann::ordered_json answers_of(const AnsweredRow& row) const override;
  std::size_t sums() const override { return 3; }
  void add(const Answered& one, double* sums) const override;
  bool judges() const override { return true; }
  std::vector<Figure> figures(const Scored& scored) const override;
  double guess() const override;
};

}  // namespace longstride
