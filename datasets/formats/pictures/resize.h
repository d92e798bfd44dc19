// Scaling of pictures as Pillow does it with BICUBIC: cubic convolution with a = -0.5, whose support grows with the
// reduction so that every pixel counts, first along rows and then along columns, rounded to 8 bits in between.
#pragma once
#include "datasets/formats/pictures/picture.h"

namespace longstride {

// A part of a picture in pixels, whose borders may be between two of them.
struct Box {
  double left = 0, top = 0, right = 0, bottom = 0;
};

// `box`, within the picture and not empty, scaled to rows x columns. Alpha is scaled like any other channel.
Picture resize(const Picture& picture, const Box& box, std::int64_t rows, std::int64_t columns);

}  // namespace longstride
