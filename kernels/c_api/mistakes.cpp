#include "kernels/c_api/mistakes.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "kernels/base/check.h"

namespace longstride::kernels::c_api {
namespace {

// Long enough for every sentence; kept without allocating, because memory may be what is lacking.
thread_local std::array<char, 512> sentence{};

longstride_status keep(longstride_status status, std::string_view text) noexcept {
  const std::size_t size = std::min(text.size(), sentence.size() - 1);
  std::memcpy(sentence.data(), text.data(), size);
  sentence[size] = '\0';
  return status;
}

}  // namespace

std::string shown(std::string_view name) {
  constexpr std::size_t most = 64;
  std::size_t size = std::min(name.size(), most);
  const auto continues = [&] { return size < name.size() && (static_cast<unsigned char>(name[size]) & 0xC0) == 0x80; };
  while (size > 0 && continues()) --size;
  std::string out(name.substr(0, size));
  std::replace_if(
      out.begin(), out.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, '?');
  return size < name.size() ? out + "..." : out;
}

const char* last_error() noexcept { return sentence.data(); }

longstride_status status_of_exception() noexcept {
  try {
    throw;
  } catch (const Mistake& mistake) {
    return keep(LONGSTRIDE_INVALID, mistake.what());
  } catch (const Unsupported& unsupported) {
    return keep(LONGSTRIDE_UNSUPPORTED, unsupported.what());
  } catch (const std::bad_alloc&) {
    return keep(LONGSTRIDE_OUT_OF_MEMORY, "the host has too little memory for this call");
  } catch (const std::logic_error& error) {
    return keep(LONGSTRIDE_INTERNAL_ERROR, error.what());
  } catch (const std::runtime_error& error) {
    return keep(LONGSTRIDE_DEVICE_FAILED, error.what());
  } catch (...) {
    return keep(LONGSTRIDE_INTERNAL_ERROR, "an unknown exception");
  }
}

}  // namespace longstride::kernels::c_api
