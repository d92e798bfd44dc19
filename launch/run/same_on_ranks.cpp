#include "launch/run/same_on_ranks.h"

#include <nlohmann/json.hpp>

#include "framework/core/errors.h"
#include "framework/core/text/printable.h"
#include "launch/run/run_data.h"
#include "launch/run/run_directory.h"

namespace longstride {
namespace {

std::string value_in(const Facts& facts, const std::string& name) {
  const auto found = facts.find(name);
  return found == facts.end() || found->second.empty() ? not_set : found->second;
}

}  // namespace

Facts facts_of(const TrainRequest& request) {
  Facts facts = settings_by_key(request.recipe);
  facts.erase("data.path");
  facts["--run"] = request.run;
  facts["--from"] = request.from ? request.from->run : "";
  facts["--resume"] = request.accept_changes ? "--resume-changed" : request.resume ? "given" : "";
  return facts;
}

Facts facts_of(const Dataset& dataset) {
  Facts facts;
  for (const char* split : split_names) {
    facts[fmt::format("the sha256 of '{}'", split)] = short_checksum(dataset.stored_sha256(split));
    facts[fmt::format("the number of bytes in '{}'", split)] = std::to_string(dataset.size(split).bytes);
  }
  return facts;
}

void check_same_on_ranks(const Facts& facts, Communicator& comm) {
  if (comm.size() == 1) return;
  const auto replace = nlohmann::json::error_handler_t::replace;  // a path need not be UTF-8
  const auto mine = nlohmann::json::parse(nlohmann::json(facts).dump(-1, ' ', false, replace)).get<Facts>();
  const auto first =
      nlohmann::json::parse(comm.broadcast_text(nlohmann::json(facts).dump(-1, ' ', false, replace), 0)).get<Facts>();
  Facts names = mine;
  names.insert(first.begin(), first.end());
  for (const auto& [name, any] : names)
    if (const std::string here = value_in(mine, name), there = value_in(first, name); here != there)
      throw user_error("{} is {} on this rank, but {} on rank 0; give all ranks the same recipe, options and data",
                       name, printable(here), printable(there));
}

}  // namespace longstride
