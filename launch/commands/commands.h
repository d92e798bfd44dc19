// The `longstride` command: one file per subcommand. Each add_<command> declares its options on `app` and sets a
// callback that runs it; a callback throws UserError for the user's mistakes and returns on success. Long work that is
// stopped by SIGTERM saves and returns.
#pragma once
#include <CLI/CLI.hpp>

#include <memory>

#include "framework/comm/communicator.h"
#include "framework/comm/watchdog/watchdog.h"

namespace longstride {

// Passed to every subcommand. Made by main before parsing, so that all ranks parse the same way.
struct Session {
  Communicator* comm = nullptr;        // rank 0 prints output; each error is printed once, by the rank that has it
  std::unique_ptr<Watchdog> watchdog;  // watches a command whose ranks wait for each other; main reports failures to it
};

void add_prepare(CLI::App& app, Session& session);
void add_info(CLI::App& app, Session& session);
void add_recipe(CLI::App& app, Session& session);
void add_plan(CLI::App& app, Session& session);
void add_train(CLI::App& app, Session& session);
void add_eval(CLI::App& app, Session& session);
void add_sample(CLI::App& app, Session& session);
void add_encode(CLI::App& app, Session& session);
void add_predict(CLI::App& app, Session& session);
void add_show(CLI::App& app, Session& session);
void add_show_batch(CLI::App& show, Session& session);  // called by add_show, as the next
void add_show_spans(CLI::App& show, Session& session);
void add_bench(CLI::App& app, Session& session);
void add_reproduce(CLI::App& app, Session& session);
void add_export(CLI::App& app, Session& session);
void add_attention(CLI::App& app, Session& session);
void add_report(CLI::App& app, Session& session);
void add_doctor(CLI::App& app, Session& session);
void add_help(CLI::App& app, Session& session);

}  // namespace longstride
