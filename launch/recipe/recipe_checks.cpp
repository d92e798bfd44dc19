#include "launch/recipe/recipe_checks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "framework/train/stages.h"

namespace longstride {
namespace {

// The kinds that read tokens, for messages.
template <class Kinds>
std::string token_readers(const Kinds& kinds) {
  std::vector<std::string> names;
  for (const auto& make : kinds)
    if (const auto one = make(); one->reads_tokens()) names.emplace_back(one->kind());
  return fmt::format("{}", fmt::join(names, " or "));
}

// Figures of tokens are in nats until the data is opened, which knows the bytes of their text.
void fill_vocabulary(RecipeChecker& check, Recipe& r) {
  if (!check.none_in({"data.kind", "data.vocabulary", "model", "objective"})) return;
  if (r.data.kind != DataKind::tokens) {
    if (r.data.vocabulary != DataConfig().vocabulary)
      check.refuse("data.vocabulary", "data.vocabulary is {}, but only data.kind tokens has one; remove it",
                   r.data.vocabulary);
    return;
  }
  if (!r.model->reads_tokens())
    return check.refuse("data.kind", "data.kind is tokens, but model.kind {} reads bytes only; set it to {}",
                        r.model->kind(), token_readers(model_kinds()));
  if (!r.objective->reads_tokens())
    return check.refuse("data.kind", "data.kind is tokens, but objective.kind {} asks about bytes; set it to {}",
                        r.objective->kind(), token_readers(objective_kinds()));
  if (!check.sets("data.vocabulary"))
    return check.refuse("data.vocabulary",
                        "data.vocabulary is missing; add it: how many ids data.kind tokens has, as `longstride prepare "
                        "tokens` prints");
  r.model->vocabulary = r.data.vocabulary;
  r.objective->set_tokens(r.data.vocabulary, 0);
}

void fill_model(RecipeChecker& check, Recipe& r) {
  r.model->objective = r.objective;
  r.model->documents = document_form(r.data);
  fill_vocabulary(check, r);
  if (!check.none_in({"data.context"})) return;
  r.model->context = r.data.context;
  for (Stage& stage : r.train.stages)
    if (stage.context == 0) stage.context = r.data.context;
  const bool cifar10 = r.data.kind == DataKind::cifar10;
  if (!check.none_in({"data.kind"}) || (!cifar10 && r.data.kind != DataKind::images)) return;
  const auto side = static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(r.data.context) / 3.0)));
  if (3 * side * side != r.data.context || (cifar10 && side != 32))
    check.refuse(
        "data.context", "data.context is {}, but must be {}", r.data.context,
        cifar10 ? "3072, the bytes of a CIFAR-10 picture" : "3 x size x size, the bytes of a square RGB picture");
  r.model->geometry = {side, side, 3};
}

void check_batch(RecipeChecker& check, const Recipe& r) {
  const TrainConfig& t = r.train;
  if (check.none_in({"train.micro_batch", "train.global_batch"}) && t.micro_batch > 0 &&
      t.micro_batch < t.global_batch && t.global_batch % t.micro_batch != 0)
    check.refuse("train.micro_batch", "train.micro_batch is {}, but must divide train.global_batch, {}", t.micro_batch,
                 t.global_batch);
  if (check.none_in({"train.residual", "train.precision"}) && t.residual == Precision::bf16 &&
      (t.precision == Precision::fp32 || t.precision == Precision::fp16))
    check.refuse("train.residual",
                 "train.residual is bf16, which needs train.precision bf16, fp8 or automatic, but that is {}",
                 t.precision == Precision::fp32 ? "fp32" : "fp16");
}

// Beyond these, counts of positions and of bytes would not fit 64 bits.
constexpr double most_positions = 9e15, most_bytes = 1e18;

double activation_bytes(const Recipe& r, std::int64_t rows, std::int64_t context) {
  return static_cast<double>(rows) * static_cast<double>(context) * r.model->activation_bytes();
}

void check_products(RecipeChecker& check, const Recipe& r) {
  if (!check.none_in({"train.global_batch", "train.steps", "train.stages", "data.context", "data.kind"})) return;
  double positions = 0;
  for (const StageSteps& part : stretches(r.train, r.model->context))
    positions += static_cast<double>(part.shape.rows) * static_cast<double>(part.shape.context) *
                 static_cast<double>(part.end - part.first);
  if (positions > most_positions)
    check.refuse("train.steps", "train.steps is {}, which makes {:.2g} positions in all; choose fewer than {:.0g}",
                 r.train.steps, positions, most_positions);
  if (!check.none_in({"model"})) return;
  const double bytes = activation_bytes(r, r.train.global_batch, r.model->context);
  if (bytes > most_bytes)
    check.refuse("train.global_batch",
                 "train.global_batch is {}, which makes {:.2g} bytes of activations; choose fewer than {:.0g}",
                 r.train.global_batch, bytes, most_bytes);
}

// Fills in each optimizer's values of Adam's settings, unless the recipe says otherwise.
void fill_from_optimizer(RecipeChecker& check, TrainConfig& t) {
  if (!check.none_in({"optimizer", "train.epsilon", "train.beta1"})) return;
  const bool adagrad = t.optimizer == OptimizerKind::adagrad, adafactor = t.optimizer == OptimizerKind::adafactor;
  if ((adagrad || adafactor) && !check.sets("train.epsilon")) t.epsilon = adagrad ? 1e-10 : 1e-30;
  if (adafactor && !check.sets("train.beta1")) t.beta1 = 0;
}

void check_parallel(RecipeChecker& check, const Recipe& r) {
  const bool muon = r.train.optimizer == OptimizerKind::muon;
  if (check.none_in({"optimizer"}) && (muon || r.train.optimizer == OptimizerKind::adafactor) && r.train.parallel.shard)
    check.refuse("optimizer.shard",
                 "optimizer.shard is true, but optimizer.kind {} needs whole matrices on every rank; set it to false",
                 muon ? "muon" : "adafactor");
  const std::int64_t ranks = r.train.parallel.sequence_ranks;
  if (check.none_in({"data.context", "parallel.sequence_ranks"}) && r.data.context % ranks != 0)
    check.refuse("parallel.sequence_ranks", "parallel.sequence_ranks is {}, but must divide data.context, {}", ranks,
                 r.data.context);
  if (check.none_in({"train.micro_batch"}) && ranks > 1 && r.train.micro_batch > 1)
    check.refuse(
        "train.micro_batch",
        "train.micro_batch is {}, but sequence ranks (parallel.sequence_ranks is {}) process one sequence at a time; "
        "set it to 1",
        r.train.micro_batch, ranks);
}

// True if something but the context may tell the stage apart.
bool sets_more(const Stage& stage) {
  return stage.lr > 0 || stage.global_batch > 0 || stage.micro_batch > 0 || !stage.window.empty();
}

// The fault of a stage's context; empty: none.
std::string mistake_of_context(const Stage& stage, const Stage& before, std::int64_t whole) {
  if (stage.context < before.context || (stage.context == before.context && !sets_more(stage) && !sets_more(before)))
    return fmt::format("rise from {} in the stage before{}", before.context,
                       stage.context == before.context ? ", unless one of them sets something else" : "");
  const bool cuts = stage.global_batch == 0;
  if (stage.context > whole || (cuts && whole % stage.context != 0) || (stage.context == whole && !sets_more(stage)))
    return fmt::format("{}{}",
                       cuts ? fmt::format("divide data.context, {}, and be less than that", whole)
                            : fmt::format("be at most data.context, {}", whole),
                       stage.context == whole ? ", unless the stage sets something else" : "");
  return "";
}

// The fault of the sequences that a stage takes at a time; empty: none.
std::string mistake_of_micro_batch(const StepShape& shape) {
  if (shape.micro_rows == 0 || shape.micro_rows >= shape.rows || shape.rows % shape.micro_rows == 0) return "";
  return fmt::format("divide the stage's global batch, {}", shape.rows);
}

void check_stages(RecipeChecker& check, const Recipe& r) {
  if (r.train.stages.empty() || !check.none_in({"train.stages", "train.steps", "data.context"})) return;
  if (check.none_in({"parallel.sequence_ranks"}) && r.train.parallel.sequence_ranks > 1)
    check.refuse(
        "parallel.sequence_ranks",
        "parallel.sequence_ranks is {}, but sequence ranks cannot be combined with train.stages; remove one of them",
        r.train.parallel.sequence_ranks);
  const std::vector<Setting>& items = find_setting(check.root(), "train.stages")->items;
  Stage before;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Stage& stage = r.train.stages[i];
    const auto refuse = [&](const char* key, auto value, const std::string& allowed) {
      const Setting* setting = items[i].find(key);
      check.refuse_at(setting != nullptr ? setting->where : items[i].where, "train.stages",
                      "train.stages.{} is {}, but must {}", key, value, allowed);
    };
    if (stage.until <= before.until)
      refuse("until", stage.until, fmt::format("rise from {} in the stage before", before.until));
    else if (stage.until >= r.train.steps)
      refuse("until", stage.until, fmt::format("be below train.steps, {}", r.train.steps));
    if (const std::string mistake = mistake_of_context(stage, before, r.data.context); !mistake.empty())
      refuse("context", stage.context, mistake);
    const StepShape shape = shape_of(r.train, &stage, r.data.context);
    if (const std::string mistake = mistake_of_micro_batch(shape); !mistake.empty())
      refuse("micro_batch", shape.micro_rows, mistake);
    if (check.none_in({"model"}) && stage.global_batch > 0 &&
        activation_bytes(r, shape.rows, shape.context) > most_bytes)
      refuse("global_batch", stage.global_batch, fmt::format("make at most {:.0g} bytes of activations", most_bytes));
    if (check.none_in({"model"}) && !stage.window.empty())
      if (const std::string problem = r.model->problem_of_windows(stage.window); !problem.empty())
        check.refuse_at(items[i].find("window")->where, "train.stages", "train.stages.window {}", problem);
    const double peak = r.train.peak_of(stage.lr);
    if (stage.lr > 0 && (peak > 1 || peak <= r.train.lr_floor))
      refuse("lr", stage.lr,
             fmt::format("give a learning rate above train.lr_floor, {}, and at most 1", r.train.lr_floor));
    before = stage;
  }
}

// Rows of a stream continue where they were, and so does what a model remembers of them: neither their length nor their
// number may change. Learning rates, windows and micro-batches may.
void check_stages_of_streams(RecipeChecker& check, const Recipe& r) {
  const char* advice = r.model->remembers() ? "remove it from the stages" : "remove one of them";
  const auto any = [&](auto&& changes) { return std::any_of(r.train.stages.begin(), r.train.stages.end(), changes); };
  if (any([&](const Stage& stage) { return stage.context != r.data.context; }))
    check.refuse("data.order",
                 "data.order is streams, but train.stages changes the context that a row continues from; {}", advice);
  else if (any([&](const Stage& stage) {
             return stage.global_batch > 0 && stage.global_batch != r.train.global_batch;
           }))
    check.refuse("data.order",
                 "data.order is streams, but train.stages changes global_batch, the number of rows that continue; {}",
                 advice);
}

// A stream is read in order, at one context, by whole rows.
void check_order(RecipeChecker& check, const Recipe& r) {
  if (!check.none_in({"data.order", "data.kind", "model"})) return;
  const bool streams = r.data.order == DataOrder::streams;
  const bool pictures = r.data.kind == DataKind::cifar10 || r.data.kind == DataKind::images;
  if (pictures && r.model->remembers())
    return check.refuse("data.kind",
                        "data.kind is {}, but this model remembers what its rows have read before, and pictures are "
                        "whole sequences; choose another model, or text or sound",
                        r.data.kind == DataKind::cifar10 ? "cifar10" : "images");
  if (streams && pictures)
    check.refuse("data.order", "data.order is streams, but pictures are whole sequences; set data.order: windows");
  if (streams && check.none_in({"train.stages", "data.context"})) check_stages_of_streams(check, r);
  if (!r.model->remembers()) return;
  if (!streams)
    check.refuse("data.order",
                 "data.order is windows, but this model remembers what its rows have read before; set data.order: "
                 "streams");
  const std::int64_t ranks = r.train.parallel.sequence_ranks;
  if (check.none_in({"parallel.sequence_ranks"}) && ranks > 1)
    check.refuse("parallel.sequence_ranks",
                 "parallel.sequence_ranks is {}, but this model remembers whole rows; set it to 1", ranks);
}

// Documents that do not see one another.
void check_documents(RecipeChecker& check, const Recipe& r) {
  if (!check.none_in({"data.documents", "data.document_positions", "data.kind", "data.order", "model"})) return;
  const char* const documents = name_of(r.data.documents);
  if (r.data.documents == Documents::joined) {
    if (r.data.document_positions == DocumentPositions::restart)
      check.refuse("data.document_positions",
                   "data.document_positions is restart, but data.documents is joined, whose positions count from the "
                   "beginning of their row; remove it, or set data.documents: separate");
    return;
  }
  if (r.data.kind == DataKind::cifar10 || r.data.kind == DataKind::images)
    return check.refuse("data.documents",
                        "data.documents is {}, but pictures are whole sequences; remove it, or choose text or sound",
                        documents);
  if (const std::string problem = r.model->problem_of_documents(); !problem.empty())
    return check.refuse("data.documents", "data.documents is {}, but {}; set data.documents: joined", documents,
                        problem);
  if (r.data.documents != Documents::rows) return;
  if (r.data.order == DataOrder::streams)
    check.refuse("data.documents",
                 "data.documents is rows, each of which begins anew, but data.order is streams; set data.documents: "
                 "separate, or data.order: windows");
  const std::int64_t ranks = r.train.parallel.sequence_ranks;
  if (check.none_in({"parallel.sequence_ranks"}) && ranks > 1)
    check.refuse("parallel.sequence_ranks",
                 "parallel.sequence_ranks is {}, but must be 1 with data.documents: rows, whose weights cannot be "
                 "divided",
                 ranks);
}

// Ranks of a sequence divide its positions, and stages that cut rows make several of one.
void check_objective(RecipeChecker& check, const Recipe& r) {
  if (!check.none_in({"objective", "model"})) return;
  const char* kind = r.objective->kind();
  if (!r.model->answers(kind)) {
    std::vector<std::string> answered;
    for (const ObjectiveKind& make : objective_kinds())
      if (const auto other = make(); r.model->answers(other->kind())) answered.emplace_back(other->kind());
    return check.refuse("objective.kind", "objective.kind is {}, but must be {}, which model.kind {} can answer", kind,
                        fmt::join(answered, " or "), r.model->kind());
  }
  r.objective->check(check);
  if (const std::int64_t most = r.objective->most_context();
      most > 0 && check.none_in({"data.context"}) && r.data.context > most)
    check.refuse("data.context", "data.context is {}, but must be at most {} with objective.kind {}", r.data.context,
                 most, kind);
  const BatchFields asked = r.objective->fields();
  const std::int64_t ranks = r.train.parallel.sequence_ranks;
  if (check.none_in({"parallel.sequence_ranks"}) && ranks > 1 && (asked.targets || asked.weights))
    check.refuse("parallel.sequence_ranks",
                 "parallel.sequence_ranks is {}, but must be 1 with objective.kind {}, whose rows cannot be divided",
                 ranks, kind);
  const auto cuts = [](const StageSteps& steps) { return steps.shape.sequences > 1; };
  if (asked.asked > 0 && check.none_in({"train.stages", "data.context"}) &&
      std::ranges::any_of(stretches(r.train, r.data.context), cuts))
    check.refuse(
        "train.stages",
        "train.stages cuts rows into shorter sequences, but objective.kind {} asks whole rows; give such stages "
        "a global_batch of their own",
        kind);
}

void check_name(RecipeChecker& check, const std::string& name) {
  if (check.none_in({"name"}) && (name.find_first_of("/\\\n\t\r") != std::string::npos || name.front() == '.'))
    check.refuse("name", "name is '{}', but must be usable as a directory name: no slashes, no leading dot",
                 shown(name));
}

void check_reproduces(RecipeChecker& check, const Reproduces& r) {
  if (!check.sets("reproduces.row") || !check.none_in({"reproduces"})) return;
  if ((r.table > 0) == !r.paper.empty())
    check.refuse(
        "reproduces",
        "reproduces has {}, but must have one of them: a table of the Sparse Transformer's paper, or the name of "
        "another paper",
        r.table > 0 ? "both table and paper" : "neither table nor paper");
}

}  // namespace

// A setting keeps the place that it comes from when it is merged with those of a base.
int RecipeChecker::level_of(const std::string& key) const {
  const Setting* const setting = find_setting(root_, key);
  if (setting == nullptr) return 0;
  if (setting->where.starts_with("--set ")) return 2;
  return setting->where.starts_with(root_.where.substr(0, root_.where.rfind(':') + 1)) ? 1 : 0;
}

void check_recipe(const Setting& root, Recipe& recipe, RecipeMistakes& mistakes) {
  RecipeChecker check(root, mistakes);
  check_name(check, recipe.name);
  check_reproduces(check, recipe.reproduces);
  fill_model(check, recipe);
  fill_from_optimizer(check, recipe.train);
  recipe.model->check(check, recipe.train.parallel.sequence_ranks);
  check_batch(check, recipe);
  check_parallel(check, recipe);
  check_stages(check, recipe);
  check_objective(check, recipe);
  check_products(check, recipe);
  check_order(check, recipe);
  check_documents(check, recipe);
}

}  // namespace longstride
