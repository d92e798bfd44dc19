#include "datasets/prepare/standard_input.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <vector>

#include "framework/core/errors.h"
#include "framework/core/files/files.h"

namespace longstride {
namespace {

class KeptInput final : public Blob {
 public:
  KeptInput(const std::string& output, const std::function<void(std::int64_t)>& progress)
      : kept_(output + ".standard-input") {
    std::vector<std::uint8_t> buffer(std::size_t{1} << 20);
    for (std::int64_t sum = 0;;) {
      progress(sum);
      pollfd waiting = {STDIN_FILENO, POLLIN, 0};
      constexpr int milliseconds = 200;  // after which a signal to stop is noticed
      const int ready = ::poll(&waiting, 1, milliseconds);
      if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
      const ssize_t got = ::read(STDIN_FILENO, buffer.data(), buffer.size());
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got < 0) throw file_error(name_, "read", errno);
      if (got == 0) break;
      kept_.write(buffer.data(), static_cast<std::size_t>(got));
      sum += got;
    }
    file_.emplace(kept_.temporary_path());
  }
  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return file_->size(); }
  void read(std::uint64_t offset, void* out, std::size_t count) const override { file_->read(offset, out, count); }

 private:
  std::string name_ = "standard input";
  AtomicFile kept_;  // never committed
  std::optional<InputFile> file_;
};

}  // namespace

std::unique_ptr<Blob> read_standard_input(const std::string& output,
                                          const std::function<void(std::int64_t)>& progress) {
  if (::isatty(STDIN_FILENO) != 0)
    throw user_error("standard input: is a terminal, from which --input - does not read; send a file or a pipe to it");
  return std::make_unique<KeptInput>(output, progress);
}

}  // namespace longstride
