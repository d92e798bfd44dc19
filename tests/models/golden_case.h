// A file of tests/golden/cases: a small model, and its losses and gradients by an independent implementation.
// Parameters and tokens are not in the file; both sides derive them from a hash (tests/golden/hashed.py).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "framework/models/sparse_transformer_config.h"

namespace longstride::golden {

struct GoldenParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  double offset = 0, scale = 0;  // element i is offset + scale * unit(case/name, i)
  // Of the gradient of the mean loss:
  double norm = 0, sum = 0;
  std::vector<double> projections;    // [k]: dot product with unit(projection<k>/name, i)
  std::vector<std::int64_t> indices;  // of `values`; empty when those are all
  std::vector<double> values;

  std::int64_t count() const;
};

struct GoldenCase {
  std::string name;
  std::int64_t batch = 0, positions = 0;
  SparseTransformerConfig config;
  double loss = 0;             // mean, nats
  std::vector<double> losses;  // (batch, positions)
  std::vector<GoldenParameter> parameters;

  std::vector<std::uint8_t> tokens() const;  // (batch, positions)
  double parameter(const GoldenParameter& parameter, std::int64_t element) const;
};

// unit(name, i) for i in [0, count): in (-1, 1), exact in float.
std::vector<double> units(const std::string& name, std::int64_t count);

std::vector<std::string> case_names();
GoldenCase load_case(const std::string& name);

}  // namespace longstride::golden
