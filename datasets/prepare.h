// `longstride prepare`: from raw data to a dataset file. One function a kind, each with its plain Config. All of them
// stream (nothing holds a whole dataset), write atomically, and throw UserError for anything wrong with the input, in
// which case nothing is left behind.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace longstride {

// Called often with bytes of input done and in all; what it throws ends the work and leaves nothing behind.
using PrepareProgress = std::function<void(std::int64_t done, std::int64_t total)>;

struct PrepareOutput {
  std::string path;      // dataset file to write
  bool replace = false;  // a file of that name may be replaced
  PrepareProgress progress;
};

struct PrepareBytesConfig {
  std::string input;
  std::string split = "0.9,0.05,0.05";  // counts, fractions or "enwik8", in the file's order
};
void prepare_bytes(const PrepareBytesConfig& config, const PrepareOutput& output);

}  // namespace longstride
