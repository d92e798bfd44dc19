// Sources of pictures: PNG, JPEG and WebP files, folders and archives of them, .npy and .npz arrays.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "datasets/formats/pictures/fit.h"
#include "datasets/prepare/copies.h"
#include "datasets/prepare/prepare.h"

namespace longstride {

class PictureSource {
 public:
  // Receives each picture as (row, column, channel), `bytes()` of RGB, or null for one that is refused.
  using Sink = std::function<void(const std::uint8_t* pixels)>;

  virtual ~PictureSource() = default;
  virtual std::int64_t count() const = 0;
  virtual std::int64_t bytes() const = 0;              // size of its pictures as stored, the unit of progress
  virtual std::vector<std::string> files() const = 0;  // the ones it reads
  // Fingerprints by which copies are found: every picture's file, in their order, or the one file that holds all.
  virtual std::vector<Fingerprint> prints() const = 0;
  virtual std::vector<std::string> sha256_of(const std::vector<std::int64_t>& wanted) const = 0;  // wanted: ascending
  virtual std::string name_of(std::int64_t print) const = 0;
  // Passes every picture to `sink` in order, and every file read to `source`. Those that do not fit
  // are given to the rules' refusals.
  virtual void read(const Sink& sink, const std::function<void(const SourceFile&)>& source,
                    InputProgress& progress) const = 0;
};

// path: a folder (the picture files in it at any depth, in the order of their paths, or else its .npz and .npy files),
// an archive of such files (tar, compressed or not, or zip; in the same order, whatever the archive's), or one of these
// files. The first bytes say which files are pictures. UserError if it is none of these, holds no picture or
// cannot be read.
std::vector<std::unique_ptr<PictureSource>> open_pictures(const std::string& path, const PictureRules& rules);

}  // namespace longstride
