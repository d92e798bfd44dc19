// Small models that own their memory, for tests: of any kind, fp32 or double.
#pragma once
#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "framework/models/decoder/decoder.h"
#include "kernels/base/philox.h"

namespace longstride::test {

template <class Config>
struct NamedConfig {
  std::string name;
  Config config;
};

inline DecoderConfig toy_config() {
  DecoderConfig c;
  c.context = 23;
  c.layers = 2;
  c.width = 16;
  c.heads = 2;
  c.feed_forward_ratio = 2;
  c.attention.parts = {kernels::PartKind::dense};
  c.attention.stride = 5;
  return c;
}

// Other forms of blocks, embedding and output, together as systems have them: the first is Transformer-XL's, without
// its attention.
inline std::vector<NamedConfig<DecoderConfig>> forms_of(const DecoderConfig& base) {
  DecoderConfig xl = base;
  xl.positions = Positions::none;
  xl.rotary_base = 100;
  xl.norm = NormOrder::post;
  xl.activation = kernels::Activation::relu;
  xl.attention_bias = false;
  xl.tied_output = xl.output_bias = xl.embedding_scale = true;
  xl.init_deviation = 0.02;
  DecoderConfig post = base;
  post.layers = 3;
  post.norm = NormOrder::post;
  DecoderConfig gelu = base;
  gelu.activation = kernels::Activation::gelu;
  gelu.tied_output = true;
  DecoderConfig geglu = base;
  geglu.activation = kernels::Activation::geglu;
  geglu.attention_bias = geglu.feed_forward_bias = false;
  geglu.output_bias = geglu.embedding_scale = true;
  DecoderConfig unbiased = base;
  unbiased.feed_forward_bias = false;
  return {{"transformer_xl", xl}, {"post_norm", post}, {"gelu_tied", gelu}, {"geglu", geglu}, {"unbiased", unbiased}};
}

// Bands of the vocabulary at both ends: of one width, and narrower ones with tables for each end or for both.
inline std::vector<NamedConfig<DecoderConfig>> bands_of(const DecoderConfig& base) {
  DecoderConfig level = forms_of(base).front().config;
  level.adaptive = {{60, 150}};
  DecoderConfig narrower = level;
  narrower.adaptive = {{90, 91, 200}, 2};
  DecoderConfig untied = base;
  untied.adaptive = {{128}, 4};
  untied.output_dropout = 0.2;
  return {{"adaptive", level}, {"adaptive_narrower", narrower}, {"adaptive_untied", untied}};
}

inline std::vector<NamedConfig<DecoderConfig>> forms_and_bands_of(const DecoderConfig& base) {
  std::vector<NamedConfig<DecoderConfig>> all = forms_of(base);
  for (const auto& bands : bands_of(base)) all.push_back(bands);
  return all;
}

// Adaptive-Span's form (Sukhbaatar et al. 2019), without a memory: spans that end within the context.
inline DecoderConfig spans_config() {
  DecoderConfig c = toy_config();
  c.positions = Positions::none;
  c.norm = NormOrder::post;
  c.activation = kernels::Activation::relu;
  c.attention_bias = false;
  c.output_bias = true;
  c.distance.given = true;
  c.distance.table = DistanceTable::learned;
  c.distance.shared_table = true;
  c.distance.distances = 14;
  c.distance.window = {15};
  c.distance.biases = BiasSharing::none;
  c.distance.self = false;
  c.distance.span = {.longest = 14, .ramp = 4, .initial = 0.3, .loss = 0.01};
  return c;
}

// A configuration of each pattern, integration and variant.
inline std::vector<NamedConfig<DecoderConfig>> toy_configs() {
  using kernels::Integration;
  using kernels::PartKind;
  std::vector<NamedConfig<DecoderConfig>> out = {{"dense", toy_config()}};
  for (Integration integration : {Integration::interleaved, Integration::merged, Integration::multihead}) {
    const char* suffix = integration == Integration::interleaved ? "interleaved"
                         : integration == Integration::merged    ? "merged"
                                                                 : "multihead";
    DecoderConfig strided = toy_config();
    strided.attention.integration = integration;
    strided.attention.parts = {PartKind::local, PartKind::column};
    out.push_back({std::string("strided_") + suffix, strided});
    DecoderConfig fixed = toy_config();
    fixed.attention.integration = integration;
    fixed.attention.parts = {PartKind::fixed_block, PartKind::fixed_summary};
    fixed.attention.summary = {2};
    fixed.attention.distinct_heads = true;
    out.push_back({std::string("fixed_") + suffix, fixed});
  }
  DecoderConfig image = toy_config();
  image.context = 24;
  image.positions = Positions::data;
  image.geometry = {2, 4, 3};
  image.key_ratio = 0.5;
  out.push_back({"image", image});
  // Beyond the paper: rotated and normalised queries and keys, without position tables; and rotation with them.
  DecoderConfig beyond = toy_config();
  beyond.attention.integration = Integration::merged;
  beyond.attention.parts = {PartKind::local, PartKind::column};
  beyond.positions = Positions::none;
  beyond.rotary_base = 10000;
  beyond.query_key_norm = true;
  out.push_back({"beyond", beyond});
  DecoderConfig sinks = toy_config();
  sinks.attention.integration = Integration::merged;
  sinks.attention.parts = {PartKind::local, PartKind::first};
  sinks.attention.window = 4;
  sinks.attention.first = 3;
  sinks.attention_heads.sink = true;
  out.push_back({"sinks", sinks});
  DecoderConfig shared = toy_config();
  shared.rotary_base = 100;
  shared.attention_heads.key_heads = 1;
  out.push_back({"shared_keys", shared});
  DecoderConfig rotary = image;
  rotary.rotary_base = 100;
  out.push_back({"image_rotary", rotary});
  for (const auto& form : forms_and_bands_of(toy_config())) out.push_back(form);
  return out;
}

// Owns the flat buffers of a model and an arena of just the planned size.
template <class T>
class ToyModel {
 public:
  explicit ToyModel(const ModelConfig& config) : model_(config.make_model()), objective_(config.objective) {
    const auto n = static_cast<std::size_t>(model_->parameters().flat_size());
    values_.assign(n, T{});
    gradients_.assign(n, T{});
    bind(values_, gradients_);
    ctx_.compute = ctx_.exact = kernels::DtypeOf<T>::value;
    ctx_.seed = 7;
  }

  void bind(std::vector<T>& values, std::vector<T>& gradients) {
    const Shape flat = {model_->parameters().flat_size()};
    const Dtype dtype = kernels::DtypeOf<T>::value;
    model_->parameters().bind(Tensor(values.data(), dtype, flat), Tensor(gradients.data(), dtype, flat));
  }

  // Moves every parameter away from its special initial value, so that no gradient is zero by accident.
  void randomise(double scale = 0.3) {
    std::uint32_t index = 0;
    for (Parameter& p : model_->parameters().all()) {
      const bool gain = p.name.ends_with("norm.weight");
      for (std::int64_t i = 0; i < p.shape.count(); ++i)
        p.master.template as<T>()[i] =
            static_cast<T>((gain ? 1.0 : 0.0) + scale * kernels::normal_of(kernels::philox(
                                                            3, static_cast<std::uint64_t>(i), 0,
                                                            kernels::domain_of(kernels::Purpose::test, index))));
      ++index;
    }
  }

  // Runs f(ctx) in a planning arena, then in a real one of exactly the bytes that the plan counted.
  template <class F>
  void run(F&& f) {
    Arena counting;
    ctx_.arena = &counting;
    f(ctx_);
    planned_ = counting.high_water();
    memory_.assign(planned_ + Arena::alignment, std::byte{0xFF});  // NaN in every type
    void* base = memory_.data();
    std::size_t space = memory_.size();
    std::align(Arena::alignment, planned_, base, space);
    Arena real(base, planned_);
    ctx_.arena = &real;
    f(ctx_);
    used_ = real.high_water();
    ctx_.arena = nullptr;
  }

  // Sum of losses of these tokens (batch, seq) and, added to gradients(), its gradient.
  double loss_and_gradients(const std::vector<std::uint8_t>& tokens, std::int64_t batch) {
    std::vector<T> losses(asked_of(tokens, batch));
    with_batch(tokens, batch, [&](const Batch& rows, const Shape& shape) {
      const Tensor out(losses.data(), kernels::DtypeOf<T>::value, shape);
      run([&](Context& ctx) { model_->loss_and_gradients(ctx, rows, 1.0, out); });
    });
    double total = 0;
    for (T x : losses) total += static_cast<double>(x);
    return total;
  }
  std::vector<T> losses(const std::vector<std::uint8_t>& tokens, std::int64_t batch) {
    std::vector<T> losses(asked_of(tokens, batch));
    with_batch(tokens, batch, [&](const Batch& rows, const Shape& shape) {
      const Tensor out(losses.data(), kernels::DtypeOf<T>::value, shape);
      run([&](Context& ctx) { model_->losses(ctx, rows, out); });
    });
    return losses;
  }

  // Rows read these tokens (batch, seq): later calls with as many rows continue them, with what they remember. Without
  // states nothing changes, and rows start anew.
  void remember(const std::vector<std::uint8_t>& tokens, std::int64_t batch) {
    if (model_->states().empty()) return;
    losses(tokens, batch);
    remembered_ = kept_;
    const auto length = static_cast<std::ptrdiff_t>(tokens.size()) / batch;
    read_ = std::ssize(before_) == batch ? read_ + length : length;
    before_.clear();
    for (std::int64_t r = 0; r < batch; ++r) before_.push_back(tokens[static_cast<std::size_t>((r + 1) * length - 1)]);
  }
  void forget() { before_.clear(); }
  // Where documents of every row's stream end from now on (write_groups), for models that read them.
  void set_documents(std::vector<std::int64_t> boundaries) { boundaries_ = std::move(boundaries); }
  // Likewise where groups end, for models that read them; and the bytes of a row, behind which it is padding.
  void set_groups(std::vector<std::int64_t> boundaries) { groups_ = std::move(boundaries); }
  void set_length(std::optional<std::int64_t> length) { length_ = length; }
  // The states of the last call's rows, one after another.
  const std::vector<T>& kept() const { return kept_; }

  // The tokens in the fields that the model reads. Rows start a stream unless they continue what remember() read.
  template <class F>
  void with_batch(const std::vector<std::uint8_t>& tokens, std::int64_t count, F&& f) {
    const Shape shape = {count, static_cast<std::int64_t>(tokens.size()) / count};
    const BatchLayout layout(model_->fields(), count, shape[1]);
    std::vector<std::byte> block(layout.bytes());
    const Batch rows = layout.at(block.data());
    const bool starts = std::ssize(before_) != count;
    for (std::int64_t r = 0; r < count; ++r) {
      const std::vector<std::uint32_t> labels = labels_of(tokens.data() + r * shape[1]);
      write(rows, r,
            {.bytes = tokens.data() + r * shape[1],
             .before = starts ? std::uint8_t{0} : before_[static_cast<std::size_t>(r)],
             .starts = starts,
             .length = length_,
             .documents = {boundaries_, starts ? 0 : read_},
             .groups = {groups_, starts ? 0 : read_},
             .labels = labels,
             .group_labels = group_labels_});
    }
    const std::int64_t half = count * model_->states().row_bytes(ctx_.state_types());
    std::vector<T> states(static_cast<std::size_t>(2 * half) / sizeof(T), T{});
    if (!starts) std::copy(remembered_.begin(), remembered_.end(), states.begin());
    const Tensor both(states.data(), Dtype::u8, {2, half});
    if (half > 0)
      ctx_.state = RowStates(count, ctx_.state_types(), both.slice(0, 0, 1).reshape({half}),
                             both.slice(0, 1, 2).reshape({half}));
    for (const State& state : model_->states().all())
      for (std::int64_t r = 0; r < count; ++r)
        if (rows.starts.as<std::uint8_t>()[r] != 0)
          std::fill_n(ctx_.state.now(state).slice(0, r, r + 1).template as<T>(), state.shape.count(), T{});
    f(rows, Shape{count, model_->fields().losses(shape[1])});
    ctx_.state = {};
    kept_.assign(states.begin() + std::ssize(states) / 2, states.end());
  }

  Model& model() { return *model_; }
  Context& context() { return ctx_; }
  std::vector<T>& values() { return values_; }
  std::vector<T>& gradients() { return gradients_; }
  std::size_t planned() const { return planned_; }
  std::size_t used() const { return used_; }

 private:
  std::size_t asked_of(const std::vector<std::uint8_t>& tokens, std::int64_t batch) const {
    return static_cast<std::size_t>(batch * model_->fields().losses(std::ssize(tokens) / batch));
  }
  // Labels that follow from a row's first byte, as many as the objective reads.
  std::vector<std::uint32_t> labels_of(const std::uint8_t* bytes) const {
    std::vector<std::uint32_t> labels(objective_ == nullptr ? 0 : static_cast<std::size_t>(objective_->labels()));
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::uint32_t>(bytes[0] >> i & 1);
    return labels;
  }
  // Rows have the numbers of their sequences in the global batch.
  void write(const Batch& rows, std::int64_t row, const RowBytes& of) const {
    const RowKey key{ctx_.seed, ctx_.first_row + row};
    if (objective_ != nullptr) return objective_->write_row_of(rows, row, of, key);
    write_row(rows, row, of.bytes, of.before, of.starts);
    write_groups(rows, row, of.documents, std::min(of.length.value_or(rows.tokens.size(1)), rows.tokens.size(1)));
  }

  std::unique_ptr<Model> model_;
  std::shared_ptr<const Objective> objective_;  // null: the next byte
  std::vector<T> values_, gradients_;
  std::vector<T> remembered_, kept_;
  std::vector<std::uint8_t> before_;  // each row's last byte; empty: rows start a stream
  std::int64_t read_ = 0;             // positions of the stream before
  std::vector<std::int64_t> boundaries_, groups_ = {0, 4, 5, 11, 18, std::int64_t{1} << 30};
  std::vector<std::uint16_t> group_labels_ = {1, 0, 0, 1, 0};
  std::optional<std::int64_t> length_;
  std::vector<std::byte> memory_;
  Context ctx_;
  std::size_t planned_ = 0, used_ = 0;
};

inline std::vector<std::uint8_t> toy_tokens(std::int64_t count, std::uint64_t seed = 5) {
  std::vector<std::uint8_t> tokens(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] =
        static_cast<std::uint8_t>(kernels::philox(seed, i, 0, kernels::domain_of(kernels::Purpose::test, 9)).word[0]);
  return tokens;
}

}  // namespace longstride::test
