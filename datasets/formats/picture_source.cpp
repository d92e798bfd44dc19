#include "datasets/formats/picture_source.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "datasets/formats/archive.h"
#include "datasets/formats/input_files.h"
#include "datasets/formats/npy.h"
#include "datasets/formats/png.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

using SourceSink = std::function<void(const SourceFile&)>;
using Bytes = std::vector<std::uint8_t>;
constexpr std::uint64_t largest_png = std::uint64_t{256} << 20;
constexpr std::uint64_t most_held = std::uint64_t{1} << 30;  // bytes of an archive's files in memory

UserError grey_refused(const std::string& name) {
  return user_error("{}: is grey; convert grey pictures to RGB with --grey convert, or leave them out", name);
}

void give_grey(const std::uint8_t* grey, std::int64_t pixels, const PictureSource::Sink& sink) {
  Bytes rgb(static_cast<std::size_t>(pixels) * 3);
  for (std::size_t i = 0; i < rgb.size(); ++i) rgb[i] = grey[i / 3];
  sink(rgb.data());
}

void give_png(const Bytes& file, const std::string& name, const PictureRules& rules, const PictureSource::Sink& sink) {
  const Picture picture = read_png(file.data(), file.size(), name);
  if (picture.rows != rules.side || picture.columns != rules.side)
    throw user_error("{}: is {} x {} pixels, but --size is {}; scale it first or change --size", name, picture.columns,
                     picture.rows, rules.side);
  if (picture.channels == 3) return sink(picture.pixels.data());
  if (!rules.convert_grey) throw grey_refused(name);
  give_grey(picture.pixels.data(), picture.rows * picture.columns, sink);
}

class PngFiles final : public PictureSource {
 public:
  PngFiles(std::vector<std::string> paths, const PictureRules& rules) : paths_(std::move(paths)), rules_(rules) {}
  std::int64_t count() const override { return static_cast<std::int64_t>(paths_.size()); }
  std::int64_t bytes() const override { return bytes_of_files(paths_); }
  std::vector<std::string> files() const override { return paths_; }

  void read(const Sink& sink, const SourceSink& source, InputProgress& progress) const override {
    for (const std::string& path : paths_) {
      const FileBlob blob(path);
      if (blob.size() > largest_png) throw user_error("{}: has {} bytes, too many for a picture", path, blob.size());
      Sha256 sha;
      Bytes file(static_cast<std::size_t>(blob.size()));
      BlobStream(blob, &sha).read(file.data(), file.size());
      give_png(file, path, rules_, sink);
      progress.add(static_cast<std::int64_t>(file.size()));
      source({path, static_cast<std::int64_t>(file.size()), sha.hex()});
    }
  }

 private:
  std::vector<std::string> paths_;
  PictureRules rules_;
};

// "./p//a.png" -> "p/a.png", the path in the folder that the archive unpacks to.
std::string unpacked_name(const std::string& name) {
  std::string out;
  std::istringstream parts(name);
  for (std::string part; std::getline(parts, part, '/');)
    if (!part.empty() && part != ".") out += (out.empty() ? "" : "/") + part;
  return out;
}

// Yields the pictures in the order of their names, as a folder of the same files does. Of files with the same name the
// last counts, as when the archive is unpacked.
class ArchiveOfPngs final : public PictureSource {
 public:
  ArchiveOfPngs(const std::string& path, const PictureRules& rules) : blob_(path), rules_(rules) {
    LeftOut others;
    const auto archive = open_archive(blob_);
    for (std::int64_t entry = 0; archive->next(); ++entry) {
      const std::string name = unpacked_name(archive->member());
      if (name.starts_with('.') || name.find("/.") != std::string::npos) continue;  // hidden, like macOS's ._x
      if (lower_extension(name) != "png")
        others.add(name);
      else
        members_[name] = {entry, archive->left()};
    }
    if (members_.empty()) throw user_error("{}: holds no .png files; give an archive of PNGs", path);
    others.report(path, count(), "PNG files", rules.skip_others, rules.note);
  }
  std::int64_t count() const override { return static_cast<std::int64_t>(members_.size()); }
  std::int64_t bytes() const override {
    std::uint64_t sum = 0;
    for (const auto& [name, member] : members_) sum += member.bytes;
    return static_cast<std::int64_t>(sum);
  }
  std::vector<std::string> files() const override { return {blob_.name()}; }

  // An archive can only be read from the beginning, so each pass keeps as many of the next pictures as fit.
  void read(const Sink& sink, const SourceSink& source, InputProgress& progress) const override {
    for (auto next = members_.begin(); next != members_.end();) {
      std::map<std::int64_t, Bytes> files;  // by entry
      std::uint64_t held = 0;
      auto end = next;
      for (; end != members_.end() && (files.empty() || held + end->second.bytes <= most_held); ++end) {
        if (end->second.bytes > largest_png)
          throw user_error("{}:{}: has {} bytes, too many for a picture", blob_.name(), end->first, end->second.bytes);
        held += end->second.bytes;
        files[end->second.entry];
      }
      fetch(files);
      for (; next != end; ++next) {
        give_png(files[next->second.entry], blob_.name() + ":" + next->first, rules_, sink);
        progress.add(static_cast<std::int64_t>(next->second.bytes));
      }
    }
    source({blob_.name(), static_cast<std::int64_t>(blob_.size()), sha256_of_file(blob_.name())});
  }

 private:
  struct Member {
    std::int64_t entry = 0;  // index of the file in the archive
    std::uint64_t bytes = 0;
  };

  void fetch(std::map<std::int64_t, Bytes>& files) const {
    const auto archive = open_archive(blob_);
    for (std::int64_t entry = 0; entry <= files.rbegin()->first && archive->next(); ++entry) {
      const auto file = files.find(entry);
      if (file == files.end()) continue;
      file->second.resize(static_cast<std::size_t>(archive->left()));
      archive->read(file->second.data(), file->second.size());
    }
  }

  FileBlob blob_;
  PictureRules rules_;
  std::map<std::string, Member> members_;
};

// One array of pictures, alone (.npy) or in an archive (.npz).
class ArrayFile final : public PictureSource {
 public:
  ArrayFile(const std::string& path, const PictureRules& rules)
      : blob_(path), rules_(rules), archive_(lower_extension(path) == "npz") {
    const auto stream = open(nullptr);
    pictures_ = npy_pictures(read_npy_header(*stream), rules.side, stream->name());
    if (pictures_.count == 0) throw user_error("{}: holds no pictures", path);
    if (pictures_.layout == NpyPictures::Layout::grey && !rules.convert_grey) throw grey_refused(path);
  }
  std::int64_t count() const override { return pictures_.count; }
  std::int64_t bytes() const override { return pictures_.count * pictures_.bytes(); }
  std::vector<std::string> files() const override { return {blob_.name()}; }

  void read(const Sink& sink, const SourceSink& source, InputProgress& progress) const override {
    Sha256 sha;
    const auto stream = open(&sha);
    read_npy_header(*stream);
    const std::int64_t pixels = pictures_.rows * pictures_.columns;
    Bytes stored(static_cast<std::size_t>(pictures_.bytes())), interleaved(static_cast<std::size_t>(pixels) * 3);
    for (std::int64_t i = 0; i < pictures_.count; ++i) {
      stream->read(stored.data(), stored.size());
      progress.add(pictures_.bytes());
      switch (pictures_.layout) {
        case NpyPictures::Layout::interleaved:
          sink(stored.data());
          break;
        case NpyPictures::Layout::planar:
          for (std::int64_t p = 0; p < pixels; ++p)
            for (std::int64_t c = 0; c < 3; ++c) interleaved[p * 3 + c] = stored[c * pixels + p];
          sink(interleaved.data());
          break;
        case NpyPictures::Layout::grey:
          give_grey(stored.data(), pixels, sink);
          break;
      }
    }
    source(
        {blob_.name(), static_cast<std::int64_t>(blob_.size()), archive_ ? sha256_of_file(blob_.name()) : sha.hex()});
  }

 private:
  // Only a .npy file is read whole and in order, so that its checksum can be computed on the way.
  std::unique_ptr<ByteStream> open(Sha256* sha) const {
    if (archive_) return open_npz_pictures(blob_);
    return std::make_unique<BlobStream>(blob_, sha);
  }

  FileBlob blob_;
  PictureRules rules_;
  bool archive_;
  NpyPictures pictures_;
};

std::vector<std::unique_ptr<PictureSource>> open_folder(const std::string& path, const PictureRules& rules) {
  std::vector<std::string> pngs, arrays;
  LeftOut others;
  bool jpegs = false;
  for (const std::string& file : files_under(path)) {
    const std::string extension = lower_extension(file);
    jpegs = jpegs || extension == "jpg" || extension == "jpeg";
    if (extension == "png")
      pngs.push_back(file);
    else if (extension == "npy" || extension == "npz")
      arrays.push_back(file);
    else
      others.add(file);
  }
  if (!pngs.empty() && !arrays.empty())
    throw user_error("{}: holds both PNGs and arrays ({}); give one or the other", path, arrays[0]);
  if (pngs.empty() && arrays.empty())
    throw user_error("{}: holds no .png, .npy or .npz files{}", path,
                     jpegs ? ", only JPEGs; convert them to PNG of the right size" : "");
  const std::size_t taken = pngs.size() + arrays.size();
  others.report(path, static_cast<std::int64_t>(taken), arrays.empty() ? "PNG files" : "arrays", rules.skip_others,
                rules.note);
  std::vector<std::unique_ptr<PictureSource>> out;
  if (!pngs.empty()) out.push_back(std::make_unique<PngFiles>(std::move(pngs), rules));
  for (const std::string& array : arrays) out.push_back(std::make_unique<ArrayFile>(array, rules));
  return out;
}

}  // namespace

std::vector<std::unique_ptr<PictureSource>> open_pictures(const std::string& path, const PictureRules& rules) {
  if (is_folder(path)) return open_folder(path, rules);
  std::vector<std::unique_ptr<PictureSource>> out;
  const std::string extension = lower_extension(path), format = recognised_format(FileBlob(path));
  if (extension == "npy" || extension == "npz")
    out.push_back(std::make_unique<ArrayFile>(path, rules));
  else if (extension == "png")
    out.push_back(std::make_unique<PngFiles>(std::vector<std::string>{path}, rules));
  else if (extension == "tar" || format == "zip" || format == "gzip" || format == "xz" || format == "bzip2" ||
           format == "zstd")
    out.push_back(std::make_unique<ArchiveOfPngs>(path, rules));
  else
    throw user_error("{}: must be a folder, an archive, or a .npy, .npz or .png file to take pictures from", path);
  return out;
}

}  // namespace longstride
