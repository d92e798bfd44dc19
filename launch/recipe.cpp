#include "launch/recipe.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "framework/core/errors.h"
#include "launch/recipe_reader.h"
#include "launch/recipe_writer.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

std::string read_text(const std::string& path, const std::string& who) {
  if (path.empty()) throw user_error("{}'' names no file; give the file of a recipe", who);
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) throw user_error("{}{} is a directory; give the file of a recipe", who, path);
  std::ifstream in(path, std::ios::binary);
  if (!in)
    throw user_error("{}{}: cannot be read; give the file of a recipe, as recipes/quickstart/text.yaml", who, path);
  std::string text(std::size_t{1} << 21, '\0');  // more than the parser takes: it says so
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

bool sets(const Setting& root, const std::string& dotted) {
  const Setting* at = &root;
  for (std::size_t begin = 0; at != nullptr && begin <= dotted.size();) {
    const std::size_t end = std::min(dotted.find('.', begin), dotted.size());
    at = at->find(dotted.substr(begin, end - begin));
    begin = end + 1;
  }
  return at != nullptr;
}

// A reason explains a value: where the value is set anew, the base's reason for its own goes.
void drop_stale_reasons(Setting& base, const Setting& over) {
  if (Setting* reasons = base.find("unpublished"))
    std::erase_if(reasons->entries, [&](const auto& reason) { return sets(over, reason.first); });
}

// One level: a base has no base of its own.
void apply_base(Setting& root, const fs::path& folder) {
  const Setting* base = root.find("base");
  if (base == nullptr) return;
  if (base->kind != Setting::Kind::scalar || base->scalar.empty())
    throw user_error("{}: base is {}, but must be the file of another recipe", base->where, base->text());
  const std::string path = (folder / base->scalar).string();
  Setting below = parse_settings(read_text(path, base->where + ": base "), path);
  if (const Setting* second = below.find("base"))
    throw user_error("{}: a recipe that is a base has a base itself; only one level is allowed", second->where);
  drop_stale_reasons(below, root);
  merge_settings(below, root);
  std::erase_if(below.entries, [](const auto& entry) { return entry.first == "base"; });
  root = std::move(below);
}

// What a single key's range cannot say.
void check_model(const Setting& root, SparseTransformerConfig& m) {
  const auto refuse = [&](const std::string& key, const std::string& text) {
    throw user_error("{}: {}", RecipeReader::where(root, key), text);
  };
  if (m.width % m.heads != 0)
    refuse("model.heads", fmt::format("model.heads is {}, but must divide model.width, {}", m.heads, m.width));
  const double key_size = m.key_ratio * static_cast<double>(m.width) / static_cast<double>(m.heads);
  if (key_size < 1 || std::abs(key_size - std::round(key_size)) > 1e-6)
    refuse("model.key_ratio",
           fmt::format("model.key_ratio is {}, which makes keys of {:g} elements a head (key_ratio * {} / {}); choose "
                       "one that makes a whole number",
                       m.key_ratio, key_size, m.width, m.heads));
  if (m.rotary_base > 0 && m.rotary_base <= 1)
    refuse("model.rotary_base",
           fmt::format("model.rotary_base is {}, but must be 0 (no rotation) or a number above 1", m.rotary_base));
  if (m.rotary_base > 0 && m.key_size() % 2 != 0)
    refuse(
        "model.rotary_base",
        fmt::format("model.rotary_base is {}, which rotates pairs of a key's elements, but keys have {}; choose heads "
                    "and key_ratio that make an even number",
                    m.rotary_base, m.key_size()));
  const double inner = m.feed_forward_ratio * static_cast<double>(m.width);
  if (inner < 1 || std::abs(inner - std::round(inner)) > 1e-6)
    refuse("model.feed_forward_ratio",
           fmt::format("model.feed_forward_ratio is {}, which makes an inner width of {:g}; choose one that makes a "
                       "whole number",
                       m.feed_forward_ratio, inner));
  const std::string problem = kernels::problem_of(m.attention, m.heads, m.layers);
  if (!problem.empty()) refuse("model." + problem.substr(0, problem.find(' ')), "model." + problem);
}

void fill_from_data(const Setting& root, Recipe& r) {
  r.model.context = r.data.context;
  const bool pictures = r.data.kind == DataKind::cifar10 || r.data.kind == DataKind::images;
  if (pictures) {
    const auto side = static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(r.data.context) / 3.0)));
    if (3 * side * side != r.data.context || (r.data.kind == DataKind::cifar10 && side != 32))
      throw user_error("{}: data.context is {}, but must be {}", RecipeReader::where(root, "data.context"),
                       r.data.context,
                       r.data.kind == DataKind::cifar10 ? "3072, the bytes of a CIFAR-10 picture"
                                                        : "3 x size x size, the bytes of a square RGB picture");
    r.model.geometry = {side, side, 3};
  } else if (r.model.positions == Positions::data) {
    throw user_error("{}: model.positions is data, but only pictures have rows, columns and channels; use attention",
                     RecipeReader::where(root, "model.positions"));
  }
}

void check_parallel(const Setting& root, const Recipe& r) {
  if (r.train.optimizer == OptimizerKind::muon && r.train.parallel.shard)
    throw user_error(
        "{}: optimizer.shard is true, but optimizer.kind muon needs whole matrices on every rank; set it to "
        "false",
        RecipeReader::where(root, "optimizer.shard"));
  const std::int64_t ranks = r.train.parallel.context;
  const auto require_divisor = [&](const char* key, std::int64_t value) {
    if (value % ranks != 0)
      throw user_error("{}: parallel.context is {}, but must divide {}, {}",
                       RecipeReader::where(root, "parallel.context"), ranks, key, value);
  };
  require_divisor("model.heads", r.model.heads);
  require_divisor("data.context", r.data.context);
  if (ranks > 1 && r.train.micro_batch > 1)
    throw user_error(
        "{}: train.micro_batch is {}, but ranks that share sequences (parallel.context is {}) take one at a time; set "
        "it "
        "to 1",
        RecipeReader::where(root, "train.micro_batch"), r.train.micro_batch, ranks);
}

// Beyond these, counts of positions and of bytes would not fit 64 bits.
constexpr double most_positions = 9e15, most_bytes = 1e18;

void check_train(const Setting& root, const Recipe& r) {
  const TrainConfig& t = r.train;
  if (t.micro_batch > 0 && t.micro_batch < t.global_batch && t.global_batch % t.micro_batch != 0)
    throw user_error("{}: train.micro_batch is {}, but must divide train.global_batch, {}",
                     RecipeReader::where(root, "train.micro_batch"), t.micro_batch, t.global_batch);
  if (t.residual == Precision::bf16 && (t.precision == Precision::fp32 || t.precision == Precision::fp16))
    throw user_error("{}: train.residual is bf16, which goes with train.precision bf16 or automatic, but that is {}",
                     RecipeReader::where(root, "train.residual"), t.precision == Precision::fp32 ? "fp32" : "fp16");
  const double batch = static_cast<double>(t.global_batch) * static_cast<double>(r.model.context);
  if (batch * static_cast<double>(t.steps) > most_positions)
    throw user_error("{}: train.steps is {}, which makes {:.2g} positions in all; choose fewer than {:.0g}",
                     RecipeReader::where(root, "train.steps"), t.steps, batch * static_cast<double>(t.steps),
                     most_positions);
  const double row = static_cast<double>(r.model.inner_width() + 4 * r.model.width) * sizeof(float);
  if (batch * row * static_cast<double>(r.model.layers) > most_bytes)
    throw user_error("{}: train.global_batch is {}, which makes {:.2g} bytes of activations; choose fewer than {:.0g}",
                     RecipeReader::where(root, "train.global_batch"), t.global_batch,
                     batch * row * static_cast<double>(r.model.layers), most_bytes);
}

void check_stages(const Setting& root, const Recipe& r) {
  if (r.train.stages.empty()) return;
  if (r.train.parallel.context > 1)
    throw user_error(
        "{}: parallel.context is {}, but ranks that share sequences take whole ones only; remove train.stages or it",
        RecipeReader::where(root, "parallel.context"), r.train.parallel.context);
  const std::vector<Setting>& items = root.find("train")->find("stages")->items;
  Stage before;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Stage& stage = r.train.stages[i];
    const auto refuse = [&](const char* key, std::int64_t value, const std::string& allowed) {
      throw user_error("{}: train.stages.{} is {}, but must {}", items[i].find(key)->where, key, value, allowed);
    };
    if (stage.until <= before.until) refuse("until", stage.until, fmt::format("rise: {} before it", before.until));
    if (stage.until >= r.train.steps)
      refuse("until", stage.until, fmt::format("be below train.steps, {}", r.train.steps));
    if (stage.context <= before.context)
      refuse("context", stage.context, fmt::format("rise: {} before it", before.context));
    if (stage.context >= r.data.context || r.data.context % stage.context != 0)
      refuse("context", stage.context, fmt::format("divide data.context, {}, and be less", r.data.context));
    before = stage;
  }
}

Recipe finish(const Setting& root) {
  Recipe r;
  RecipeReader reader(root);
  visit_recipe(reader, r);
  reader.finish();
  if (r.name.find_first_of("/\\") != std::string::npos || r.name.front() == '.')
    throw user_error("{}: name is '{}', but must be fit for a directory: no slashes, no leading dot",
                     RecipeReader::where(root, "name"), r.name);
  check_model(root, r.model);
  fill_from_data(root, r);
  check_train(root, r);
  check_parallel(root, r);
  check_stages(root, r);
  RecipeWriter writer;
  visit_recipe(writer, r);
  r.resolved = writer.text();
  return r;
}

Recipe resolve(const std::string& text, const std::string& name, const fs::path& folder,
               const std::vector<std::string>& overrides) {
  Setting root = parse_settings(text, name);
  apply_base(root, folder);
  for (const std::string& assignment : overrides) apply_override(root, assignment);
  return finish(root);
}

}  // namespace

Recipe read_recipe(const std::string& path, const std::vector<std::string>& overrides) {
  return resolve(read_text(path, ""), path, fs::path(path).parent_path(), overrides);
}

Recipe parse_recipe(const std::string& text, const std::string& name, const std::vector<std::string>& overrides) {
  return resolve(text, name, fs::path("."), overrides);
}

}  // namespace longstride
