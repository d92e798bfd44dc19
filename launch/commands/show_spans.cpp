// longstride show spans RUN: how far every head of a trained model looks back.
#include <fmt/format.h>

#include <memory>

#include "framework/core/errors.h"
#include "framework/train/checkpoint/checkpoint.h"
#include "launch/commands/commands.h"
#include "launch/console/json_output.h"
#include "launch/recipe/recipe.h"
#include "launch/report/spans.h"

namespace longstride {
namespace {

struct SpansOptions {
  std::string run;
  bool json = false;
};

void run_spans(const SpansOptions& o, Session& session) {
  if (session.comm->rank() != 0) return;
  const CheckpointState state = read_state_of_weights(o.run);
  const Recipe recipe = recipe_of_run(state.recipe, o.run + "/recipe.yaml");
  const RunSpans spans = read_spans(o.run, state.step, *recipe.model->make_model());
  if (spans.layers.empty())
    throw user_error("{}: has no learned spans to show; only training with model.distance.span gives heads some",
                     o.run);
  if (!o.json) {
    fmt::print("{}: step {}\n{}", recipe.name, state.step, spans_as_text(spans));
    return;
  }
  nlohmann::ordered_json out = {{"recipe", recipe.name}, {"step", state.step}};
  out.update(spans_as_json(spans));
  print_json(out);
}

}  // namespace

void add_show_spans(CLI::App& show, Session& session) {
  auto o = std::make_shared<SpansOptions>();
  CLI::App* spans = show.add_subcommand("spans", "How many positions every head has learned to look back");
  spans->add_option("run", o->run, "run directory")->required();
  add_json_option(*spans, o->json);
  spans->callback([o, &session] { run_spans(*o, session); });
}

}  // namespace longstride
