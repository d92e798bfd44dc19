// The golden vectors of tests/golden: small models, and the results of an independent implementation: losses and
// gradients (cases.safetensors, and with global rows and labels global.safetensors), those of segments of streams
// (memory.safetensors), twenty steps of training (training.safetensors), and initial values (initial.safetensors).
// Parameters and tokens are not in the files; both sides derive them from a hash (tests/golden/hashed.py).
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/models/stack_config.h"
#include "framework/optim/optimizer.h"

namespace longstride::golden {

// The formula for a parameter's initial values, and enough of an expected tensor of the same shape to recognise it.
struct GoldenParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  double offset = 0, scale = 0;  // element i is offset + scale * unit(case/name, i)
  double norm = 0, sum = 0;
  std::vector<double> projections;    // [k]: dot product with unit(projection<k>/name, i)
  std::vector<std::int64_t> indices;  // indices of `values`; empty if all are stored
  std::vector<double> values;

  std::int64_t count() const;
};

struct GoldenCase {
  std::string name;
  std::int64_t batch = 0, positions = 0;
  std::vector<std::vector<std::int64_t>> group_ends;  // each row's, from 0 to the end; empty: there are no groups
  std::vector<std::int64_t> lengths;                  // each row's, behind which it is padding; empty: it has none
  std::shared_ptr<const StackConfig> config;
  double loss = 0;                          // mean, nats
  std::vector<double> losses;               // (batch, positions)
  std::vector<GoldenParameter> parameters;  // with expected gradients of the mean loss

  std::vector<std::uint8_t> tokens() const;                               // (batch, positions)
  std::vector<double> parameter(const GoldenParameter& parameter) const;  // initial values of a parameter
};

// Streams in segments, with the same parameters for all: `start.positions` of each row, which remembers those before
// it.
struct GoldenStreams {
  struct Segment {
    std::vector<std::uint8_t> starts;         // (batch): 1 where a row starts a stream
    std::vector<double> losses;               // (batch, positions)
    std::map<std::string, double> auxiliary;  // other losses, by name
    std::vector<GoldenParameter> parameters;  // with expected gradients of the mean loss and of the others
  };

  GoldenCase start;  // `parameters` are those of the first segment
  std::vector<Segment> segments;
  std::vector<GoldenParameter> states;  // after the last segment; of all rows

  // The bytes that the segment's positions predict, and the byte before each: (batch, positions).
  std::vector<std::uint8_t> targets(std::size_t segment) const;
  std::vector<std::uint8_t> previous(std::size_t segment) const;
};

// Training: one step on each batch, from the parameters of `start`.
struct GoldenTraining {
  GoldenCase start;  // `parameters` expect the weights at the end
  Optimizer::Config optimizer;
  std::uint64_t seed = 0;
  std::vector<double> loss, lr, gradient_norm;  // one per step
  std::vector<GoldenParameter> average;         // average of weights, at the end; empty if not used

  std::int64_t steps() const { return static_cast<std::int64_t>(loss.size()); }
  std::vector<std::uint8_t> tokens(std::int64_t step) const;  // (batch, positions)
};

// Initial values of a run.
struct GoldenInitial {
  GoldenCase start;  // `parameters` expect the values
  std::uint64_t seed = 0;
};

// unit(name, i) for i in [0, count): in (-1, 1), exact in float.
std::vector<double> units(const std::string& name, std::int64_t count);

// Names of the cases in tests/golden/<file>.safetensors.
std::vector<std::string> names_in(const std::string& file);
GoldenCase load_case(const std::string& name, const std::string& file = "cases");
GoldenStreams load_streams(const std::string& name);
GoldenTraining load_training(const std::string& name);
GoldenInitial load_initial(const std::string& name);

}  // namespace longstride::golden
