// Random patterns and sizes of attention for emulated blocks. A number always gives the same shape.
#pragma once
#include <random>

#include "tests/emulated/emulated_shapes.h"

namespace longstride::kernels {

class RandomShape {
 public:
  explicit RandomShape(std::uint32_t number) : random_(number) {}

  EmulatedShape drawn() {
    EmulatedShape shape = of_pattern();
    shape.n = between(1, 700);
    shape.heads = between(1, 2);
    shape.key_size = 8 * between(2, 16);
    shape.value_size = 8 * between(2, 16);
    shape.path = between(0, 1) > 0 ? AttentionPath::sm90 : AttentionPath::automatic;
    if (shape.name == "dense" && between(0, 2) > 0)
      shape.block = static_cast<std::int32_t>(between(1, 3)) * BlockLists::unit;
    return shape;
  }

 private:
  EmulatedShape of_pattern() {
    using namespace emulated_patterns;
    const std::int64_t length = between(1, 5) > 1 ? between(2, 200) : between(200, 600);
    const std::string number = " " + std::to_string(length);
    switch (between(0, 5)) {
      case 0:
        return {"local" + number, window(length), 0, 0, 0, 0};
      case 1:
        return {"column" + number, columns(length), 0, 0, 0, 0};
      case 2:
        return {"blocks" + number, blocks(length), 0, 0, 0, 0};
      case 3:
        return {"dense", all(), 0, 0, 0, 0};
      default:
        break;
    }
    const std::int64_t width = between(1, length);
    const bool inclusive = between(0, 1) > 0;
    return {"fixed" + number + ", " + std::to_string(width) + (inclusive ? " inclusive" : ""),
            fixed(length, width, inclusive),
            0,
            0,
            0,
            0};
  }
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random_() % static_cast<std::uint32_t>(most - least + 1));
  }

  std::mt19937 random_;
};

}  // namespace longstride::kernels
