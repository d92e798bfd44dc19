// The forms of command-line arguments, and explanations of mistakes in them, beyond what CLI11 does by itself.
#pragma once
#include <CLI/CLI.hpp>

#include <map>
#include <set>
#include <string>

namespace longstride {

// For numbers: CLI11's own validators print the largest double when they refuse.
CLI::Validator above_zero();
CLI::Validator not_below_zero();

// Makes every option of every command refuse values that no option can mean: empty text, a number that is not finite,
// and a whole number that does not fit 64 bits, for which CLI11 would take the nearest that does. Whole numbers may be
// written as in recipes: 1e6. Call it after all commands and options are added.
void refuse_impossible_values(CLI::App& app);

// "prepare bytes": what app.parse() has found; "longstride" itself without a command.
std::string command_of(const CLI::App& app);
// The options of a command that were given, as "--split", and their values. `except`: those that are left out.
std::map<std::string, std::string> given_options(const CLI::App& command, const std::set<std::string>& except);

// One sentence on why the arguments could not be parsed: what was not understood, what may have been meant, and which
// --help to read. `app` is the whole command, after its parse() has thrown `error`.
std::string explain(const CLI::App& app, const CLI::ParseError& error);

}  // namespace longstride
