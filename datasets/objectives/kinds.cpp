#include "datasets/objectives/kinds.h"

#include "datasets/objectives/answer_spans.h"
#include "datasets/objectives/group_classes.h"
#include "datasets/objectives/masked_bytes.h"
#include "datasets/objectives/next_byte.h"
#include "datasets/objectives/of_rows.h"

namespace longstride {

std::vector<ObjectiveKind>& objective_kinds() {
  static std::vector<ObjectiveKind> kinds = {
      objective_of_kind<NextByte>,          objective_of_kind<Masked>, objective_of_kind<Classes>,
      objective_of_kind<IndependentLabels>, objective_of_kind<Spans>,  objective_of_kind<Sentences>,
  };
  return kinds;
}

const Objective& default_objective() {
  static const std::unique_ptr<Objective> objective = objective_kinds().front()();
  return *objective;
}

}  // namespace longstride
