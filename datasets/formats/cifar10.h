// CIFAR-10's original binary batches: records of one label byte and 3,072 pixel bytes, in three planes (red, green,
// blue) of 32 rows of 32 columns.
#pragma once
#include <cstdint>
#include <string>

namespace longstride {

struct Cifar10 {
  static constexpr std::int64_t side = 32, channels = 3, pixels = side * side * channels, record = 1 + pixels;
  static constexpr std::int64_t whole_training_set = 50'000, whole_test_set = 10'000;
};

// Records in a batch file of `bytes` bytes. UserError if that is not a whole number of records, or 0.
std::int64_t cifar10_records(std::uint64_t bytes, const std::string& name);

// Writes the pixels of one record interleaved, (row, column, channel), into out[3072] and returns its label. UserError,
// naming the file and the record, if the label is not 0 to 9.
std::uint8_t decode_cifar10(const std::uint8_t* record, std::int64_t index, const std::string& name, std::uint8_t* out);

}  // namespace longstride
