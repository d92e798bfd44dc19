#include "launch/console/standard_streams.h"

#include <fcntl.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "framework/core/errors.h"
#include "framework/core/text/printable.h"

namespace longstride {
namespace {

// A log line without the control characters of the names in it.
class PrintableMessage : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& to) override {
    const std::string text = printable_message({message.payload.data(), message.payload.size()});
    to.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::custom_flag_formatter> clone() const override { return std::make_unique<PrintableMessage>(); }
};

}  // namespace

void open_closed_streams() {
  for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    // open() takes the lowest free number, which is this one. Standard output is opened for reading.
    static_cast<void>(::open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY));
  }
}

void log_to_standard_error() {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<PrintableMessage>('*').set_pattern("%*");
  auto logger = spdlog::stderr_logger_mt("longstride");  // the thread that writes checkpoints warns as well
  logger->set_formatter(std::move(formatter));
  logger->set_error_handler([](const std::string&) {});  // a line that cannot be written is lost
  spdlog::set_default_logger(logger);
}

void print_error(const std::string& message) {
  std::fputs(("longstride: " + printable_message(message) + "\n").c_str(), stderr);
  std::fflush(stderr);
}

void check_output_written() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw user_error("standard output cannot be written{}{}", errno != 0 ? ": " : "",
                   errno != 0 ? std::strerror(errno) : "");
}

}  // namespace longstride
