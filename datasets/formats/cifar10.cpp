#include "datasets/formats/cifar10.h"

#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {

std::int64_t cifar10_records(std::uint64_t bytes, const std::string& name) {
  const auto size = static_cast<std::int64_t>(bytes);
  if (size == 0) throw user_error("{}: is empty, but a CIFAR-10 batch has records of 3,073 bytes", name);
  if (size % Cifar10::record != 0)
    throw user_error("{}: has {} bytes, but must have a multiple of 3,073, the size of a record; {}", name,
                     thousands(size),
                     size % (Cifar10::record + 1) == 0 ? "its size is that of CIFAR-100, but CIFAR-10 is needed"
                                                       : "it is cut short or not a batch of CIFAR-10's binary version");
  return size / Cifar10::record;
}

std::uint8_t decode_cifar10(const std::uint8_t* record, std::int64_t index, const std::string& name,
                            std::uint8_t* out) {
  if (record[0] > 9)
    throw user_error(
        "{}: record {} has the label {}, but CIFAR-10 has classes 0 to 9; this is not a batch of its binary version",
        name, thousands(index), record[0]);
  constexpr std::int64_t plane = Cifar10::side * Cifar10::side;
  for (std::int64_t pixel = 0; pixel < plane; ++pixel)
    for (std::int64_t channel = 0; channel < Cifar10::channels; ++channel)
      out[pixel * Cifar10::channels + channel] = record[1 + channel * plane + pixel];
  return record[0];
}

}  // namespace longstride
