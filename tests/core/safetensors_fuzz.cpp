// Arbitrary bytes as a safetensors file: either all tensors are read, or a UserError is thrown.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "framework/core/errors.h"
#include "framework/core/files/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longstride;
  const int memory = ::memfd_create("fuzz", 0);
  if (memory < 0 || ::write(memory, data, size) != static_cast<ssize_t>(size)) std::abort();
  try {
    const SafetensorsReader reader("/proc/self/fd/" + std::to_string(memory));
    for (const TensorEntry& entry : reader.entries()) {
      std::vector<char> bytes(entry.end - entry.begin);
      const Tensor tensor(bytes.data(), entry.dtype, entry.shape);
      if (tensor.bytes() != bytes.size()) std::abort();
      reader.read(entry.name, tensor);
    }
  } catch (const UserError&) {
  }
  ::close(memory);
  return 0;
}
