// The beginning of samples from a file: text as it is, sound and pictures decoded as `prepare` does.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "launch/run/write_samples.h"

namespace longstride {

struct Prompt {
  std::vector<std::uint8_t> bytes;
  bool picture = false;  // a whole one
};

// path: "-" is standard input. form: what the model was trained on; its rate is that of the training data. At most one
// byte more than `most` is read, and of a picture all. UserError if the file cannot be read, is empty, or is something
// else than the model was trained on. Bytes that are in no known format are taken as they are.
Prompt read_prompt(const std::string& path, const SampleForm& form, std::int64_t most);

}  // namespace longstride
