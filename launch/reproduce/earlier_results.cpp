#include "launch/reproduce/earlier_results.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "framework/core/errors.h"
#include "framework/core/files/files.h"

namespace longstride {
namespace {

using Json = nlohmann::ordered_json;

std::optional<double> figure(const Json& row, const char* key) {
  return row.at(key).is_null() ? std::nullopt : std::optional(row.at(key).get<double>());
}

EarlierResult result_of(const Json& row) {
  EarlierResult out;
  Measured& m = out.measured;
  m.evidence = evidence_of(row.at("evidence").get<std::string>());
  m.note = row.at("note").get<std::string>();
  m.data = row.at("data").get<std::string>();
  m.device = row.at("device").get<std::string>();
  m.precision = row.at("precision").get<std::string>();
  m.bits_per_byte = figure(row, "bits_per_byte");
  m.split = row.at("split").get<std::string>();
  m.scored = row.at("scored_bytes").get<std::int64_t>();
  m.seconds_per_step = figure(row, "seconds_per_iteration");
  m.step_tokens = row.value("tokens_per_iteration", std::int64_t{0});  // earlier versions did not write it
  m.parameters = row.at("parameters").get<std::int64_t>();
  m.steps = row.at("steps").get<std::int64_t>();
  m.tokens = row.at("tokens").get<std::int64_t>();
  m.published_tokens = row.at("published_tokens").get<std::int64_t>();
  m.device_hours = row.at("device_hours").get<double>();
  m.ranks = row.at("ranks").get<int>();
  out.min_context = row.at("min_context").get<std::int64_t>();
  return out;
}

}  // namespace

std::map<std::string, EarlierResult> earlier_results(const std::string& path, const PaperTable& table) try {
  std::map<std::string, EarlierResult> out;
  std::error_code absent;
  if (!std::filesystem::exists(path, absent)) return out;
  const Json file = Json::parse(read_file(path)), own = json({table.number, table.scale, {}});
  if (file.at("table") != own.at("table") || file.at("scale") != own.at("scale")) return out;
  for (const Json& row : file.at("rows")) out[row.at("row").get<std::string>()] = result_of(row);
  return out;
} catch (const Json::exception&) {
  throw user_error("{}: holds no results of `longstride reproduce` to keep; move it away", path);
}

PaperTable with_earlier_results(const PaperTable& table, const std::map<std::string, EarlierResult>& earlier,
                                const std::vector<PaperRow>& all) {
  PaperTable out{table.number, table.scale, {}};
  for (const PaperRow& paper : all) {
    const auto labelled = [&](const TableRow& row) { return row.paper.label == paper.label; };
    const auto own = std::find_if(table.rows.begin(), table.rows.end(), labelled);
    const auto kept = earlier.find(paper.label);
    if (own != table.rows.end()) {
      out.rows.push_back(*own);
    } else if (kept != earlier.end()) {
      TableRow& row = out.rows.emplace_back(TableRow{paper, kept->second.measured});
      row.paper.min_context = kept->second.min_context;
    }
  }
  return out;
}

}  // namespace longstride
