// The one list of the tensors that a checkpoint holds. What copies, counts, writes or reads them walks it, so a tensor
// that is to be saved needs a member of TrainingTensors and a line of the list.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "framework/core/arena.h"
#include "framework/core/parameters.h"
#include "framework/core/state.h"

namespace longstride {

// The rows in TrainingTensors::states.
struct StateLayout {
  const StateSet* states = nullptr;  // null: the model has none
  RowStates rows = {};               // their number and types; other memory may hold them
  std::int64_t first = 0, all = 0;   // in the global batch: this rank's first row, and the number of rows
};

// The content of a checkpoint: flat buffers of parameters.flat_size() elements in the host's memory, which
// Parameter::offset addresses. Padding between slices is neither written nor read.
struct TrainingTensors {
  const ParameterSet& parameters;
  Tensor masters;
  // Adam's first and second moments; for a matrix that Muon updates, its momentum and zeros; Adagrad's sum in v. What
  // an optimizer does not have is absent.
  Tensor m, v;
  Tensor ema;  // absent: not used
  // With a sharded optimizer, m, v and ema hold only these ranges, one after another. Empty: everything.
  std::vector<FlatRange> moment_ranges = {};
  Tensor factors = {};                          // Adafactor's moments; absent: not used
  const ParameterSet* factor_layout = nullptr;  // where they are
  Tensor states = {};                           // u8: what this rank's rows remember; absent: the model has no states
  StateLayout state_layout = {};

  int moments() const { return (m.given() ? 1 : 0) + (v.given() ? 1 : 0); }  // as long as the weights
  RowStates rows() const { return state_layout.rows.at(states, states); }
};

// The files of a checkpoint. Rank 0 writes `model` and `factors`, every rank the `states` of its rows; the others may
// be divided into ranges.
enum class SavedIn : std::uint8_t { model, average, moments, factors, states };

struct SavedTensor {
  Tensor TrainingTensors::*tensor;
  SavedIn file;
  const char* prefix = "";                                 // beginning of the names in the file
  const ParameterSet* TrainingTensors::*layout = nullptr;  // null: TrainingTensors::parameters

  const ParameterSet& layout_in(const TrainingTensors& all) const {
    return layout == nullptr ? all.parameters : *(all.*layout);
  }
  bool in_ranges() const { return file == SavedIn::average || file == SavedIn::moments; }
};

inline constexpr SavedTensor saved_tensors[] = {
    {&TrainingTensors::masters, SavedIn::model},
    {&TrainingTensors::ema, SavedIn::average},
    {&TrainingTensors::m, SavedIn::moments, "m."},
    {&TrainingTensors::v, SavedIn::moments, "v."},
    {&TrainingTensors::factors, SavedIn::factors, "", &TrainingTensors::factor_layout},
    {&TrainingTensors::states, SavedIn::states},
};

// Puts the tensors that are given into `memory`, one after another, each with as many elements as elements(its entry of
// the list, the tensor) says; 0 makes it absent. Returns the bytes. Null memory: only counts.
template <class F>
std::size_t place(TrainingTensors& all, std::byte* memory, F&& elements) {
  std::size_t taken = 0;
  for (const SavedTensor& saved : saved_tensors) {
    Tensor& t = all.*saved.tensor;
    const std::int64_t count = t.given() ? elements(saved, t) : 0;
    t = count == 0 ? Tensor() : Tensor(memory == nullptr ? nullptr : memory + taken, t.dtype(), {count});
    taken += Arena::rounded(t.bytes());
  }
  return taken;
}

}  // namespace longstride
