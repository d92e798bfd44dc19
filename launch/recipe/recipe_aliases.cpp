#include "launch/recipe/recipe_aliases.h"

#include <algorithm>
#include <utility>

#include "launch/recipe/recipe_writer.h"
#include "launch/recipe/settings_tree.h"

namespace longstride {
namespace {

struct Alias {
  const char *word, *key;
};

// Hugging Face, nanoGPT, fairseq and PyTorch Lightning. Of several entries with one word that of the section at hand
// counts, then the first.
constexpr Alias aliases[] = {
    {"training", "train"},
    {"trainer", "train"},
    {"dataset", "data"},
    {"network", "model"},
    {"architecture", "model"},
    {"optim", "optimizer"},
    {"distributed", "parallel"},
    {"run_name", "name"},

    {"file", "data.path"},
    {"dataset", "data.path"},
    {"seq_len", "data.context"},
    {"seq_length", "data.context"},
    {"sequence_length", "data.context"},
    {"max_seq_len", "data.context"},
    {"max_length", "data.context"},
    {"context_length", "data.context"},
    {"context_size", "data.context"},
    {"block_size", "data.context"},
    {"n_ctx", "data.context"},
    {"type", "data.kind"},

    {"type", "model.kind"},
    {"architecture", "model.kind"},
    {"n_layer", "model.layers"},
    {"n_layers", "model.layers"},
    {"num_layers", "model.layers"},
    {"num_hidden_layers", "model.layers"},
    {"depth", "model.layers"},
    {"n_head", "model.heads"},
    {"n_heads", "model.heads"},
    {"num_heads", "model.heads"},
    {"num_attention_heads", "model.heads"},
    {"d_model", "model.width"},
    {"dim", "model.width"},
    {"n_embd", "model.width"},
    {"n_embed", "model.width"},
    {"embed_dim", "model.width"},
    {"hidden_dim", "model.width"},
    {"hidden_size", "model.width"},
    {"model_dim", "model.width"},
    {"mlp_ratio", "model.feed_forward_ratio"},
    {"ffn_ratio", "model.feed_forward_ratio"},
    {"drop", "model.dropout"},
    {"dropout_rate", "model.dropout"},
    {"rope_base", "model.rotary_base"},
    {"rope_theta", "model.rotary_base"},
    {"qk_norm", "model.query_key_norm"},
    {"initialization", "model.init"},
    {"checkpointing", "model.recompute"},
    {"gradient_checkpointing", "model.recompute"},
    {"activation_checkpointing", "model.recompute"},

    {"type", "model.attention.parts"},
    {"kind", "model.attention.parts"},
    {"pattern", "model.attention.parts"},
    {"patterns", "model.attention.parts"},
    {"mode", "model.attention.integration"},
    {"block_size", "model.attention.stride"},
    {"window_size", "model.attention.window"},

    {"batch_size", "train.global_batch"},
    {"batch", "train.global_batch"},
    {"train_batch_size", "train.global_batch"},
    {"global_batch_size", "train.global_batch"},
    {"micro_batch_size", "train.micro_batch"},
    {"per_device_train_batch_size", "train.micro_batch"},
    {"learning_rate", "train.lr"},
    {"max_lr", "train.lr"},
    {"peak_lr", "train.lr"},
    {"max_steps", "train.steps"},
    {"max_iters", "train.steps"},
    {"num_steps", "train.steps"},
    {"train_steps", "train.steps"},
    {"total_steps", "train.steps"},
    {"iterations", "train.steps"},
    {"warmup_steps", "train.warmup"},
    {"warmup_iters", "train.warmup"},
    {"eps", "train.epsilon"},
    {"adam_epsilon", "train.epsilon"},
    {"wd", "train.weight_decay"},
    {"grad_clip", "train.clip"},
    {"clip_grad", "train.clip"},
    {"gradient_clip", "train.clip"},
    {"max_grad_norm", "train.clip"},
    {"ema_decay", "train.ema"},
    {"dtype", "train.precision"},
    {"mixed_precision", "train.precision"},
    {"random_seed", "train.seed"},
    {"log_interval", "train.log_every"},
    {"logging_steps", "train.log_every"},
    {"save_every", "train.checkpoint_every"},
    {"save_steps", "train.checkpoint_every"},
    {"save_interval", "train.checkpoint_every"},
    {"eval_every", "train.evaluate_every"},
    {"eval_steps", "train.evaluate_every"},
    {"eval_interval", "train.evaluate_every"},
    {"eval_iters", "train.evaluate_windows"},
    {"timeout", "train.hang_seconds"},

    {"name", "optimizer.kind"},
    {"type", "optimizer.kind"},
    {"zero", "optimizer.shard"},
    {"fsdp", "optimizer.shard"},
    {"sharded", "optimizer.shard"},
    {"sequence_parallel", "parallel.context"},
    {"context_parallel", "parallel.context"},
};

std::string section_of(const std::string& key) {
  const std::size_t dot = key.rfind('.');
  return dot == std::string::npos ? "" : key.substr(0, dot);
}

// A key that stands in another section, as lr in `optimizer`.
std::string elsewhere(const std::string& word) {
  static const std::vector<std::string> keys = [] {
    RecipeWriter writer;
    Recipe any;
    visit_recipe(writer, any);
    return writer.keys();
  }();
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const std::string& key) { return key.ends_with("." + word); });
  return found == keys.end() ? "" : *found;
}

}  // namespace

std::string meant_key(const std::string& word, const std::string& section, const std::vector<std::string>& known) {
  const Alias* alias = nullptr;
  for (const Alias& a : aliases) {
    if (word != a.word) continue;
    if (section_of(a.key) == section) return std::string(a.key).substr(section.empty() ? 0 : section.size() + 1);
    if (alias == nullptr) alias = &a;
  }
  const std::string near = nearest(word, known);
  if (!near.empty()) return near;
  if (alias != nullptr) return alias->key;
  const bool nested = section.find('.') != std::string::npos;  // too far from other sections to be taken for one
  return nested ? "" : elsewhere(word);
}

std::string meant_parts(const std::string& word) {
  constexpr std::pair<const char*, const char*> meanings[] = {
      {"strided", "[local, column]"},
      {"fixed", "[fixed_block, fixed_summary]"},
      {"full", "[dense]"},
      {"causal", "[dense]"},
      {"window", "[local]"},
      {"sliding_window", "[local]"},
      {"block", "[fixed_block]"},
      {"summary", "[fixed_summary]"},
  };
  for (const auto& [name, parts] : meanings)
    if (word == name) return word + " is " + parts;
  return "";
}

}  // namespace longstride
