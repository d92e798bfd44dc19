// Generation over a memory of zeros, which has keys and values of its own: with spans, and with rotation.
#include "tests/support/distance_toys.h"
#include "tests/support/model_properties.h"

namespace longstride::test {
namespace {

struct ZerosToy : DistanceToy {
  explicit ZerosToy(const DistanceToy& config) : DistanceToy(config) {}
};

// Adaptive-Span's attention: one learned table, no attention to oneself, and distances beyond the table.
ZerosToy spans_over_zeros() {
  ZerosToy c(distance_toy(toy_config()));
  c.context = 13;
  c.distance.table = DistanceTable::learned;
  c.distance.shared_table = true;
  c.distance.biases = BiasSharing::none;
  c.distance.distances = 20;
  c.distance.self = false;
  c.distance.span = {24, 5, 0.4, 0.01};
  c.memory = {.length = 29, .start = MemoryStart::zeros};
  return c;
}

ZerosToy rotated_zeros() {
  ZerosToy c(house_toy());
  c.distance.window = {40};
  c.distance.dilation = {2};
  c.distance.dilated_heads = 1;
  c.memory = {.length = 50, .start = MemoryStart::zeros};
  return c;
}

}  // namespace

template <>
struct Toys<ZerosToy> {
  static std::vector<NamedConfig<ZerosToy>> configs() {
    return {{"spans_over_zeros", spans_over_zeros()}, {"rotated_zeros", rotated_zeros()}};
  }
  static std::vector<ZerosToy> recompute_policies(const ZerosToy& config) {
    std::vector<ZerosToy> all(2, config);
    all[1].recompute = Recompute::block;
    return all;
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(MemoryOfZeros, ModelProperties, ZerosToy);

}  // namespace longstride::test
