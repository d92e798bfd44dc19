#include "datasets/formats/npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

#include "framework/core/errors.h"

namespace longstride {
namespace {

constexpr std::size_t longest_header = std::size_t{1} << 20;
constexpr std::size_t most_dimensions = 32;  // NumPy's own limit

// The header is a Python dict: {'descr': '|u1', 'fortran_order': False, 'shape': (400, 64, 64, 3), }
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  NpyHeader parse() {
    NpyHeader header;
    bool descr = false, order = false, shape = false;
    expect('{');
    while (!taken('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr" && !descr) {
        descr = true;
        header.descr = value_of_descr();
      } else if (key == "fortran_order" && !order) {
        order = true;
        header.fortran_order = boolean();
      } else if (key == "shape" && !shape) {
        shape = true;
        header.shape = tuple();
      } else {
        throw wrong();
      }
      if (!taken(',')) {
        expect('}');
        break;
      }
    }
    if (!descr || !order || !shape || text_.find_first_not_of(" \n", at_) != std::string_view::npos) throw wrong();
    return header;
  }

 private:
  UserError wrong() const {
    return user_error("{}: has a damaged .npy header; save the array with numpy.save again", name_);
  }
  void blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool taken(char c) {
    blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!taken(c)) throw wrong();
  }
  std::string quoted() {
    const char quote = taken('"') ? '"' : '\'';
    if (quote == '\'') expect('\'');
    const std::size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) throw wrong();
    std::string out(text_.substr(at_, end - at_));
    at_ = end + 1;
    return out;
  }
  // A list would describe records of several fields.
  std::string value_of_descr() {
    blanks();
    if (at_ < text_.size() && text_[at_] == '[')
      throw user_error("{}: holds records, but pictures are arrays of uint8; save them as such", name_);
    return quoted();
  }
  bool boolean() {
    blanks();
    for (const std::string_view word : {"True", "False"}) {
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return word == "True";
    }
    throw wrong();
  }
  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> out;
    expect('(');
    while (!taken(')')) {
      blanks();
      std::int64_t size = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), size);
      if (error != std::errc() || size < 0 || out.size() == most_dimensions) throw wrong();
      at_ = static_cast<std::size_t>(end - text_.data());
      out.push_back(size);
      if (!taken(',')) {
        expect(')');
        break;
      }
    }
    return out;
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
};

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

// How an array of this type becomes one of pictures. numpy.uint8 alone would cut fractions off and keep the lowest bits
// of whole numbers: floats from 0 to 1 and booleans would become black, and 16 bits per channel noise.
const char* advice_for(const std::string& descr) {
  if (descr == "|u1") return "convert it with numpy.ascontiguousarray(x)";
  const std::size_t kind = descr.find_first_not_of("<>|=");
  if (kind != descr.npos && std::string_view("biuf").find(descr[kind]) != std::string_view::npos)
    return "convert it with numpy.rint(x).astype(numpy.uint8), after scaling it to 0 to 255";
  return "give pictures as PNG files, or as one array of numbers, which numpy.stack makes of pictures of one size";
}

}  // namespace

NpyHeader read_npy_header(ByteStream& stream) {
  std::uint8_t start[12] = {};
  if (stream.left() < 10)
    throw user_error("{}: is not a .npy file; its {} bytes are too few", stream.name(), stream.left());
  stream.read(start, 10);
  if (std::memcmp(start, "\x93NUMPY", 6) != 0)
    throw user_error("{}: is not a .npy file, judging by its first bytes; save the array with numpy.save",
                     stream.name());
  if (start[6] < 1 || start[6] > 3)
    throw user_error("{}: is .npy version {}, but only versions 1 to 3 can be read", stream.name(), start[6]);
  if (start[6] > 1) stream.read(start + 10, 2);
  std::size_t length = start[8] | std::size_t{start[9]} << 8;
  if (start[6] > 1) length |= std::size_t{start[10]} << 16 | std::size_t{start[11]} << 24;
  if (length > longest_header || length > stream.left())
    throw user_error("{}: ends inside its .npy header; copy or save it again", stream.name());
  std::string text(length, '\0');
  stream.read(text.data(), length);
  NpyHeader header = HeaderParser(text, stream.name()).parse();
  if (header.descr != "|u1" || header.fortran_order)
    throw user_error("{}: holds {}{}, but pictures are uint8 (|u1) in C order; {}", stream.name(), header.descr,
                     header.fortran_order ? " in Fortran order" : "", advice_for(header.descr));
  std::uint64_t bytes = 1;
  for (const std::int64_t size : header.shape)
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes))
      throw user_error("{}: has the impossible shape {}", stream.name(), shape_text(header.shape));
  if (bytes != stream.left())
    throw user_error("{}: the shape {} needs {} bytes, but {} follow the header; copy or save it again", stream.name(),
                     shape_text(header.shape), bytes, stream.left());
  return header;
}

// Version 1.0 of the format: the data begins at a multiple of 64 bytes.
NpyWriter::NpyWriter(const std::string& path, std::int64_t rows, std::int64_t columns)
    : file_(path), left_(rows * columns) {
  const std::string dict =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': {}, }}", shape_text({rows, columns}));
  constexpr std::size_t before = 10, block = 64;
  const std::size_t length = (before + dict.size() + 1 + block - 1) / block * block - before;
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(length & 0xff);
  header += static_cast<char>(length >> 8);
  header += dict + std::string(length - dict.size() - 1, ' ') + '\n';
  file_.write(header.data(), header.size());
}

void NpyWriter::append(std::span<const float> values) {
  left_ -= std::ssize(values);
  file_.write(values.data(), values.size_bytes());
}

void NpyWriter::commit() {
  LONGSTRIDE_CHECK(left_ == 0, "{} values less than the shape has", left_);
  file_.commit();
}

void write_npy(const std::string& path, const std::vector<float>& values, std::int64_t columns) {
  NpyWriter out(path, std::ssize(values) / columns, columns);
  out.append(values);
  out.commit();
}

NpyPictures npy_pictures(const NpyHeader& header, std::int64_t side, const std::string& name) {
  using Layout = NpyPictures::Layout;
  const auto& s = header.shape;
  const auto is = [&](std::initializer_list<std::int64_t> rest) {
    return s.size() == rest.size() + 1 && std::equal(rest.begin(), rest.end(), s.begin() + 1);
  };
  NpyPictures pictures;
  pictures.rows = pictures.columns = side;
  if (is({side, side, 3}))
    pictures.layout = Layout::interleaved;
  else if (is({3, side, side}) || is({3 * side * side}))
    pictures.layout = Layout::planar;
  else if (is({side, side}) || is({side, side, 1}))
    pictures.layout = Layout::grey;
  else
    throw user_error("{}: has the shape {}, but with --size {} pictures are (N, {}, {}, 3), (N, 3, {}, {}) or (N, {})",
                     name, shape_text(s), side, side, side, side, side, 3 * side * side);
  pictures.count = s[0];
  return pictures;
}

std::unique_ptr<ByteStream> open_npz_pictures(const std::function<std::unique_ptr<Archive>()>& open,
                                              const std::string& name) {
  std::vector<std::string> names;
  for (auto archive = open(); archive->next(); names.push_back(archive->member()))
    if (archive->member() == "data.npy") return archive;
  if (names.size() != 1)
    throw user_error("{}: has no array 'data' among its {} ({}); save the pictures under that name", name, names.size(),
                     fmt::join(names.begin(), names.begin() + std::min<std::ptrdiff_t>(names.size(), 5), " "));
  auto archive = open();
  archive->next();
  return archive;
}

}  // namespace longstride
