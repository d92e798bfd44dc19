#include "framework/train/checkpoint/checkpoint_state.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "framework/core/errors.h"
#include "framework/core/files/sha256.h"
#include "framework/core/text/json.h"

namespace longstride {
namespace {

using nlohmann::json;

constexpr const char* format_name = "longstride checkpoint";

json optional_number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? json(*value) : json(nullptr);
}

// A name from outside may not be valid UTF-8; that must not make a checkpoint fail.
std::string printed(const json& object, int indent) {
  return object.dump(indent, ' ', false, json::error_handler_t::replace);
}

std::string checksum_of(json object) {
  object.erase("checksum");
  const std::string text = printed(object, -1);
  Sha256 sha;
  sha.update(text.data(), text.size());
  return sha.hex();
}

// Reads keys one by one, and says which one is wrong.
class Keys {
 public:
  Keys(const json& object, const std::string& path) : object_(object), path_(path) {}

  std::int64_t integer(const char* key, std::int64_t least) const {
    const json& value = at(key);
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) ||
        value.get<std::int64_t>() < least)
      fail(key, fmt::format("a whole number of at least {}", least));
    return value.get<std::int64_t>();
  }
  // For a key that older checkpoints do not have.
  std::int64_t integer_or(const char* key, std::int64_t otherwise) const {
    return object_.contains(key) ? integer(key, 0) : otherwise;
  }
  std::uint64_t unsigned_integer(const char* key) const {
    if (!at(key).is_number_unsigned()) fail(key, "a whole number");
    return at(key).get<std::uint64_t>();
  }
  std::string text(const char* key) const {
    if (!at(key).is_string()) fail(key, "text");
    return at(key).get<std::string>();
  }
  std::optional<double> number_or_null(const char* key) const {
    if (at(key).is_null()) return std::nullopt;
    if (!at(key).is_number()) fail(key, "a number or null");
    return at(key).get<double>();
  }
  // Names and values; empty when the key is missing, as in older checkpoints.
  DataRecord texts_or_none(const char* key) const {
    DataRecord texts;
    if (!object_.contains(key)) return texts;
    for (const auto& [name, value] : object(key).items()) {
      if (!value.is_string()) fail(key, "an object whose values are text");
      texts[name] = value.get<std::string>();
    }
    return texts;
  }
  const json& object(const char* key) const {
    if (!at(key).is_object()) fail(key, "an object");
    return at(key);
  }

 private:
  const json& at(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) throw user_error("{}: has no '{}'", path_, key);
    return *found;
  }
  [[noreturn]] void fail(const char* key, const std::string& wanted) const {
    throw user_error("{}: '{}' must be {}", path_, key, wanted);
  }

  const json& object_;
  const std::string& path_;
};

json parse_object(const std::string& text, const std::string& path) {
  json object = parse_json(text);
  if (!object.is_object()) throw user_error("{}: is not a JSON object", path);
  if (object.value("format", json()) != format_name) throw user_error("{}: is not the state of a checkpoint", path);
  if (object.value("checksum", json()) != checksum_of(object))
    throw user_error("{}: its content does not match its checksum", path);
  return object;
}

}  // namespace

std::string manifest_text(const CheckpointManifest& manifest) {
  const CheckpointState& s = manifest.state;
  json object = {{"format", format_name},
                 {"version", manifest.version},
                 {"step", s.step},
                 {"seed", s.seed},
                 {"tokens_seen", s.tokens_seen},
                 {"global_batch", s.global_batch},
                 {"world_size", s.world_size},
                 {"loss_scale", optional_number(s.loss_scale)},
                 {"good_steps", s.good_steps},
                 {"loss", optional_number(s.loss)},
                 {"recipe", s.recipe},
                 {"data", s.data},
                 {"files", json::object()}};
  if (s.valid_loss) object["valid_loss"] = optional_number(s.valid_loss), object["valid_bytes"] = s.valid_bytes;
  if (s.skipped > 0) object["skipped"] = s.skipped;
  if (s.steps_of_stream > 0) object["steps_of_stream"] = s.steps_of_stream;
  if (!s.began_from.empty()) object["began_from"] = s.began_from;
  if (!s.run_id.empty()) object["run_id"] = s.run_id;
  for (const auto& [name, digest] : manifest.files)
    object["files"][name] = {{"bytes", digest.bytes}, {"sha256", digest.sha256}};
  object["checksum"] = checksum_of(object);
  return printed(object, 2) + "\n";
}

CheckpointManifest parse_manifest(const std::string& text, const std::string& path) {
  const json object = parse_object(text, path);
  const Keys keys(object, path);
  CheckpointManifest manifest;
  manifest.version = keys.integer("version", 1);
  if (manifest.version > checkpoint_version) return manifest;
  CheckpointState& s = manifest.state;
  s.step = keys.integer("step", 0);
  s.seed = keys.unsigned_integer("seed");
  s.tokens_seen = keys.integer("tokens_seen", 0);
  s.global_batch = keys.integer("global_batch", 1);
  s.world_size = static_cast<int>(std::min<std::int64_t>(keys.integer("world_size", 1), INT32_MAX));
  s.loss_scale = keys.number_or_null("loss_scale");
  s.good_steps = keys.integer_or("good_steps", 0);
  s.skipped = std::min(keys.integer_or("skipped", 0), s.step);
  s.loss = keys.number_or_null("loss");
  s.recipe = keys.text("recipe");
  s.data = keys.texts_or_none("data");
  if (object.contains("valid_loss")) s.valid_loss = keys.number_or_null("valid_loss");
  s.valid_bytes = keys.integer_or("valid_bytes", 0);
  s.steps_of_stream = keys.integer_or("steps_of_stream", 0);
  if (object.contains("began_from")) s.began_from = keys.text("began_from");
  if (object.contains("run_id")) s.run_id = keys.text("run_id");
  for (const auto& [name, digest] : keys.object("files").items()) {
    if (name.empty() || name.find('/') != std::string::npos || name.front() == '.' || !digest.is_object())
      throw user_error("{}: 'files' must map names in this directory to their size and checksum", path);
    const Keys values(digest, path);
    manifest.files[name] = {values.unsigned_integer("bytes"), values.text("sha256")};
  }
  return manifest;
}

}  // namespace longstride
