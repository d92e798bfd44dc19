#include "launch/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "launch/settings_tree.h"

namespace longstride {
namespace {

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string meant(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string near = nearest(word, candidates);
  return near.empty() ? "" : ", did you mean '" + near + "'?";
}

// CLI11's own words may run over several lines.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

std::string cause(const CLI::App& app, const CLI::App& at, const CLI::ParseError& error) {
  const std::vector<std::string> commands = commands_of(at), left = app.remaining(true);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !left.empty()) {
    const std::string option = left.front().substr(0, left.front().find('='));
    if (option.starts_with("-")) return fmt::format("there is no option '{}'{}", option, meant(option, options_of(at)));
    if (!commands.empty()) return fmt::format("there is no command '{}'{}", option, meant(option, commands));
    return fmt::format("'{}' is one argument too many", left.front());
  }
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && !commands.empty())
    return fmt::format("{} needs a command: {}", at.get_name(), fmt::join(commands, " or "));
  return one_line(error.what());
}

CLI::Validator bounded(const std::string& what, bool (*allowed)(double)) {
  return CLI::Validator(
      [=](std::string& text) {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        return end != text.c_str() && *end == '\0' && allowed(value) ? "" : text + " is no number " + what;
      },
      what);
}

}  // namespace

CLI::Validator above_zero() {
  return bounded("above 0", [](double value) { return value > 0; });
}
CLI::Validator not_below_zero() {
  return bounded("from 0", [](double value) { return value >= 0; });
}

std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* at = &app;
  std::string command = app.get_name();
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    command += " " + at->get_name();
  }
  return fmt::format("{}; see {} --help", cause(app, *at, error), command);
}

}  // namespace longstride
