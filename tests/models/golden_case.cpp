#include "tests/models/golden_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "datasets/objectives/masked_bytes.h"
#include "framework/core/files/files.h"
#include "framework/core/files/safetensors.h"
#include "framework/mixers/attention/config.h"
#include "framework/mixers/scan/config.h"
#include "framework/models/decoder/config.h"
#include "framework/models/encoder/config.h"

namespace longstride::golden {
namespace {

using nlohmann::json;

std::string path_of(const std::string& file) { return LONGSTRIDE_SOURCE_DIR "/tests/golden/" + file + ".safetensors"; }
SafetensorsReader open(const std::string& file) { return SafetensorsReader(path_of(file)); }

std::uint64_t hash_of(const std::string& name) {
  std::uint64_t z = 0xCBF29CE484222325ull;
  for (const char c : name) z = (z ^ static_cast<std::uint8_t>(c)) * 0x100000001B3ull;
  return z;
}

std::uint64_t word(std::uint64_t z, std::int64_t i) {
  z += static_cast<std::uint64_t>(i + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

double unit_of(std::uint64_t z) { return (static_cast<double>(z >> 44) * 2 + 1 - 1048576.0) / 1048576.0; }

template <class T>
T named(const std::map<std::string, T>& values, const std::string& name) {
  const auto found = values.find(name);
  if (found == values.end()) throw std::invalid_argument("golden file: unknown name " + name);
  return found->second;
}

// A list of numbers may be one number.
std::vector<std::int64_t> list_of(const json& settings, const char* key) {
  if (!settings.contains(key)) return {};
  const json& found = settings.at(key);
  return found.is_array() ? found.get<std::vector<std::int64_t>>() : std::vector{found.get<std::int64_t>()};
}

kernels::PatternConfig pattern_of(const json& attention) {
  using kernels::Integration;
  using kernels::PartKind;
  kernels::PatternConfig pattern;
  pattern.integration = named<Integration>({{"interleaved", Integration::interleaved},
                                            {"merged", Integration::merged},
                                            {"multihead", Integration::multihead}},
                                           attention.at("integration"));
  pattern.parts.clear();
  for (const json& part : attention.at("parts"))
    pattern.parts.push_back(named<PartKind>({{"dense", PartKind::dense},
                                             {"local", PartKind::local},
                                             {"column", PartKind::column},
                                             {"fixed_block", PartKind::fixed_block},
                                             {"fixed_summary", PartKind::fixed_summary},
                                             {"block_window", PartKind::block_window},
                                             {"random_blocks", PartKind::random_blocks}},
                                            part));
  pattern.stride = attention.at("stride");
  pattern.window = attention.value("window", 0);
  pattern.block = attention.value("block", 0);
  pattern.random = attention.value("random", 0);
  if (attention.contains("summary")) pattern.summary = list_of(attention, "summary");
  pattern.distinct_heads = attention.value("distinct_heads", false);
  pattern.summary_inclusive = attention.value("summary_inclusive", false);
  return pattern;
}

DistanceConfig distance_of(const json& distance) {
  DistanceConfig config;
  config.given = true;
  config.table = named<DistanceTable>(
      {{"none", DistanceTable::none}, {"sinusoid", DistanceTable::sinusoid}, {"learned", DistanceTable::learned}},
      distance.at("table"));
  config.shared_table = distance.value("shared_table", false);
  config.distances = distance.value("distances", 0);
  config.biases =
      named<BiasSharing>({{"none", BiasSharing::none}, {"layer", BiasSharing::layer}, {"model", BiasSharing::model}},
                         distance.at("biases"));
  config.window = list_of(distance, "window");
  config.dilation = list_of(distance, "dilation");
  config.dilated_heads = distance.value("dilated_heads", 0);
  config.self = distance.value("self", true);
  if (!distance.contains("span")) return config;
  const json& span = distance.at("span");
  config.span.longest = span.at("longest");
  config.span.ramp = span.at("ramp");
  config.span.loss = span.at("loss");
  return config;
}

MemoryConfig memory_of(const json& memory) {
  MemoryConfig config;
  config.length = memory.at("length");
  config.start = named<MemoryStart>({{"empty", MemoryStart::empty}, {"zeros", MemoryStart::zeros}},
                                    memory.value("start", "empty"));
  config.compressed = memory.value("compressed", 0);
  if (config.compressed == 0) return config;
  config.rate = memory.at("rate");
  config.compress = named<Compression>({{"mean", Compression::mean},
                                        {"max", Compression::max},
                                        {"convolution", Compression::convolution},
                                        {"dilated", Compression::dilated},
                                        {"most_used", Compression::most_used}},
                                       memory.at("compress"));
  config.reconstruction = memory.value("reconstruction", 1.0);
  return config;
}

ScanSettings scan_of(const json& entry) {
  ScanSettings s;
  s.form = named<kernels::ScanForm>(
      {{"sum", kernels::ScanForm::sum}, {"gated", kernels::ScanForm::gated}, {"delta", kernels::ScanForm::delta}},
      entry.value("form", "sum"));
  s.decay = named<ScanDecay>({{"none", ScanDecay::none}, {"head", ScanDecay::head}, {"channel", ScanDecay::channel}},
                             entry.value("decay", "none"));
  s.features = named<ScanFeatures>({{"none", ScanFeatures::none},
                                    {"softmax", ScanFeatures::softmax},
                                    {"trigonometric", ScanFeatures::trigonometric},
                                    {"relu", ScanFeatures::relu}},
                                   entry.value("features", "none"));
  s.beta = entry.value("beta", s.beta);
  s.count = entry.value("count", s.count);
  s.orthogonal = named<kernels::Orthogonality>({{"gram_schmidt", kernels::Orthogonality::gram_schmidt},
                                                {"hadamard", kernels::Orthogonality::hadamard},
                                                {"givens", kernels::Orthogonality::givens}},
                                               entry.value("orthogonal", "gram_schmidt"));
  s.convolution = entry.value("convolution", s.convolution);
  if (entry.contains("gate")) s.gate = entry.at("gate").get<bool>() ? Switch::on : Switch::off;
  if (entry.contains("norm"))
    s.norm = named<ScanNorm>({{"rms", ScanNorm::rms}, {"gated_rms", ScanNorm::gated_rms}, {"none", ScanNorm::none}},
                             entry.at("norm"));
  s.convolution_bias = entry.value("convolution_bias", false);
  s.time_step = entry.value("time_step", false);
  s.skip = entry.value("skip", false);
  s.key_heads = entry.value("key_heads", s.key_heads);
  s.key_size = entry.value("key_size", s.key_size);
  s.value_size = entry.value("value_size", s.value_size);
  return s;
}

std::vector<MixerEntry> mixers_of(const json& entries) {
  std::vector<MixerEntry> out;
  for (const json& entry : entries) {
    std::unique_ptr<MixerConfig> config;
    if (entry.at("kind") == "scan")
      config = std::make_unique<ScanConfig>(scan_of(entry));
    else
      config = std::make_unique<AttentionConfig>(pattern_of(entry));
    out.push_back({entry.value("layers", 1), {}});
    out.back().beside.emplace_back(std::move(config));
  }
  return out;
}

void fill(StackConfig& config, const json& model, const json& data) {
  const bool encoder = model.at("kind") == "encoder";
  config.context = data.at("context");
  config.geometry = {data.value("rows", 0), data.value("columns", 0), data.value("channels", 0)};
  config.layers = model.at("layers");
  config.width = model.at("width");
  config.heads = model.at("heads");
  config.key_ratio = model.value("key_ratio", 1.0);
  config.feed_forward_ratio = model.value("feed_forward_ratio", 4.0);
  config.dropout = model.value("dropout", 0.0);
  config.embedding_dropout = model.value("embedding_dropout", 0.0);
  config.inner_dropout = model.value("inner_dropout", 0.0);
  config.output_dropout = model.value("output_dropout", 0.0);
  config.positions = named<Positions>({{"attention", Positions::attention},
                                       {"data", Positions::data},
                                       {"learned", Positions::learned},
                                       {"none", Positions::none}},
                                      model.value("positions", encoder ? "learned" : "attention"));
  config.rotary_base = model.value("rotary_base", 0.0);
  config.query_key_norm = model.value("query_key_norm", false);
  config.init = named<InitReading>({{"variance", InitReading::variance}, {"deviation", InitReading::deviation}},
                                   model.value("init", "variance"));
  config.init_deviation = model.value("init_deviation", 0.0);
  if (model.contains("init_deviations")) config.init_deviations.embedding = model.at("init_deviations").at("embedding");
  config.norm = named<NormOrder>({{"pre", NormOrder::pre}, {"post", NormOrder::post}}, model.value("norm", "pre"));
  using kernels::Activation;
  config.activation = named<Activation>({{"sigmoid_gelu", Activation::sigmoid_gelu},
                                         {"relu", Activation::relu},
                                         {"gelu", Activation::gelu},
                                         {"geglu", Activation::geglu}},
                                        model.value("activation", "sigmoid_gelu"));
  config.attention_bias = model.value("attention_bias", true);
  config.feed_forward_bias = model.value("feed_forward_bias", true);
  config.tied_output = model.value("tied_output", encoder);
  config.output_bias = model.value("output_bias", encoder);
  config.embedding_scale = model.value("embedding_scale", false);
  if (model.contains("adaptive"))
    config.adaptive = {list_of(model.at("adaptive"), "cutoffs"), model.at("adaptive").value("divide", 1)};
  config.attention_given = model.contains("attention");
  if (config.attention_given) {
    config.attention = pattern_of(model.at("attention"));
    config.attention_heads.key_heads = model.at("attention").value("key_heads", 0);
  }
  config.attention.direction = config.direction;
  if (config.attention_given) {
    config.attention_heads.labels = model.at("attention").value("labels", 0);
    config.attention_heads.sink = model.at("attention").value("sink", "none") == "learned";
  }
  if (model.contains("global")) {
    const json& global = model.at("global");
    config.global = {.first = global.value("first", 0),
                     .own = global.value("projections", "shared") == "own",
                     .added = global.value("added", 0),
                     .of_groups = global.value("of", "row") == "groups",
                     .own_group = global.value("sees", "all") == "own_group"};
  }
  if (model.contains("mixers")) config.mixers = mixers_of(model.at("mixers"));
}

Masked masked_of(const json& objective) {
  const MaskedUnit unit = named<MaskedUnit>({{"byte", MaskedUnit::byte},
                                             {"word", MaskedUnit::word},
                                             {"span", MaskedUnit::span},
                                             {"group", MaskedUnit::group}},
                                            objective.value("unit", "byte"));
  const Masked usual;
  return Masked({.unit = unit,
                 .share = objective.value("share", usual.settings().share),
                 .mask = objective.value("mask", usual.settings().mask),
                 .random = objective.value("random", usual.settings().random),
                 .keep = objective.value("keep", usual.settings().keep),
                 .length = objective.value("length", usual.settings().length)});
}

std::shared_ptr<const StackConfig> config_of(const json& settings) {
  const json &model = settings.at("model"), &data = settings.at("data");
  if (model.at("kind") == "encoder") {
    auto config = std::make_shared<EncoderConfig>();
    fill(*config, model, data);
    config->embedding_norm = model.value("embedding_norm", false);
    if (settings.contains("lengths")) config->documents = {true, false, true};
    config->objective = std::make_shared<Masked>(masked_of(settings.at("objective")));
    return config;
  }
  auto config = std::make_shared<DecoderConfig>();
  fill(*config, model, data);
  if (model.contains("distance")) config->distance = distance_of(model.at("distance"));
  if (model.contains("memory")) config->memory = memory_of(model.at("memory"));
  return config;
}

constexpr int projections = 6;
constexpr std::int64_t whole = 32;  // tensors of at most this many elements are stored whole
constexpr int sample = 12;          // elements sampled from larger tensors; some may be sampled twice

// `values`: offset, scale, norm, sum, the projections and the stored elements (generate.py).
GoldenParameter parameter_of(const std::string& name, const json& shape, const std::vector<double>& values) {
  GoldenParameter parameter;
  parameter.name = name;
  parameter.shape = shape.get<std::vector<std::int64_t>>();
  parameter.offset = values.at(0);
  parameter.scale = values.at(1);
  parameter.norm = values.at(2);
  parameter.sum = values.at(3);
  const auto elements = values.begin() + 4 + projections;
  parameter.projections.assign(values.begin() + 4, elements);
  parameter.values.assign(elements, values.end());
  const std::int64_t count = parameter.count();
  const std::uint64_t sample_hash = hash_of("sample/" + name);
  std::set<std::int64_t> drawn;
  for (int k = 0; count > whole && k < sample; ++k)
    drawn.insert(static_cast<std::int64_t>(word(sample_hash, k) % static_cast<std::uint64_t>(count)));
  parameter.indices.assign(drawn.begin(), drawn.end());
  const std::size_t stored = drawn.empty() ? static_cast<std::size_t>(count) : drawn.size();
  if (parameter.values.size() != stored) throw std::invalid_argument("golden file: elements of " + name);
  return parameter;
}

// A file of golden vectors with the settings of one of its cases.
struct Source {
  Source(const std::string& folder, const std::string& golden_case)
      : file(open(folder)), name(golden_case), settings(json::parse(file.metadata().at(name))) {}

  bool has(const std::string& what) const { return file.find(name + "/" + what) != nullptr; }

  std::vector<double> numbers(const std::string& what) const {
    const TensorEntry* entry = file.find(name + "/" + what);
    if (entry == nullptr) throw std::invalid_argument("golden file: " + name + " has no " + what);
    std::vector<double> values(static_cast<std::size_t>(entry->shape.count()));
    file.read(entry->name, Tensor(values.data(), Dtype::f64, entry->shape));
    return values;
  }

  std::vector<GoldenParameter> parameters(const std::string& kind, const char* shapes = "shapes") const {
    std::vector<GoldenParameter> made;
    for (const auto& [parameter, shape] : settings.at(shapes).items())
      made.push_back(parameter_of(parameter, shape, numbers(kind + "/" + parameter)));
    return made;
  }

  GoldenCase start(const std::string& kind = "parameters") const {
    GoldenCase made;
    made.name = name;
    made.batch = settings.at("batch");
    made.positions = settings.at("positions");
    made.config = config_of(settings);
    for (const json& ends : settings.value("group_ends", json::array())) {
      std::vector<std::int64_t> all = ends;
      all.insert(all.begin(), 0);
      all.push_back(made.positions);
      made.group_ends.push_back(std::move(all));
    }
    made.lengths = settings.value("lengths", std::vector<std::int64_t>{});
    made.parameters = parameters(kind);
    return made;
  }

  SafetensorsReader file;
  std::string name;
  json settings;
};

Optimizer::Config optimizer_of(const json& train) {
  Optimizer::Config config;
  config.lr = train.at("lr");
  config.warmup = train.at("warmup");
  config.steps = train.at("steps");
  config.weight_decay = train.at("weight_decay");
  config.clip = train.at("clip");
  config.ema = train.at("ema");
  const std::map<std::string, OptimizerKind> kinds = {{"adam", OptimizerKind::adam},
                                                      {"muon", OptimizerKind::muon},
                                                      {"adagrad", OptimizerKind::adagrad},
                                                      {"adafactor", OptimizerKind::adafactor}};
  config.kind = kinds.at(train.value("optimizer", "adam"));
  if (train.value("schedule", "cosine") == "reciprocal_sqrt") config.schedule = kernels::ScheduleKind::reciprocal_sqrt;
  config.decay_from = train.value("decay_from", 0);
  config.beta1 = train.value("beta1", config.kind == OptimizerKind::adafactor ? 0.0 : config.beta1);
  config.epsilon = train.value("epsilon", config.epsilon);
  config.tensor_clip = train.value("tensor_clip", config.tensor_clip);
  config.decay_rate = train.value("decay_rate", config.decay_rate);
  config.clip_threshold = train.value("clip_threshold", config.clip_threshold);
  config.scale_parameter = train.value("scale_parameter", config.scale_parameter);
  return config;
}

std::vector<std::uint8_t> tokens_of(const std::string& name, std::int64_t count) {
  const std::uint64_t hash = hash_of(name);
  std::vector<std::uint8_t> made;
  for (std::int64_t i = 0; i < count; ++i) made.push_back(static_cast<std::uint8_t>(word(hash, i) >> 56));
  return made;
}

}  // namespace

std::int64_t GoldenParameter::count() const {
  std::int64_t n = 1;
  for (const std::int64_t size : shape) n *= size;
  return n;
}

std::vector<std::uint8_t> GoldenCase::tokens() const { return tokens_of(name + "/tokens", batch * positions); }

std::vector<std::uint8_t> GoldenTraining::tokens(std::int64_t step) const {
  return tokens_of(start.name + "/tokens/" + std::to_string(step), start.batch * start.positions);
}

std::vector<std::uint8_t> GoldenStreams::targets(std::size_t segment) const {
  const std::int64_t n = start.positions, of_row = n * std::ssize(segments);
  const std::vector<std::uint8_t> all = tokens_of(start.name + "/tokens", start.batch * of_row);
  std::vector<std::uint8_t> made;
  for (std::int64_t row = 0; row < start.batch; ++row) {
    const auto begin = all.begin() + row * of_row + static_cast<std::int64_t>(segment) * n;
    made.insert(made.end(), begin, begin + n);
  }
  return made;
}

// Before a row's first byte this has a byte that is not to be read.
std::vector<std::uint8_t> GoldenStreams::previous(std::size_t segment) const {
  const std::int64_t n = start.positions;
  std::vector<std::uint8_t> made = targets(segment);
  const std::vector<std::uint8_t> before = targets(segment == 0 ? 0 : segment - 1);
  for (auto row = made.begin(); row != made.end(); row += n) {
    std::copy_backward(row, row + n - 1, row + n);
    *row = before[static_cast<std::size_t>(row - made.begin() + n - 1)];
  }
  return made;
}

std::vector<double> GoldenCase::parameter(const GoldenParameter& parameter) const {
  std::vector<double> made = units(name + "/" + parameter.name, parameter.count());
  for (double& x : made) x = parameter.offset + parameter.scale * x;
  return made;
}

std::vector<double> units(const std::string& name, std::int64_t count) {
  const std::uint64_t hash = hash_of(name);
  std::vector<double> made;
  for (std::int64_t i = 0; i < count; ++i) made.push_back(unit_of(word(hash, i)));
  return made;
}

// Every process of these tests asks for the names, even if it runs none of the cases: the settings come first in a
// file, and the thousands of tensors after them are not parsed.
std::vector<std::string> names_in(const std::string& file) {
  const std::string text = read_file(path_of(file)).substr(8), begin = "{\"__metadata__\":", last = "\"}";
  const std::size_t end = text.find(last + ",\"");  // in a text, quotes follow a backslash
  if (text.rfind(begin, 0) != 0 || end == std::string::npos) throw std::invalid_argument("golden file: no settings");
  std::vector<std::string> names;
  const json all = json::parse(text.substr(begin.size(), end + last.size() - begin.size()));
  for (const auto& [name, settings] : all.items()) names.push_back(name);
  return names;
}

GoldenCase load_case(const std::string& name, const std::string& file) {
  const Source source(file, name);
  GoldenCase made = source.start();
  made.loss = source.numbers("loss").at(0);
  made.losses = source.numbers("losses");
  return made;
}

GoldenStreams load_streams(const std::string& name) {
  const Source source("memory", name);
  GoldenStreams made;
  made.start = source.start("segments/0");
  const auto rows = static_cast<std::size_t>(made.start.batch);
  for (std::int64_t s = 0; s < source.settings.at("segments"); ++s) {
    GoldenStreams::Segment segment;
    segment.starts.assign(rows, s == 0 ? 1 : 0);
    for (const json& restart : source.settings.at("restarts"))
      if (restart.at(0) == s) segment.starts.at(restart.at(1)) = 1;
    segment.losses = source.numbers("losses/" + std::to_string(s));
    for (const std::string other : {"span", "reconstruction"}) {
      const std::string of_segment = fmt::format("{}/{}", other, s);
      if (source.has(of_segment)) segment.auxiliary[other] = source.numbers(of_segment).at(0);
    }
    segment.parameters = source.parameters("segments/" + std::to_string(s));
    made.segments.push_back(std::move(segment));
  }
  made.states = source.parameters("states", "states");
  return made;
}

GoldenTraining load_training(const std::string& name) {
  const Source source("training", name);
  const json& train = source.settings.at("train");
  GoldenTraining made;
  made.start = source.start();
  made.optimizer = optimizer_of(train);
  made.seed = train.at("seed");
  made.loss = source.numbers("loss");
  made.lr = source.numbers("lr");
  made.gradient_norm = source.numbers("grad_norm");
  if (made.optimizer.ema > 0) made.average = source.parameters("average");
  return made;
}

GoldenInitial load_initial(const std::string& name) {
  const Source source("initial", name);
  return {source.start(), source.settings.at("seed")};
}

}  // namespace longstride::golden
