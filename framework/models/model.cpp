#include "framework/models/model.h"

#include "framework/models/model_config.h"

namespace longstride {

const StateSet& Model::states() const {
  static const StateSet none;
  return none;
}

std::string ModelConfig::problem_of_windows(const std::vector<std::int64_t>&) const {
  return "is given, but this model has no windows that a stage could set";
}

BatchFields Model::fields() const {
  BatchFields fields;
  fields.wide = vocabulary() > ids::bytes;
  fields.targets = fields.starts = !states().empty();
  return fields;
}

}  // namespace longstride
