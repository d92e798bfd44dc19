// The optimizers that a recipe may name.
#pragma once
#include <cstdint>

namespace longstride {

// muon: for the layers' matrices; Adam for everything else.
enum class OptimizerKind : std::uint8_t { adam, muon, adagrad, adafactor };

}  // namespace longstride
