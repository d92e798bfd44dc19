// Tasks whose examples are generated: bytes and a class. Each example is a function of the seed, its number and an
// attempt, so a dataset is the same wherever it is made.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/philox.h"

namespace longstride {

// Random numbers of one attempt at an example.
class Draws {
 public:
  Draws(std::uint64_t seed, std::int64_t example, std::uint32_t attempt)
      : seed_(seed), example_(static_cast<std::uint64_t>(example)), attempt_(attempt) {}
  double uniform() { return static_cast<double>(word()) * 0x1p-32; }  // in [0, 1)
  std::int64_t below(std::int64_t limit) { return static_cast<std::int64_t>(uniform() * static_cast<double>(limit)); }

 private:
  std::uint32_t word() {
    if (next_ % 4 == 0)
      drawn_ =
          kernels::philox(seed_, example_ << 24 | next_ / 4, attempt_, kernels::domain_of(kernels::Purpose::split, 2));
    return drawn_.word[next_++ % 4];
  }

  std::uint64_t seed_, example_, next_ = 0;
  std::uint32_t attempt_;
  kernels::Philox4 drawn_{};
};

struct Example {
  std::vector<std::uint8_t> bytes;
  std::uint16_t label = 0;
};

struct Task {
  const char* name;  // "listops", also the command
  const char* what;  // for --help and the dataset
  std::vector<std::string> classes;
  const char* split;  // the published numbers of examples
  // None if the attempt makes none: a tree of another length, or contours that meet.
  std::optional<Example> (*make)(Draws& draws);
};

// Nested operations on lists of digits (Nangia and Bowman 2018) of the lengths of the Long Range Arena (Tay et al.
// 2021). The class is the result.
std::optional<Example> make_listops(Draws& draws);
// Pictures of dashed contours (Linsley et al. 2018) of 32 x 32 bytes, as in the Long Range Arena. The class says if two
// dots are the ends of one contour.
std::optional<Example> make_pathfinder(Draws& draws);

const std::vector<Task>& tasks();

}  // namespace longstride
