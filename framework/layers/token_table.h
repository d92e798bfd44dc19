// The vectors of a vocabulary's ids: one table, or one of every band of ids (kernels/bands/bands.h), in which later
// bands may have narrower vectors, each band with a projection to the width (Baevski and Auli 2019). An input reads it,
// a head multiplies by it, and with tied outputs one serves both.
#pragma once
#include <string>
#include <vector>

#include "framework/core/parameters.h"
#include "kernels/bands/bands.h"

namespace longstride {

// Adaptive input and softmax.
struct Bands {
  std::vector<std::int64_t> cutoffs;  // the first ids of the bands after the first, which rise; empty: one band
  std::int64_t divide = 1;            // how many times narrower a band's vectors are than those of the band before

  bool given() const { return !cutoffs.empty(); }
  bool projects() const { return given() && divide > 1; }
  std::int64_t clusters() const { return std::ssize(cutoffs); }
  std::int64_t count() const { return clusters() + 1; }
  std::int64_t first(std::int64_t band) const { return band == 0 ? 0 : cutoffs[static_cast<std::size_t>(band - 1)]; }
  std::int64_t end(std::int64_t band, std::int64_t vocabulary) const {
    return band == clusters() ? vocabulary : cutoffs[static_cast<std::size_t>(band)];
  }
  // The width of a band's vectors.
  std::int64_t width(std::int64_t band, std::int64_t width) const {
    for (std::int64_t b = 0; b < band; ++b) width /= divide;
    return width;
  }
  kernels::BandEdges edges() const {
    kernels::BandEdges edges;
    for (const std::int64_t first : cutoffs) edges.first[edges.count++] = static_cast<std::int32_t>(first);
    return edges;
  }
};

struct TableForm {
  std::int64_t vocabulary = 0, width = 0;
  double deviation = 0;  // standard deviation of the initial rows
  Bands bands = {};
  double projection_deviation = 0;  // that of projections
  bool has_clusters = false;        // a head's clusters are its first rows
};

class TokenTable {
 public:
  // Declares `name`.weight (rows, width), of the head's clusters, if it has them, and of the ids behind them; or, where
  // bands project, `name`.<b>.weight (rows, width / divide^b) of every band's, and `name`.<b>.projection.weight (width,
  // width / divide^b).
  TokenTable(ParameterSet& parameters, const std::string& name, const TableForm& form)
      : bands_(form.bands), vocabulary_(form.vocabulary), clusters_(form.has_clusters ? bands_.clusters() : 0) {
    if (!bands_.projects()) {
      tables_.push_back(&parameters.add(name + ".weight", {clusters_ + vocabulary_, form.width}, {form.deviation, 0}));
      return;
    }
    for (std::int64_t b = 0; b < bands_.count(); ++b) {
      const std::string of_band = name + "." + std::to_string(b);
      const std::int64_t narrow = bands_.width(b, form.width);
      tables_.push_back(&parameters.add(of_band + ".weight", {choices(b), narrow}, {form.deviation, 0}));
      projections_.push_back(
          &parameters.add(of_band + ".projection.weight", {form.width, narrow}, {form.projection_deviation, 0}));
    }
  }

  const Bands& bands() const { return bands_; }
  std::int64_t vocabulary() const { return vocabulary_; }
  // The first parameter declared: the only one without projections.
  Parameter& front() const { return *tables_.front(); }
  const std::vector<Parameter*>& tables() const { return tables_; }
  // Absent unless bands project.
  Parameter* projection(std::int64_t band) const {
    return projections_.empty() ? nullptr : projections_[static_cast<std::size_t>(band)];
  }
  // The rows of a band's ids, as an input reads them: of all ids without projections.
  Tensor ids(std::int64_t band, Tensor Parameter::*which) const {
    const Tensor table = tables_[static_cast<std::size_t>(band)]->*which;
    return table.slice(0, band == 0 ? clusters_ : 0, table.size(0));
  }
  // The rows of a band's choice, as a head multiplies by them: the clusters are in the first.
  Tensor choice(std::int64_t band, Tensor Parameter::*which) const {
    if (!projections_.empty()) return tables_[static_cast<std::size_t>(band)]->*which;
    return (front().*which).slice(0, begin(band), clusters_ + bands_.end(band, vocabulary_));
  }
  std::int64_t choices(std::int64_t band) const {
    return (band == 0 ? clusters_ : 0) + bands_.end(band, vocabulary_) - bands_.first(band);
  }

 private:
  std::int64_t begin(std::int64_t band) const { return band == 0 ? 0 : clusters_ + bands_.first(band); }

  Bands bands_;
  std::int64_t vocabulary_, clusters_;
  std::vector<Parameter*> tables_, projections_;
};

}  // namespace longstride
