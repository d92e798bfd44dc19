// The pages of an Ogg file (RFC 3533). libsndfile skips damaged ones, and reads the first of several recordings only.
#pragma once
#include "datasets/formats/sound/blob_window.h"

namespace longstride {

// Every page from `start` to the one that is marked as the last. UserError if one is damaged or missing, or if there is
// more than one logical stream. What follows the last page and is no page, such as a tag, is not looked at.
void check_ogg_pages(BlobWindow& file, std::uint64_t start);

}  // namespace longstride
