// Helpers of the tests of datasets: a temporary folder, files in it, and the errors that are expected.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "datasets/prepare/prepare.h"
#include "framework/core/errors.h"
#include "kernels/base/philox.h"
#include "tests/support/temporary_directory.h"

namespace longstride {

using Bytes = std::vector<std::uint8_t>;

class Folder : public testing::TemporaryDirectory {
 public:
  bool holds_temporaries() const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path()))
      if (entry.path().filename().string().starts_with(".tmp-")) return true;
    return false;
  }
};

inline void put_file(const std::string& path, const Bytes& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

inline Bytes get_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(in), {});
}

// The first `sixteenths` of a file.
inline Bytes cut_short(const Bytes& whole, std::size_t sixteenths) {
  return Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(whole.size() * sixteenths / 16));
}

inline PrepareOutput to(const std::string& path, bool replace = false) {
  PrepareOutput output;
  output.path = path;
  output.replace = replace;
  return output;
}

// Bytes in which no longer run occurs twice by accident.
inline Bytes random_bytes(std::size_t count, std::uint64_t seed) {
  Bytes out(count);
  const auto domain = kernels::domain_of(kernels::Purpose::test, 0);
  for (std::size_t i = 0; i < count; ++i)
    out[i] = static_cast<std::uint8_t>(kernels::philox(seed, i, 0, domain).word[0]);
  return out;
}

inline Bytes whole_split(const Dataset& dataset, const std::string& name) {
  Bytes out;
  dataset.scan(name, [&](const std::uint8_t* bytes, std::int64_t n) { out.insert(out.end(), bytes, bytes + n); });
  return out;
}

// The call throws UserError: one line that contains `part`.
inline void expect_user_error(const std::function<void()>& call, const std::string& part) {
  try {
    call();
    ADD_FAILURE() << "no error, but one with '" << part << "' was expected";
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(part), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    EXPECT_GT(text.size(), 25u) << text;
  }
}

// The path of a sample file, empty if there is no shared data.
inline std::string shared_file(const std::string& name) {
  const std::string path = std::string(LONGSTRIDE_SHARED_DATA) + "/" + name;
  return std::filesystem::exists(path) ? path : "";
}

}  // namespace longstride
