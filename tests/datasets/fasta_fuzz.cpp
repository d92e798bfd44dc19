// Any bytes as a FASTA file: an error, or records of the letters that are taken, the same in pieces as in one.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "datasets/prepare/documents/fasta.h"
#include "framework/core/errors.h"

namespace {

std::string records_in(const std::uint8_t* data, std::size_t size, std::size_t piece, const std::string& other) {
  std::string out;
  longstride::FastaReader reader("ACGTN", other,
                                 {[&](const std::string& name) { out += '\n' + std::to_string(name.size()) + ' '; },
                                  [&](const std::uint8_t* letters, std::int64_t count) {
                                    for (std::int64_t i = 0; i < count; ++i)
                                      if (std::string("ACGTN").find(static_cast<char>(letters[i])) == std::string::npos)
                                        std::abort();
                                    out.append(letters, letters + count);
                                  }});
  reader.begin_file("fuzz");
  try {
    for (std::size_t at = 0; at < size; at += piece)
      reader.read(data + at, static_cast<std::int64_t>(std::min(piece, size - at)));
    reader.end_file();
  } catch (const longstride::UserError& error) {
    return error.what();
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const char* other : {"", "N"})
    if (size > 0 && records_in(data, size, size, other) != records_in(data, size, 1 + data[0] % 5, other)) std::abort();
  return 0;
}
