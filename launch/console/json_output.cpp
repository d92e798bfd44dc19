#include "launch/console/json_output.h"

#include <cstdio>

namespace longstride {

void add_json_option(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "print one JSON object instead of text");
}

void print_json(const nlohmann::ordered_json& object) {
  std::puts(object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
}

}  // namespace longstride
