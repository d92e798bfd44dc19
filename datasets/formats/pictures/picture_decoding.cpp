#include "datasets/formats/pictures/picture_decoding.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <future>
#include <thread>

#include "datasets/formats/pictures/picture.h"
#include "datasets/prepare/refusals.h"
#include "framework/core/device/host_limits.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

constexpr std::size_t most_threads = 8;
constexpr std::size_t most_bytes_waiting = std::size_t{64} << 20;  // files, and the pictures made from them

std::size_t cores() { return std::min(static_cast<std::size_t>(usable_processors()), most_threads); }

}  // namespace

PictureDecoding::PictureDecoding(const PictureRules& rules, const Sink& sink, std::size_t threads)
    : rules_(rules), sink_(sink), threads_(threads == 0 ? cores() : threads) {
  const auto bytes = static_cast<std::size_t>(rules.side * rules.side * 3);
  // Many for each thread, because starting it takes as long as decoding a small picture.
  most_waiting_ = std::clamp(most_bytes_waiting / bytes, threads_, 64 * threads_);
}

void PictureDecoding::give(Bytes file, const std::string& name) {
  bytes_waiting_ += file.size();
  waiting_.push_back({std::move(file), name, {}, {}});
  if (waiting_.size() >= most_waiting_ || bytes_waiting_ >= most_bytes_waiting) pass_on();
}

void PictureDecoding::refuse(const std::string& why) { waiting_.push_back({{}, {}, {}, why}); }

void PictureDecoding::finish(const std::string& where) {
  pass_on();
  if (!rules_.note) return;
  if (turned_ > 0) rules_.note(fmt::format("{}: turned {} as EXIF says", where, counted(turned_, "picture")));
  if (rounded_ > 0)
    rules_.note(fmt::format("{}: rounded {} from 16 to 8 bits per channel", where, counted(rounded_, "picture")));
  if (cmyk_ > 0)
    rules_.note(fmt::format("{}: converted {} from CMYK, without a colour profile", where, counted(cmyk_, "picture")));
}

void PictureDecoding::decode(Waiting& picture) const {
  if (!picture.refused.empty()) return;
  try {
    Picture decoded = decode_picture(picture.file.data(), picture.file.size(), picture.name);
    picture.turned = decoded.orientation != 1;
    picture.rounded = decoded.rounded;
    picture.cmyk = decoded.cmyk;
    picture.pixels = fit_picture(std::move(decoded), rules_, picture.name);
  } catch (const UserError& error) {
    picture.refused = error.what();
  }
  picture.file = {};
}

// Threads take pictures in order, and take no more after a failure of the program.
void PictureDecoding::decode_all() {
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> failed = false;
  std::vector<std::exception_ptr> failures(waiting_.size());
  const auto work = [&] {
    while (!failed) {
      const std::size_t i = next++;
      if (i >= waiting_.size()) return;
      try {
        decode(waiting_[i]);
      } catch (...) {
        failures[i] = std::current_exception();
        failed = true;
      }
    }
  };
  {
    std::vector<std::future<void>> others;  // each waits for its end when it is destroyed
    while (others.size() + 1 < std::min(waiting_.size(), threads_))
      others.push_back(std::async(std::launch::async, work));
    work();
  }
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

void PictureDecoding::pass_on() {
  decode_all();
  for (const Waiting& picture : waiting_) {
    if (!picture.refused.empty()) {
      if (rules_.refusals == nullptr) throw UserError(picture.refused);
      rules_.refusals->add(picture.refused);
      sink_(nullptr);
      continue;
    }
    turned_ += picture.turned ? 1 : 0;
    rounded_ += picture.rounded ? 1 : 0;
    cmyk_ += picture.cmyk ? 1 : 0;
    sink_(picture.pixels.data());
  }
  waiting_.clear();
  bytes_waiting_ = 0;
}

}  // namespace longstride
