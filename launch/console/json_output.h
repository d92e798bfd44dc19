// --json, the same for every command: standard output is one JSON object, or empty if the command fails before it has
// one. Messages and progress are on standard error, as always. docs/guide/looking_at_results.md lists the keys.
#pragma once
#include <CLI/CLI.hpp>

#include <nlohmann/json.hpp>

namespace longstride {

void add_json_option(CLI::App& command, bool& json);

// Bytes of names and texts that are not UTF-8 are replaced.
void print_json(const nlohmann::ordered_json& object);

}  // namespace longstride
