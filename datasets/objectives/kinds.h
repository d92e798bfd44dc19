// The kinds of objective that a recipe may name. A kind is registered in one line, in kinds.cpp or in a source file
// that is linked into the program as an object:
//   const bool registered = register_objective<Halves>();
#pragma once
#include <memory>
#include <vector>

#include "framework/core/objective.h"

namespace longstride {

// Objectives with the defaults of their settings, one per kind; the first is the default.
using ObjectiveKind = std::unique_ptr<Objective> (*)();
std::vector<ObjectiveKind>& objective_kinds();
const Objective& default_objective();

template <class Kind>
std::unique_ptr<Objective> objective_of_kind() {
  return std::make_unique<Kind>();
}
template <class Kind>
bool register_objective() {
  objective_kinds().push_back(objective_of_kind<Kind>);
  return true;
}

}  // namespace longstride
