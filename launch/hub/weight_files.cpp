#include "launch/hub/weight_files.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "framework/core/device/memory.h"
#include "framework/core/errors.h"
#include "framework/core/exact_conversion.h"
#include "framework/core/files/inside.h"
#include "framework/core/text/json.h"
#include "framework/core/text/printable.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

// Weights in formats that are not read. A pickle begins with its protocol, a safetensors file with a length, whose
// third byte is then 0.
void refuse_other_formats(const std::string& path, const std::string& shown) {
  const std::string head = read_beginning(path, 256);
  const auto is = [&](const std::string& beginning) { return head.starts_with(beginning); };
  const bool zip = is("PK\x03\x04"),
             pickle = head.size() > 2 && is("\x80") && head[1] >= 2 && head[1] <= 5 && head[2] != 0;
  if (pickle || (zip && head.find("data.pkl") != std::string::npos))
    throw user_error(
        "{}: is a PyTorch checkpoint, a pickle, which may run any program when it is read; write its tensors with "
        "safetensors.torch.save_file(torch.load(\"{}\", weights_only=True), \"weights.safetensors\") and give that "
        "file",
        shown, printable(path));
  const char* const what = zip             ? "a ZIP archive"
                           : is("\x89HDF") ? "an HDF5 file"
                           : is("GGUF")    ? "a GGUF file"
                                           : nullptr;
  if (what != nullptr)
    throw user_error(
        "{}: is {}, but weights are read from safetensors files; convert it, or give the directory of a run", shown,
        what);
}

// transformers divides a large model between files and lists them in an index. The cache of downloads has links to all
// of them, and these are followed.
std::vector<std::string> files_in_index(const std::string& folder, const std::string& index) {
  const nlohmann::json content = parse_json(read_at_most(index));
  const bool maps = content.is_object() && content.contains("weight_map") && content.at("weight_map").is_object();
  const nlohmann::json map = maps ? content.at("weight_map") : nlohmann::json::object();
  std::set<std::string> names;
  for (const nlohmann::json& file : map) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos) return {};
    names.insert(folder + "/" + name);
  }
  return {names.begin(), names.end()};
}

}  // namespace

bool is_pretrained(const std::string& folder) {
  std::error_code none;
  return fs::is_regular_file(folder + "/config.json", none) && !fs::is_directory(folder + "/checkpoints", none);
}

std::vector<std::string> weight_files(const std::string& path, const std::string& shown) {
  std::error_code none;
  if (fs::is_regular_file(path, none)) return {path};
  if (!is_pretrained(path)) return {};
  const std::string whole = path + "/model.safetensors", index = whole + ".index.json";
  const nlohmann::json settings = parse_json(read_at_most(path + "/config.json"));
  const nlohmann::json type = settings.is_object() ? settings.value("model_type", nlohmann::json()) : nlohmann::json();
  if (type == "longformer" || type == "big_bird")
    throw user_error(
        "{}: is a model of transformers; make a file of its weights with longstride.from_transformers, in Python",
        shown);
  if (type != "longstride")
    throw user_error("{}: its config.json is not of a model that Longstride wrote (save_pretrained)", shown);
  if (fs::exists(whole, none) || !fs::exists(index, none)) return {whole};
  const std::vector<std::string> files = files_in_index(path, index);
  if (files.empty())
    throw user_error("{}: must be JSON whose 'weight_map' names a file of this folder for every tensor",
                     printable(index));
  return files;
}

const Parameter* find_parameter(const ParameterSet& parameters, const std::string& name) {
  const auto& all = parameters.all();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Parameter& p) { return p.name == name; });
  return found == all.end() ? nullptr : &*found;
}

WeightFiles::WeightFiles(const std::vector<std::string>& paths, const ParameterSet& parameters,
                         const std::string& shown) {
  constexpr std::string_view prefix = "model.";
  for (const std::string& path : paths) {
    refuse_other_formats(path, shown);
    const SafetensorsReader& file = files_.emplace_back(path);
    for (const TensorEntry& entry : file.entries()) {
      const bool prefixed = entry.name.starts_with(prefix) && find_parameter(parameters, entry.name) == nullptr;
      const std::string name = prefixed ? entry.name.substr(prefix.size()) : entry.name;
      if (!tensors_.emplace(name, std::pair(&file, &entry)).second)
        throw user_error("{}: holds tensor '{}', which occurs twice", printable(path), printable_beginning(name));
    }
  }
}

const WeightFiles::InFile* WeightFiles::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::vector<float> WeightFiles::values(const InFile& from) {
  const auto& [file, entry] = from;
  std::vector<float> out(static_cast<std::size_t>(entry->shape.count()));
  const Tensor as_f32(out.data(), Dtype::f32, entry->shape);
  const bool other = entry->dtype == Dtype::f64 || entry->dtype == Dtype::bf16 || entry->dtype == Dtype::f16;
  if (!other) {
    file->read(entry->name, as_f32);
    return out;
  }
  const Block memory(Device::cpu, Tensor(nullptr, entry->dtype, entry->shape).bytes());
  const Tensor stored(memory.data(), entry->dtype, entry->shape);
  file->read(entry->name, stored);
  if (entry->dtype == Dtype::f64)
    std::transform(stored.as<const double>(), stored.as<const double>() + stored.count(), out.begin(),
                   [](double value) { return static_cast<float>(value); });
  else
    convert_exactly(stored, as_f32);
  return out;
}

void refuse_infinite(const ParameterSet& parameters, const std::string& shown, const std::string& consequence) {
  for (const Parameter& p : parameters.all()) {
    const auto* values = p.master.as<const float>();
    if (!std::all_of(values, values + p.shape.count(), [](float value) { return std::isfinite(value); }))
      throw user_error("{}: weights of {} are not finite, so {}", shown, p.name, consequence);
  }
}

}  // namespace longstride
