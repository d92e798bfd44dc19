#include "launch/run/same_on_ranks.h"

#include <algorithm>
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

// For a rank that has nothing to say, while another one says why it ends all of them.
[[noreturn]] void wait_to_be_ended(Communicator& comm) {
  comm.barrier();
  throw CommunicationError(
      fmt::format("rank {} ({}): a rank that had to end the others did not", comm.rank(), comm.host()));
}

}  // namespace

Facts facts_of(const Recipe& recipe) {
  Facts facts = settings_by_key(recipe);
  facts.erase("data.path");
  return facts;
}

Facts facts_of(const TrainRequest& request) {
  Facts facts = facts_of(request.recipe);
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
  const auto differs = [&](const auto& fact) { return value_in(mine, fact.first) != value_in(first, fact.first); };
  const auto found = std::find_if(names.begin(), names.end(), differs);
  if (!comm.any(found != names.end())) return;
  if (found == names.end()) wait_to_be_ended(comm);
  const std::string& name = found->first;
  throw user_error("{} is {} on this rank, but {} on rank 0; give all ranks the same command, recipe, options and data",
                   name, printable(value_in(mine, name)), printable(value_in(first, name)));
}

bool mistake_of_this_rank(const std::optional<std::string>& command, Communicator& comm) {
  if (comm.size() == 1) return false;
  const bool some_begin = comm.any(command.has_value()), some_are_mistaken = comm.any(!command.has_value());
  if (!command) return some_begin;
  if (some_are_mistaken) wait_to_be_ended(comm);
  check_same_on_ranks({{"the command", *command}}, comm);
  return false;
}

}  // namespace longstride
