#include "tests/models/golden_case.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace longstride::golden {
namespace {

using nlohmann::json;

std::filesystem::path path_of(const std::string& folder) {
  return std::filesystem::path(LONGSTRIDE_SOURCE_DIR) / "tests" / "golden" / folder;
}

json read(const std::string& folder, const std::string& name) {
  std::ifstream file(path_of(folder) / (name + ".json"));
  return json::parse(file);
}

std::uint64_t word(const std::string& name, std::int64_t i) {
  std::uint64_t z = 0xCBF29CE484222325ull;
  for (const char c : name) z = (z ^ static_cast<std::uint8_t>(c)) * 0x100000001B3ull;
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
                                             {"fixed_summary", PartKind::fixed_summary}},
                                            part));
  pattern.stride = attention.at("stride");
  pattern.window = attention.value("window", 0);
  if (attention.contains("summary")) {
    const json& summary = attention.at("summary");
    pattern.summary = summary.is_array() ? summary.get<std::vector<std::int64_t>>()
                                         : std::vector<std::int64_t>{summary.get<std::int64_t>()};
  }
  pattern.distinct_heads = attention.value("distinct_heads", false);
  pattern.summary_inclusive = attention.value("summary_inclusive", false);
  return pattern;
}

SparseTransformerConfig config_of(const json& model, const json& data) {
  SparseTransformerConfig config;
  config.context = data.at("context");
  config.geometry = {data.value("rows", 0), data.value("columns", 0), data.value("channels", 0)};
  config.layers = model.at("layers");
  config.width = model.at("width");
  config.heads = model.at("heads");
  config.key_ratio = model.value("key_ratio", 1.0);
  config.feed_forward_ratio = model.value("feed_forward_ratio", 4.0);
  config.dropout = model.value("dropout", 0.0);
  config.positions =
      named<Positions>({{"attention", Positions::attention}, {"data", Positions::data}, {"none", Positions::none}},
                       model.value("positions", "attention"));
  config.rotary_base = model.value("rotary_base", 0.0);
  config.query_key_norm = model.value("query_key_norm", false);
  config.init = named<InitReading>({{"variance", InitReading::variance}, {"deviation", InitReading::deviation}},
                                   model.value("init", "variance"));
  config.attention = pattern_of(model.at("attention"));
  return config;
}

GoldenParameter parameter_of(const json& tensor) {
  GoldenParameter parameter;
  parameter.name = tensor.at("name");
  parameter.shape = tensor.at("shape").get<std::vector<std::int64_t>>();
  parameter.offset = tensor.at("offset");
  parameter.scale = tensor.at("scale");
  parameter.norm = tensor.at("norm");
  parameter.sum = tensor.at("sum");
  parameter.projections = tensor.at("projections").get<std::vector<double>>();
  parameter.indices = tensor.at("indices").get<std::vector<std::int64_t>>();
  parameter.values = tensor.at("values").get<std::vector<double>>();
  return parameter;
}

std::vector<GoldenParameter> parameters_of(const json& tensors) {
  std::vector<GoldenParameter> parameters;
  for (const json& tensor : tensors) parameters.push_back(parameter_of(tensor));
  return parameters;
}

GoldenCase case_of(const json& file) {
  GoldenCase made;
  made.name = file.at("case");
  made.batch = file.at("batch");
  made.positions = file.at("positions");
  made.config = config_of(file.at("model"), file.at("data"));
  made.parameters = parameters_of(file.at("parameters"));
  return made;
}

Optimizer::Config optimizer_of(const json& train) {
  Optimizer::Config config;
  config.lr = train.at("lr");
  config.warmup = train.at("warmup");
  config.steps = train.at("steps");
  config.weight_decay = train.at("weight_decay");
  config.clip = train.at("clip");
  config.ema = train.at("ema");
  return config;
}

std::vector<std::uint8_t> tokens_of(const std::string& name, std::int64_t count) {
  std::vector<std::uint8_t> made;
  for (std::int64_t i = 0; i < count; ++i) made.push_back(static_cast<std::uint8_t>(word(name, i) >> 56));
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

double GoldenCase::parameter(const GoldenParameter& parameter, std::int64_t element) const {
  return parameter.offset + parameter.scale * unit_of(word(name + "/" + parameter.name, element));
}

std::vector<double> units(const std::string& name, std::int64_t count) {
  std::vector<double> made;
  for (std::int64_t i = 0; i < count; ++i) made.push_back(unit_of(word(name, i)));
  return made;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_of(folder)))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

GoldenCase load_case(const std::string& name) {
  const json file = read("cases", name);
  GoldenCase made = case_of(file);
  made.loss = file.at("loss");
  made.losses = file.at("losses").get<std::vector<double>>();
  return made;
}

GoldenTraining load_training(const std::string& name) {
  const json file = read("training", name);
  GoldenTraining made;
  made.start = case_of(file);
  made.optimizer = optimizer_of(file.at("train"));
  made.muon = file.at("train").value("optimizer", "adam") == "muon";
  made.seed = file.at("train").at("seed");
  made.loss = file.at("loss").get<std::vector<double>>();
  made.lr = file.at("lr").get<std::vector<double>>();
  made.gradient_norm = file.at("grad_norm").get<std::vector<double>>();
  if (file.contains("average")) made.average = parameters_of(file.at("average"));
  return made;
}

GoldenInitial load_initial(const std::string& name) {
  const json file = read("initial", name);
  return {case_of(file), file.at("seed")};
}

}  // namespace longstride::golden
