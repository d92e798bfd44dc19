#include "datasets/objectives/kinds.h"

#include "datasets/objectives/next_byte.h"

namespace longstride {

std::vector<ObjectiveKind>& objective_kinds() {
  static std::vector<ObjectiveKind> kinds = {
      objective_of_kind<NextByte>,
  };
  return kinds;
}

const Objective& default_objective() {
  static const std::unique_ptr<Objective> objective = objective_kinds().front()();
  return *objective;
}

}  // namespace longstride
