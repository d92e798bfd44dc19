#include "framework/models/model.h"

namespace longstride {

const StateSet& Model::states() const {
  static const StateSet none;
  return none;
}

BatchFields Model::fields() const {
  BatchFields fields;
  fields.wide = vocabulary() > ids::bytes;
  fields.targets = fields.starts = !states().empty();
  return fields;
}

}  // namespace longstride
