#include "launch/recipe/recipe_aliases.h"

#include <algorithm>
#include <cctype>

#include "launch/recipe/recipe_writer.h"

namespace longstride {
namespace {

struct Meaning {
  const char *key, *words;
};

// Names used by Hugging Face, nanoGPT, fairseq and PyTorch Lightning. If a word belongs to several keys, the one in the
// current section is preferred, then the first.
constexpr Meaning meanings[] = {
    {"train", "training trainer"},
    {"data", "dataset"},
    {"model", "network architecture"},
    {"optimizer", "optim"},
    {"parallel", "distributed"},
    {"name", "run_name"},
    {"data.path", "file dataset data"},
    {"data.context",
     "seq_len seq_length sequence_length max_seq_len max_length context_length context_size block_size n_ctx"},
    {"data.kind", "type"},
    {"model.kind", "type architecture"},
    {"model.layers", "n_layer n_layers num_layers num_hidden_layers depth"},
    {"model.heads", "n_head n_heads num_heads num_attention_heads"},
    {"model.width", "d_model dim n_embd n_embed embed_dim hidden_dim hidden_size model_dim"},
    {"model.feed_forward_ratio", "mlp_ratio ffn_ratio"},
    {"model.dropout", "drop dropout_rate"},
    {"model.rotary_base", "rope_base rope_theta"},
    {"model.query_key_norm", "qk_norm"},
    {"model.init", "initialization"},
    {"model.init_deviation", "init_std initializer_range"},
    {"model.norm", "pre_norm post_norm normalize_before norm_first"},
    {"model.activation", "activation_function hidden_act act_fn"},
    {"model.attention_bias", "qkv_bias"},
    {"model.tied_output", "tie_word_embeddings tie_weights tie_embeddings"},
    {"model.recompute", "checkpointing gradient_checkpointing activation_checkpointing"},
    {"model.attention.parts", "type kind pattern patterns"},
    {"model.attention.integration", "mode"},
    {"model.attention.stride", "block_size"},
    {"model.attention.window", "window_size"},
    {"train.global_batch", "batch_size batch train_batch_size global_batch_size"},
    {"train.micro_batch", "micro_batch_size per_device_train_batch_size"},
    {"train.lr", "learning_rate max_lr peak_lr"},
    {"train.steps", "max_steps max_iters num_steps train_steps total_steps iterations"},
    {"train.warmup", "warmup_steps warmup_iters"},
    {"train.schedule", "lr_schedule lr_scheduler scheduler lr_scheduler_type"},
    {"train.lr_floor", "min_lr lr_min eta_min final_lr"},
    {"train.decay_steps", "decay_iters cooldown_steps lr_decay_steps"},
    {"train.epsilon", "eps adam_epsilon"},
    {"train.weight_decay", "wd"},
    {"train.clip", "grad_clip clip_grad gradient_clip max_grad_norm"},
    {"train.ema", "ema_decay"},
    {"train.precision", "dtype mixed_precision"},
    {"train.seed", "random_seed"},
    {"train.log_every", "log_interval logging_steps"},
    {"train.checkpoint_every", "save_every save_steps save_interval"},
    {"train.keep", "save_total_limit keep_last"},
    {"train.keep_best", "save_best load_best_model_at_end"},
    {"train.evaluate_every", "eval_every eval_steps eval_interval"},
    {"train.evaluate_windows", "eval_iters"},
    {"train.hang_seconds", "timeout"},
    {"optimizer.kind", "name type optimizer"},
    {"optimizer.shard", "zero fsdp sharded"},
    {"parallel.sequence_ranks", "sequence_parallel context_parallel"},
};

// Keys that recipes had under another name. Both names are of one section.
struct Renamed {
  const char *before, *now;
};

constexpr Renamed renamed[] = {{"parallel.context", "parallel.sequence_ranks"}};

bool has_word(const Meaning& meaning, const std::string& word) {
  const std::string words = std::string(" ") + meaning.words + " ";
  return words.find(" " + word + " ") != std::string::npos;
}

std::string section_of(const std::string& key) {
  const std::size_t dot = key.rfind('.');
  return dot == std::string::npos ? "" : key.substr(0, dot);
}

bool is_nested(const std::string& key) { return section_of(key).find('.') != std::string::npos; }

bool may_have(const Setting& recipe, const std::string& key) {
  return !is_nested(key) || find_setting(recipe, section_of(key)) != nullptr;
}

const std::vector<std::string>& all_keys() {
  static const std::vector<std::string> keys = [] {
    RecipeWriter writer;
    Recipe any;
    visit_recipe(writer, any);
    return writer.keys();
  }();
  return keys;
}

// A key that belongs to another section, such as lr in `optimizer`.
std::string elsewhere(const std::string& word, const std::string& section, const Setting& recipe) {
  const auto found = std::ranges::find_if(all_keys(), [&](const std::string& key) {
    return key.ends_with("." + word) && section_of(key) != section && may_have(recipe, key);
  });
  return found == all_keys().end() ? "" : *found;
}

}  // namespace

std::string renamed_key(const std::string& key) {
  const auto* found = std::ranges::find(renamed, key, &Renamed::before);
  return found == std::end(renamed) ? "" : found->now;
}

void rename_keys(Setting& root) {
  for (const auto& [before, now] : renamed) {
    Setting* section = root.find(section_of(before));
    if (section == nullptr) continue;
    for (auto& [key, value] : section->entries)
      if (section_of(before) + "." + key == before) key = std::string(now).substr(section_of(now).size() + 1);
  }
}

std::string as_key(std::string word) {
  for (char& c : word) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return word;
}

std::string key_of_option(const std::string& word) {
  const std::string name = as_key(word);
  std::vector<std::string> found;
  for (const std::string& key : all_keys())
    if (!is_nested(key) && key.substr(key.rfind('.') + 1) == name) found.push_back(key);
  if (found.size() == 1) return found.front();
  for (const Meaning& m : meanings)
    if (!is_nested(m.key) && std::ranges::find(all_keys(), m.key) != all_keys().end() && has_word(m, name))
      return m.key;
  return "";
}

std::string meant_key(const std::string& word, const std::string& section, const std::vector<std::string>& known,
                      const Setting& recipe) {
  const Meaning* other = nullptr;
  for (const Meaning& m : meanings) {
    if (!has_word(m, word) || !may_have(recipe, m.key)) continue;
    const std::string key = m.key, own = key.substr(key.rfind('.') + 1);
    if (section_of(key) != section)
      other = other == nullptr ? &m : other;
    else if (std::find(known.begin(), known.end(), own) != known.end())  // not every model has every key
      return own;
  }
  const std::string near = nearest(word, known);
  if (!near.empty()) return near;
  if (other != nullptr) return other->key;
  const bool nested = section.find('.') != std::string::npos;  // too deep for a key of another section
  return nested ? "" : elsewhere(word, section, recipe);
}

}  // namespace longstride
