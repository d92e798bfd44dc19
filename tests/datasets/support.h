// What the tests of datasets share: a folder that goes away, files in it, and how errors are expected.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "framework/core/errors.h"
#include "kernels/base/philox.h"

namespace longstride {

using Bytes = std::vector<std::uint8_t>;

class Folder {
 public:
  Folder() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("longstride-test-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }
  bool holds_temporaries() const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_))
      if (entry.path().filename().string().starts_with(".tmp-")) return true;
    return false;
  }

 private:
  std::filesystem::path path_;
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

// Bytes that no two places share by accident.
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
    ADD_FAILURE() << "no error, where one with '" << part << "' is due";
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(part), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    EXPECT_GT(text.size(), 25u) << text;
  }
}

// The path of a sample file, empty where shared data is not there.
inline std::string shared_file(const std::string& name) {
  const std::string path = std::string(LONGSTRIDE_SHARED_DATA) + "/" + name;
  return std::filesystem::exists(path) ? path : "";
}

}  // namespace longstride
