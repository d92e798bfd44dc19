#include "launch/run/evaluate_run.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"
#include "framework/train/evaluate/evaluation_memory.h"
#include "framework/train/evaluate/hidden_leak.h"
#include "framework/train/step/precision.h"
#include "framework/train/step/step_work.h"
#include "launch/console/counter_line.h"
#include "launch/console/device_option.h"
#include "launch/run/run_data.h"
#include "launch/run/same_on_ranks.h"

namespace longstride {

namespace {

// A model with other settings of its memory than the run's, bound to the run's weights.
std::unique_ptr<Model> with_weights_of(const LoadedRun& run, const ModelConfig& settings) {
  auto model = settings.make_model();
  const std::int64_t weights = model->parameters().flat_size();
  LONGSTRIDE_CHECK(weights == run.masters.count(), "{} weights of {}", weights, run.masters.count());
  model->parameters().bind(run.masters, run.masters);  // nothing here writes gradients
  enter_stage(*model, run.stage());
  return model;
}

// A model that remembers reads on, so that its context is what its rows have read.
void set_min_context(EvaluationConfig& config, const Model& model, std::int64_t min_context) {
  if (min_context > 0 && model.fields().asked > 0)
    throw user_error("--min-context is {}, but this model is asked about whole windows; leave it out", min_context);
  if (model.states().empty()) {
    if (min_context >= config.context)
      throw user_error("--min-context is {}, but must be below the context of {}", min_context, config.context);
    config.min_context = min_context;
    return;
  }
  if (min_context > model.reach_of_memory())
    throw user_error(
        "--min-context is {}, but through what it remembers this model looks back {} bytes at most; choose at most "
        "that many",
        min_context, model.reach_of_memory());
  config.lead = min_context;
}

EvaluationConfig config_of(const LoadedRun& run, const Model& model, const EvaluateRequest& request) {
  EvaluationConfig config;
  config.context = data_in_effect(run, request).context;
  config.max_windows = request.max_windows;
  config.spread = request.spread;
  config.keep_losses = request.keep_losses;
  // Enough for every core, or to fill a GPU.
  const bool cpu = request.device == Device::cpu;
  const std::int64_t positions = cpu ? 8192 : 65536, most = cpu ? 16 : 256;
  config.batch = request.batch > 0 ? request.batch : std::clamp<std::int64_t>(positions / config.context, 1, most);
  set_min_context(config, model, request.min_context);
  if (!model.states().empty()) {
    if (config.context != run.recipe.data.context)
      throw user_error("--context cannot be used with this model, which remembers windows of {} bytes; leave it out",
                       run.recipe.data.context);
    if (request.spread)
      throw user_error(
          "--spread cannot be used with this model, which reads a split in order and remembers what it has read; "
          "leave it out");
    config.batch = config.streams = request.batch > 0 ? request.batch : 1;
  }
  return config;
}

}  // namespace

EvaluatedMemory memory_in_effect(const LoadedRun& run, const EvaluateRequest& request) {
  const ModelConfig& own = *run.recipe.model;
  return request.memory.given() ? own.with_memory(request.memory)->evaluated_memory() : own.evaluated_memory();
}

DataConfig data_in_effect(const LoadedRun& run, const EvaluateRequest& request) {
  DataConfig data = run.recipe.data;
  if (request.documents) data.documents = *request.documents;
  if (request.context > data.context)
    throw user_error("--context is {}, but the run's windows have {} bytes; choose at most that many", request.context,
                     data.context);
  if (request.context > 0) data.context = request.context;
  return data;
}

namespace {

// The sequences that are scored, made of those that the request names.
using Sequences = std::shared_ptr<const SequenceSet>;
using Choose = std::function<Sequences(const Sequences& named, const Model& model, EvaluationConfig& config)>;

EvaluationResult evaluate_run(const LoadedRun& run, const EvaluateRequest& request, Session& session,
                              const Choose& choose) {
  const DataConfig data = data_in_effect(run, request);
  auto settings = request.memory.given() ? run.recipe.model->with_memory(request.memory) : nullptr;
  if (data.documents != run.recipe.data.documents)
    settings = (settings != nullptr ? *settings : *run.recipe.model).with_documents(document_form(data));
  auto changed = settings != nullptr ? with_weights_of(run, *settings) : nullptr;
  check_device_computes(changed != nullptr ? *changed : *run.model, request.device);
  const auto dataset = open_run_data(run, request.data, request.split);
  check_same_on_ranks(facts_of(*dataset), *session.comm);
  EvaluationConfig config = config_of(run, changed != nullptr ? *changed : *run.model, request);
  const std::string where = fmt::format("{}: '{}'", dataset->path(), request.split);
  check_labels_are_read(dataset->info(), *run.recipe.objective, where);
  check_answered(*dataset->split(request.split, data), *run.recipe.objective, where);
  check_grouped(*dataset->split(request.split, data), run.recipe.model->reader_of_groups(), where);
  const Sequences sequences =
      choose(dataset->split(request.split, data), changed != nullptr ? *changed : *run.model, config);
  const std::vector<EvaluationWindow> windows = evaluation_windows(*sequences, config);
  if (windows.empty())
    throw user_error("{}: the split '{}' is empty; choose another with --split", dataset->path(), request.split);
  config.batch = std::min(config.batch, std::ssize(windows));  // memory is allocated for a whole batch
  if (changed != nullptr && !changed->states().empty())
    changed = with_weights_of(run, *settings->for_streams_of(longest_stream(windows, config)));
  Model& model = changed != nullptr ? *changed : *run.model;

  EvaluationMemory memory(model, run.masters, config, run.recipe.train, request.device);
  Context ctx = memory.context();
  run.describe(ctx);
  CounterLine line("eval", request.quiet || session.comm->rank() != 0);
  EvaluationResult result = evaluate(model, *run.recipe.objective, ctx, *sequences, config, *session.comm,
                                     [&](std::int64_t done, std::int64_t all) { line.update(done, all); });
  if (!result.abandoned && result.scored.weight == 0)
    throw user_error("{}: none of its {} has anything that the run's objective, {}, asks about; choose other data",
                     where, counted(result.windows, "window"), run.recipe.objective->kind());
  return result;
}

}  // namespace

EvaluationResult evaluate_run(const LoadedRun& run, const EvaluateRequest& request, Session& session) {
  return evaluate_run(run, request, session, [](const Sequences& named, const auto&, const auto&) { return named; });
}

// The leak into scores of hidden bytes, by rows that every rank reads for itself.
ReplacedFutures::Leak measure_leak_of_hidden(const LoadedRun& run, const EvaluateRequest& request,
                                             std::int64_t windows) {
  Model& model = *run.model;
  const Objective& objective = *run.recipe.objective;
  const DataConfig data = data_in_effect(run, request);
  check_device_computes(model, request.device);
  const auto dataset = open_run_data(run, request.data, request.split);
  const Sequences sequences = dataset->split(request.split, data);
  if (sequences->sequences() == 0)
    throw user_error("{}: the split '{}' is empty; choose another with --split", dataset->path(), request.split);
  EvaluationMemory memory(
      model, run.masters, run.recipe.train.precision, request.device,
      [&](const Context& ctx) { return RowReader::bytes(model, objective, ctx, true); },
      low_precision_residual(run.recipe.train, request.device));
  Context ctx = memory.context();
  run.describe(ctx);
  RowReader reader(model, objective, ctx, true);
  const ReplacedFutures::Leak leak = leak_of_hidden(reader, objective, *sequences, windows);
  if (leak.windows == 0)
    throw user_error("{}: '{}': no window has a hidden byte whose score could leak; choose other data", dataset->path(),
                     request.split);
  return leak;
}

ReplacedFutures::Leak measure_leak(const LoadedRun& run, const EvaluateRequest& request, Session& session) {
  constexpr std::int64_t usual_windows = 16;
  if (run.recipe.objective->hides())
    return measure_leak_of_hidden(run, request, request.max_windows > 0 ? request.max_windows : usual_windows);
  std::shared_ptr<const ReplacedFutures> futures;
  const EvaluationResult result =
      evaluate_run(run, request, session, [&](const Sequences& named, const Model& model, EvaluationConfig& config) {
        if (run.recipe.objective->answers().choices > 0 || model.fields().asked > 0)
          throw user_error(
              "--leak compares scores of single bytes, but this model is asked about whole windows or groups; leave it "
              "out");
        // One window at a time, so that a byte has the same place in every product.
        config.batch = config.streams = 1;
        config.min_context = config.lead = config.max_windows = 0;
        config.keep_losses = true;
        futures = std::make_shared<ReplacedFutures>(named, config.context,
                                                    request.max_windows > 0 ? request.max_windows : usual_windows);
        return futures;
      });
  return futures->leak(result.losses);
}

}  // namespace longstride
