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

std::string ModelConfig::problem_of_documents() const {
  return fmt::format("model.kind {} cannot keep documents apart", kind());
}

std::string ModelConfig::problem_in_python() const {
  return fmt::format("models of model.kind {} run in the longstride command alone", kind());
}

std::shared_ptr<ModelConfig> ModelConfig::with_documents(const DocumentForm&) const {
  throw user_error("--documents cannot be used with this model: {}; leave it out", problem_of_documents());
}

std::shared_ptr<ModelConfig> ModelConfig::for_streams_of(std::int64_t) const {
  LONGSTRIDE_CHECK(false, "{} has no streams", kind());
}

std::shared_ptr<ModelConfig> ModelConfig::with_memory(const EvaluatedMemory& changed) const {
  if (changed.same_length)
    throw user_error("--same-length cannot be used with this model, which remembers no positions (model.memory)");
  const bool of_length = changed.length.has_value(), of_rows = changed.compressed.has_value();
  throw user_error("{} cannot be used with this model, which has no {} that an evaluation could set; leave it out",
                   of_length ? "--memory"
                   : of_rows ? "--compressed"
                             : "--clamp",
                   of_length ? "memory of a length"
                   : of_rows ? "compressed memory"
                             : "distances with a limit");
}

BatchFields Model::fields() const {
  BatchFields fields;
  fields.wide = vocabulary() > ids::bytes;
  fields.targets = fields.starts = !states().empty();
  return fields;
}

}  // namespace longstride
