// longstride help COMMAND: what --help prints of it; or the keys of a recipe.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <map>
#include <memory>

#include "framework/core/errors.h"
#include "framework/core/text/printable.h"
#include "launch/commands/commands.h"
#include "launch/recipe/recipe_writer.h"
#include "launch/run/run_directory.h"

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

// Every key that --set takes, with its value where the recipe has one.
void print_keys(const std::string& path) {
  Recipe recipe = read_recipe(path);
  const std::map<std::string, std::string> values = settings_by_key(recipe);
  RecipeWriter writer;
  visit_recipe(writer, recipe);
  for (const std::string& key : writer.keys()) {
    const auto value = values.find(key);
    fmt::print("{}={}\n", key, value == values.end() ? "" : printable(value->second));
  }
}

}  // namespace

void add_help(CLI::App& app, Session& session) {
  auto words = std::make_shared<std::vector<std::string>>();
  auto recipe = std::make_shared<std::string>();
  CLI::App* help = app.add_subcommand("help", "Show the options of a command, as its --help does");
  help->add_option("command", *words, "such as train, or prepare bytes; default: the list of commands");
  help->add_option("--keys", *recipe, "instead, list the keys of this recipe that --set takes, with their values");
  help->callback([words, recipe, &app, &session] {
    if (session.comm->rank() != 0) return;
    if (!recipe->empty() && !words->empty())
      throw user_error("--keys lists the keys of a recipe and {} is a command; leave one of them out",
                       printable(words->front()));
    recipe->empty() ? print_help(app, *words) : print_keys(*recipe);
  });
}

}  // namespace longstride
