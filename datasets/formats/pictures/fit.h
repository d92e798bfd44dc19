// From a picture of any size, turned, grey or with alpha, to the bytes of a dataset.
#pragma once
#include "datasets/formats/pictures/picture.h"
#include "datasets/prepare/prepare.h"

namespace longstride {

class Refusals;

struct PictureRules {
  std::int64_t side = 64;     // rows and columns that every picture must have, or gets
  bool convert_grey = false;  // grey becomes RGB of three equal channels; otherwise it is refused
  bool skip_others = false;   // allows folders and archives that hold more other files than pictures
  PrepareNote note = {};      // is told what is left out or changed; may be empty
  PictureFit fit = PictureFit::exact;
  PictureAlpha alpha = PictureAlpha::refuse;
  PrepareProgress progress = {};  // is told what has been looked at, before the total is known; may be empty
  Refusals* refusals = nullptr;   // takes the pictures that do not fit; null: the first is an error
};

// Turned upright, as the orientation says.
Picture upright(Picture picture);

// The RGB pixels of side x side, after these steps: alpha, upright, size, grey to RGB. UserError, beginning with
// `name`, if the picture does not fit and the rules do not say what to do.
std::vector<std::uint8_t> fit_picture(Picture picture, const PictureRules& rules, const std::string& name);

}  // namespace longstride
