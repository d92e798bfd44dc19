// An RGB picture to draw rectangles on.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "datasets/formats/png.h"

namespace longstride {

using Color = std::array<std::uint8_t, 3>;

class Canvas {
 public:
  Canvas(std::int64_t rows, std::int64_t columns, Color ground = {0, 0, 0}) : rows_(rows), columns_(columns) {
    for (std::int64_t i = 0; i < rows * columns; ++i) pixels_.insert(pixels_.end(), ground.begin(), ground.end());
  }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }

  // Clipped to the canvas.
  void fill(std::int64_t row, std::int64_t column, std::int64_t height, std::int64_t width, Color color) {
    for (std::int64_t r = std::max<std::int64_t>(0, row); r < std::min(rows_, row + height); ++r)
      for (std::int64_t c = std::max<std::int64_t>(0, column); c < std::min(columns_, column + width); ++c)
        std::copy(color.begin(), color.end(), pixels_.begin() + (r * columns_ + c) * 3);
  }
  // Around the rectangle, not in it.
  void outline(std::int64_t row, std::int64_t column, std::int64_t height, std::int64_t width, std::int64_t thick,
               Color color) {
    fill(row - thick, column - thick, thick, width + 2 * thick, color);
    fill(row + height, column - thick, thick, width + 2 * thick, color);
    fill(row, column - thick, height, thick, color);
    fill(row, column + width, height, thick, color);
  }
  void place(const Canvas& other, std::int64_t row, std::int64_t column) {
    for (std::int64_t r = 0; r < other.rows_ && row + r < rows_; ++r)
      std::copy_n(other.pixels_.begin() + r * other.columns_ * 3, std::min(other.columns_, columns_ - column) * 3,
                  pixels_.begin() + ((row + r) * columns_ + column) * 3);
  }
  void write(const std::string& path) const { write_png(path, rows_, columns_, 3, pixels_.data()); }

 private:
  std::int64_t rows_, columns_;
  std::vector<std::uint8_t> pixels_;
};

}  // namespace longstride
