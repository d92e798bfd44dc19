#include "launch/run_directory.h"

#include "framework/core/errors.h"
#include "framework/train/checkpoint.h"

namespace longstride {

LoadedRun load_run(const std::string& run, const std::string& weights) {
  const CheckpointState state = read_newest_state(run);
  LoadedRun loaded;
  loaded.recipe = parse_recipe(state.recipe, run + "/recipe.yaml");
  loaded.model = std::make_unique<SparseTransformer>(loaded.recipe.model);
  ParameterSet& parameters = loaded.model->parameters();
  const bool keeps_average = loaded.recipe.train.ema > 0;
  if (weights == "average" && !keeps_average)
    throw user_error("{}: the run keeps no average of its weights (train.ema is 0); use --weights last", run);
  loaded.averaged = keeps_average && weights != "last";

  const Shape flat = {parameters.flat_size()};
  const Tensor sized(nullptr, Dtype::f32, flat);
  loaded.weights = std::make_unique<HostMemory>(sized.bytes());
  const Tensor masters(loaded.weights->data(), Dtype::f32, flat);
  parameters.bind(masters, masters);  // nothing here writes gradients
  loaded.step = load_weights(run, parameters, loaded.averaged).step;
  return loaded;
}

}  // namespace longstride
