// Decodes pictures on several threads. They arrive one by one, in the order in which they were given.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "datasets/formats/pictures/fit.h"

namespace longstride {

class PictureDecoding {
 public:
  using Bytes = std::vector<std::uint8_t>;
  // Receives each picture as (row, column, channel), side x side x 3 bytes, or null if it was refused.
  using Sink = std::function<void(const std::uint8_t* pixels)>;

  // threads: at most; 0: one per core, up to 8. A picture may need 256 MiB while it is decoded.
  PictureDecoding(const PictureRules& rules, const Sink& sink, std::size_t threads = 0);

  // Decodes the file, at the latest in finish(). One that does not fit is given to the rules' refusals, or is a
  // UserError if there are none.
  void give(Bytes file, const std::string& name);
  // A picture that is not even decoded. why: a sentence that begins with its name.
  void refuse(const std::string& why);
  // Decodes what is left, and says what was changed without being asked for.
  void finish(const std::string& where);

 private:
  struct Waiting {
    Bytes file;
    std::string name;
    Bytes pixels;         // as soon as it is decoded
    std::string refused;  // why it is not
    bool turned = false, rounded = false, cmyk = false;
  };

  void decode(Waiting& picture) const;
  void decode_all();
  void pass_on();

  const PictureRules& rules_;
  const Sink& sink_;
  std::size_t threads_, most_waiting_;
  std::size_t bytes_waiting_ = 0;
  std::vector<Waiting> waiting_;
  std::int64_t turned_ = 0, rounded_ = 0, cmyk_ = 0;
};

}  // namespace longstride
