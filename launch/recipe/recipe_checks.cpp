#include "launch/recipe/recipe_checks.h"

#include <cmath>

namespace longstride {
namespace {

bool is_whole(double value) { return value >= 1 && std::abs(value - std::round(value)) <= 1e-6; }

void check_key_size(RecipeChecker& check, const SparseTransformerConfig& m) {
  if (!check.none_in({"model.width", "model.heads", "model.key_ratio"})) return;
  const double key_size = m.key_ratio * static_cast<double>(m.width) / static_cast<double>(m.heads);
  if (!is_whole(key_size))
    check.refuse("model.key_ratio",
                 "model.key_ratio is {}, which makes keys of {:g} elements a head (key_ratio * {} / {}); choose one "
                 "that makes a whole number",
                 m.key_ratio, key_size, m.width, m.heads);
  else if (m.rotary_base > 0 && m.key_size() % 2 != 0 && check.none_in({"model.rotary_base"}))
    check.refuse("model.rotary_base",
                 "model.rotary_base is {}, which rotates pairs of a key's elements, but keys have {}; choose heads and "
                 "key_ratio that make an even number",
                 m.rotary_base, m.key_size());
}

void check_model(RecipeChecker& check, const SparseTransformerConfig& m) {
  if (check.none_in({"model.width", "model.heads"}) && m.width % m.heads != 0)
    check.refuse("model.heads", "model.heads is {}, but must divide model.width, {}", m.heads, m.width);
  if (check.none_in({"model.rotary_base"}) && m.rotary_base > 0 && m.rotary_base <= 1)
    check.refuse("model.rotary_base", "model.rotary_base is {}, but must be 0 (no rotation) or a number above 1",
                 m.rotary_base);
  check_key_size(check, m);
  const double inner = m.feed_forward_ratio * static_cast<double>(m.width);
  if (check.none_in({"model.feed_forward_ratio", "model.width"}) && !is_whole(inner))
    check.refuse("model.feed_forward_ratio",
                 "model.feed_forward_ratio is {}, which makes an inner width of {:g}; choose one that makes a whole "
                 "number",
                 m.feed_forward_ratio, inner);
  if (!check.none_in({"model.attention", "model.heads", "model.layers"})) return;
  const std::string problem = kernels::problem_of(m.attention, m.heads, m.layers);
  if (!problem.empty()) check.refuse("model." + problem.substr(0, problem.find(' ')), "model.{}", problem);
}

void fill_from_data(RecipeChecker& check, Recipe& r) {
  if (!check.none_in({"data.kind", "data.context"})) return;
  r.model.context = r.data.context;
  const bool cifar10 = r.data.kind == DataKind::cifar10, pictures = cifar10 || r.data.kind == DataKind::images;
  if (!pictures) {
    if (check.none_in({"model.positions"}) && r.model.positions == Positions::data)
      check.refuse("model.positions",
                   "model.positions is data, but only pictures have rows, columns and channels; use attention");
    return;
  }
  const auto side = static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(r.data.context) / 3.0)));
  if (3 * side * side != r.data.context || (cifar10 && side != 32))
    check.refuse(
        "data.context", "data.context is {}, but must be {}", r.data.context,
        cifar10 ? "3072, the bytes of a CIFAR-10 picture" : "3 x size x size, the bytes of a square RGB picture");
  r.model.geometry = {side, side, 3};
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
                 "train.residual is bf16, which goes with train.precision bf16 or automatic, but that is {}",
                 t.precision == Precision::fp32 ? "fp32" : "fp16");
}

// Beyond these, counts of positions and of bytes would not fit 64 bits.
constexpr double most_positions = 9e15, most_bytes = 1e18;

void check_products(RecipeChecker& check, const Recipe& r) {
  if (!check.none_in({"train.global_batch", "train.steps", "data.context", "data.kind"})) return;
  const double batch = static_cast<double>(r.train.global_batch) * static_cast<double>(r.model.context);
  const double positions = batch * static_cast<double>(r.train.steps);
  if (positions > most_positions)
    check.refuse("train.steps", "train.steps is {}, which makes {:.2g} positions in all; choose fewer than {:.0g}",
                 r.train.steps, positions, most_positions);
  if (!check.none_in({"model.width", "model.feed_forward_ratio", "model.layers"})) return;
  const double row = static_cast<double>(r.model.inner_width() + 4 * r.model.width) * sizeof(float);
  const double bytes = batch * row * static_cast<double>(r.model.layers);
  if (bytes > most_bytes)
    check.refuse("train.global_batch",
                 "train.global_batch is {}, which makes {:.2g} bytes of activations; choose fewer than {:.0g}",
                 r.train.global_batch, bytes, most_bytes);
}

void check_parallel(RecipeChecker& check, const Recipe& r) {
  if (check.none_in({"optimizer"}) && r.train.optimizer == OptimizerKind::muon && r.train.parallel.shard)
    check.refuse("optimizer.shard",
                 "optimizer.shard is true, but optimizer.kind muon needs whole matrices on every rank; set it to "
                 "false");
  if (!check.none_in({"parallel.context"})) return;
  const std::int64_t ranks = r.train.parallel.context;
  const auto require_divisor = [&](const char* key, std::int64_t value) {
    if (check.none_in({key, "parallel.context"}) && value % ranks != 0)
      check.refuse("parallel.context", "parallel.context is {}, but must divide {}, {}", ranks, key, value);
  };
  require_divisor("model.heads", r.model.heads);
  require_divisor("data.context", r.data.context);
  if (check.none_in({"train.micro_batch"}) && ranks > 1 && r.train.micro_batch > 1)
    check.refuse("train.micro_batch",
                 "train.micro_batch is {}, but ranks that share sequences (parallel.context is {}) take one at a time; "
                 "set it to 1",
                 r.train.micro_batch, ranks);
}

void check_stages(RecipeChecker& check, const Recipe& r) {
  if (r.train.stages.empty() || !check.none_in({"train.stages", "train.steps", "data.context"})) return;
  if (check.none_in({"parallel.context"}) && r.train.parallel.context > 1)
    check.refuse("parallel.context",
                 "parallel.context is {}, but ranks that share sequences take whole ones only; remove train.stages or "
                 "it",
                 r.train.parallel.context);
  const std::vector<Setting>& items = find_setting(check.root(), "train.stages")->items;
  Stage before;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Stage& stage = r.train.stages[i];
    const auto refuse = [&](const char* key, std::int64_t value, const std::string& allowed) {
      check.refuse_at(items[i].find(key)->where, "train.stages", "train.stages.{} is {}, but must {}", key, value,
                      allowed);
    };
    if (stage.until <= before.until)
      refuse("until", stage.until, fmt::format("rise: {} before it", before.until));
    else if (stage.until >= r.train.steps)
      refuse("until", stage.until, fmt::format("be below train.steps, {}", r.train.steps));
    if (stage.context <= before.context)
      refuse("context", stage.context, fmt::format("rise: {} before it", before.context));
    else if (stage.context >= r.data.context || r.data.context % stage.context != 0)
      refuse("context", stage.context, fmt::format("divide data.context, {}, and be less", r.data.context));
    before = stage;
  }
}

void check_name(RecipeChecker& check, const std::string& name) {
  if (check.none_in({"name"}) && (name.find_first_of("/\\\n\t\r") != std::string::npos || name.front() == '.'))
    check.refuse("name", "name is '{}', but must be fit for a directory: no slashes, no leading dot", shown(name));
}

}  // namespace

void check_recipe(const Setting& root, Recipe& recipe, RecipeMistakes& mistakes) {
  RecipeChecker check(root, mistakes);
  check_name(check, recipe.name);
  check_model(check, recipe.model);
  fill_from_data(check, recipe);
  check_batch(check, recipe);
  check_products(check, recipe);
  check_parallel(check, recipe);
  check_stages(check, recipe);
}

}  // namespace longstride
