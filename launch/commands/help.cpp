// longstride help COMMAND: what --help prints of it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <memory>

#include "framework/core/errors.h"
#include "framework/core/text/printable.h"
#include "launch/commands/commands.h"

namespace longstride {
namespace {

void print_help(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* at = &app;
  std::string path = app.get_name();
  for (const std::string& word : words) {
    std::vector<std::string> names;
    const CLI::App* next = nullptr;
    for (const CLI::App* command : at->get_subcommands({})) {
      names.push_back(command->get_name());
      if (names.back() == word) next = command;
    }
    if (next == nullptr)
      throw user_error(
          "there is no command '{}'; {}", printable(word),
          names.empty() ? fmt::format("see {} --help", path) : fmt::format("choose from {}", fmt::join(names, ", ")));
    path += " " + word;
    at = next;
  }
  // App::help would show the command that was called, which is this one.
  std::fputs(at->get_formatter()->make_help(at, path, CLI::AppFormatMode::Normal).c_str(), stdout);
}

}  // namespace

void add_help(CLI::App& app, Session& session) {
  auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* help = app.add_subcommand("help", "Show the options of a command, as its --help does");
  help->add_option("command", *words, "such as train, or prepare bytes; default: the list of commands");
  help->callback([words, &app, &session] {
    if (session.comm->rank() == 0) print_help(app, *words);
  });
}

}  // namespace longstride
