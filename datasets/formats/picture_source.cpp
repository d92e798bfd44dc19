#include "datasets/formats/picture_source.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "datasets/formats/archive.h"
#include "datasets/formats/input_files.h"
#include "datasets/formats/npy.h"
#include "datasets/formats/pictures/picture.h"
#include "datasets/formats/pictures/picture_decoding.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

using SourceSink = std::function<void(const SourceFile&)>;
using Bytes = std::vector<std::uint8_t>;
constexpr std::uint64_t largest_file = std::uint64_t{256} << 20;
constexpr std::uint64_t most_held = std::uint64_t{1} << 30;  // bytes of an archive's files in memory

UserError grey_refused(const std::string& name) {
  return user_error("{}: is grey; convert grey pictures to RGB with --grey convert", name);
}

std::string too_large(const std::string& name, std::uint64_t bytes) {
  return fmt::format("{}: has {} bytes, too many for a picture; remove it", name,
                     thousands(static_cast<std::int64_t>(bytes)));
}

void give_grey(const std::uint8_t* grey, std::int64_t pixels, const PictureSource::Sink& sink) {
  Bytes rgb(static_cast<std::size_t>(pixels) * 3);
  for (std::size_t i = 0; i < rgb.size(); ++i) rgb[i] = grey[i / 3];
  sink(rgb.data());
}

// True for a file that is taken for a picture. One that is named like a picture and is none is an error, not left out.
bool is_picture(const std::string& name, const std::string& head) {
  return named_like_picture(name) ||
         begins_like_picture(reinterpret_cast<const std::uint8_t*>(head.data()), head.size());
}

std::string head_in(ByteStream& content) {
  std::string head(static_cast<std::size_t>(std::min<std::uint64_t>(Fingerprint::head_bytes, content.left())), '\0');
  content.read(head.data(), head.size());
  return head;
}

class PictureFiles final : public PictureSource {
 public:
  // where: what the user named, for messages about all of them.
  PictureFiles(std::string where, std::vector<std::string> paths, const PictureRules& rules)
      : where_(std::move(where)), paths_(std::move(paths)), rules_(rules) {}
  std::int64_t count() const override { return static_cast<std::int64_t>(paths_.size()); }
  std::int64_t bytes() const override { return bytes_of_files(paths_); }
  std::vector<std::string> files() const override { return paths_; }
  std::vector<Fingerprint> prints() const override {
    std::vector<Fingerprint> out;
    for (const std::string& path : paths_) out.push_back(fingerprint_of(path));
    return out;
  }
  std::vector<std::string> sha256_of(const std::vector<std::int64_t>& wanted) const override {
    std::vector<std::string> out;
    for (const std::int64_t i : wanted) out.push_back(sha256_of_file(name_of(i)));
    return out;
  }
  std::string name_of(std::int64_t print) const override { return paths_[static_cast<std::size_t>(print)]; }

  void read(const Sink& sink, const SourceSink& source, InputProgress& progress) const override {
    PictureDecoding decoding(rules_, sink);
    for (const std::string& path : paths_) {
      const FileBlob blob(path);
      if (blob.size() > largest_file) {
        decoding.refuse(too_large(path, blob.size()));
        continue;
      }
      Sha256 sha;
      Bytes file(static_cast<std::size_t>(blob.size()));
      BlobStream(blob, &sha).read(file.data(), file.size());
      progress.add(static_cast<std::int64_t>(file.size()));
      source({path, static_cast<std::int64_t>(file.size()), sha.hex()});
      decoding.give(std::move(file), path);
    }
    decoding.finish(where_);
  }

 private:
  std::string where_;
  std::vector<std::string> paths_;
  PictureRules rules_;
};

// "./p//a.png" and "../p/a.png" -> "p/a.png", the path in the folder that the archive unpacks to.
std::string unpacked_name(const std::string& name) {
  return std::filesystem::path("/" + name).lexically_normal().relative_path().string();
}

struct Member {
  std::int64_t entry = 0;             // index of the file in the archive
  std::uint64_t bytes = 0, head = 0;  // head: as in a Fingerprint
};
using Members = std::map<std::string, Member>;  // by name

// Yields the pictures in the order of their names, as a folder of the same files does. Of files with the same name the
// last counts, as when the archive is unpacked.
class ArchiveOfPictures final : public PictureSource {
 public:
  ArchiveOfPictures(const std::string& path, Members members, const PictureRules& rules)
      : blob_(path), rules_(rules), members_(std::move(members)) {}
  std::int64_t count() const override { return static_cast<std::int64_t>(members_.size()); }
  std::int64_t bytes() const override {
    std::uint64_t sum = 0;
    for (const auto& [name, member] : members_) sum += member.bytes;
    return static_cast<std::int64_t>(sum);
  }
  std::vector<std::string> files() const override { return {blob_.name()}; }
  std::vector<Fingerprint> prints() const override {
    std::vector<Fingerprint> out;
    for (const auto& [name, member] : members_) out.push_back({static_cast<std::int64_t>(member.bytes), member.head});
    return out;
  }
  std::vector<std::string> sha256_of(const std::vector<std::int64_t>& wanted) const override {
    std::map<std::int64_t, std::string> sums;  // by entry
    std::vector<std::int64_t> entries;
    std::int64_t at = 0;
    for (const auto& [name, member] : members_)
      if (entries.size() < wanted.size() && at++ == wanted[entries.size()]) {
        entries.push_back(member.entry);
        sums[member.entry];
      }
    const auto archive = open_archive(blob_);
    for (std::int64_t entry = 0; entry <= sums.rbegin()->first && archive->next(); ++entry) {
      const auto sum = sums.find(entry);
      if (sum == sums.end()) continue;
      Bytes file(static_cast<std::size_t>(std::min(archive->left(), largest_file)));
      archive->read(file.data(), file.size());
      Sha256 sha;
      sha.update(file.data(), file.size());
      sum->second = sha.hex();
    }
    std::vector<std::string> out;
    for (const std::int64_t entry : entries) out.push_back(sums[entry]);
    return out;
  }
  std::string name_of(std::int64_t print) const override {
    return blob_.name() + ":" + std::next(members_.begin(), print)->first;
  }

  // An archive can only be read from the beginning, so each pass keeps as many of the next pictures as fit.
  void read(const Sink& sink, const SourceSink& source, InputProgress& progress) const override {
    PictureDecoding decoding(rules_, sink);
    for (auto next = members_.begin(); next != members_.end();) {
      std::map<std::int64_t, Bytes> files;  // by entry
      std::uint64_t held = 0;
      auto end = next;
      for (; end != members_.end() && (files.empty() || held + end->second.bytes <= most_held); ++end) {
        if (end->second.bytes > largest_file) continue;
        held += end->second.bytes;
        files[end->second.entry];
      }
      if (!files.empty()) fetch(files);
      for (; next != end; ++next) {
        const std::string name = blob_.name() + ":" + next->first;
        const Member& member = next->second;
        if (member.bytes > largest_file)
          decoding.refuse(too_large(name, member.bytes));
        else
          decoding.give(std::move(files[member.entry]), name);
        progress.add(static_cast<std::int64_t>(member.bytes));
      }
    }
    decoding.finish(blob_.name());
    source({blob_.name(), static_cast<std::int64_t>(blob_.size()), sha256_of_file(blob_.name())});
  }

 private:
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
  Members members_;
};

// One array of pictures, which `open` opens from its header.
class PictureArray {
 public:
  using Open = std::function<std::unique_ptr<ByteStream>()>;

  PictureArray(Open open, const PictureRules& rules) : open_(std::move(open)) {
    const auto stream = open_();
    pictures_ = npy_pictures(read_npy_header(*stream), rules.side, stream->name());
    if (pictures_.count == 0) throw user_error("{}: holds no pictures", stream->name());
    if (pictures_.layout == NpyPictures::Layout::grey && !rules.convert_grey) throw grey_refused(stream->name());
  }
  std::int64_t count() const { return pictures_.count; }
  std::int64_t bytes() const { return pictures_.count * pictures_.bytes(); }

  void read(const PictureSource::Sink& sink, InputProgress& progress) const {
    const auto stream = open_();
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
  }

 private:
  Open open_;
  NpyPictures pictures_;
};

// The arrays of one file: a .npy file, the pictures of a .npz file, or several of these in an archive.
class ArrayFile final : public PictureSource {
 public:
  ArrayFile(const std::string& path, const PictureRules& rules) : blob_(path) {
    if (lower_extension(path) == "npz")
      arrays_.emplace_back([this] { return open_npz_pictures([this] { return open_archive(blob_); }, blob_.name()); },
                           rules);
    else
      arrays_.emplace_back([this] { return std::make_unique<BlobStream>(blob_); }, rules);
  }
  // Members of an archive.
  ArrayFile(const std::string& path, const Members& members, const PictureRules& rules) : blob_(path) {
    for (const auto& [name, member] : members) {
      const auto open = [this, entry = member.entry] { return open_member(entry); };
      if (lower_extension(name) == "npz")
        arrays_.emplace_back(
            [open, name = blob_.name() + ":" + name] {
              return open_npz_pictures([&] { return open_zip_stream(open()); }, name);
            },
            rules);
      else
        arrays_.emplace_back(open, rules);
    }
  }
  std::int64_t count() const override {
    std::int64_t sum = 0;
    for (const PictureArray& array : arrays_) sum += array.count();
    return sum;
  }
  std::int64_t bytes() const override {
    std::int64_t sum = 0;
    for (const PictureArray& array : arrays_) sum += array.bytes();
    return sum;
  }
  std::vector<std::string> files() const override { return {blob_.name()}; }
  std::vector<Fingerprint> prints() const override { return {fingerprint_of(blob_.name())}; }
  std::vector<std::string> sha256_of(const std::vector<std::int64_t>&) const override {
    return {sha256_of_file(blob_.name())};
  }
  std::string name_of(std::int64_t) const override { return blob_.name(); }

  void read(const Sink& sink, const SourceSink& source, InputProgress& progress) const override {
    for (const PictureArray& array : arrays_) array.read(sink, progress);
    source({blob_.name(), static_cast<std::int64_t>(blob_.size()), sha256_of_file(blob_.name())});
  }

 private:
  std::unique_ptr<ByteStream> open_member(std::int64_t entry) const {
    auto archive = open_archive(blob_);
    for (std::int64_t at = 0; at <= entry; ++at)
      if (!archive->next()) throw user_error("{}: has changed while it was read; start again", blob_.name());
    return archive;
  }

  FileBlob blob_;
  std::vector<PictureArray> arrays_;
};

bool is_array(const std::string& path, const std::string& format) {
  const std::string extension = lower_extension(path);
  return extension == "npy" || extension == "npz" || format == "NumPy";
}

// Lets the user see, and stop, the search of a large input.
void looked_at(const PictureRules& rules, std::uint64_t bytes) {
  if (rules.progress) rules.progress(static_cast<std::int64_t>(bytes), 0);
}

UserError both_kinds(const std::string& path, const std::string& array) {
  return user_error("{}: holds both pictures and arrays ({}); give one or the other", path, array);
}

UserError no_pictures(const std::string& path, const LeftOut& others, const char* advice) {
  const std::string listed = others.listed();
  return user_error("{}: holds no PNG, JPEG, WebP, .npy or .npz files{}{}; {}", path, listed.empty() ? "" : ", but ",
                    listed, advice);
}

std::unique_ptr<PictureSource> open_archive_of_pictures(const std::string& path, const PictureRules& rules) {
  const FileBlob blob(path);
  Members pictures, arrays;
  LeftOut others;
  std::int64_t replaced = 0;
  const auto take = [&](Members& members, const std::string& name, const Member& member) {
    replaced += members.insert_or_assign(name, member).second ? 0 : 1;
  };
  std::uint64_t sum = 0;
  const auto archive = open_archive(blob);
  for (std::int64_t entry = 0; archive->next(); ++entry) {
    looked_at(rules, sum += archive->left());
    const std::string name = unpacked_name(archive->member());
    if (name.starts_with('.') || name.find("/.") != std::string::npos) continue;  // hidden, like macOS's ._x
    const std::uint64_t bytes = archive->left();
    const std::string head = is_array(name, "") ? "" : head_in(*archive);
    const Member member = {entry, bytes, head_of(head)};
    if (is_array(name, ""))
      take(arrays, name, member);
    else if (is_picture(name, head))
      take(pictures, name, member);
    else
      others.add(name);
  }
  if (!pictures.empty() && !arrays.empty()) throw both_kinds(path, arrays.begin()->first);
  if (pictures.empty() && arrays.empty()) throw no_pictures(path, others, "give an archive of pictures");
  if (replaced > 0 && rules.note)
    rules.note(fmt::format("{}: left out {}, because later ones have their names", path, counted(replaced, "file")));
  if (archive->links() > 0 && rules.note)
    rules.note(fmt::format("{}: left out {} to other files", path, counted(archive->links(), "link")));
  std::vector<std::string> taken;
  for (const auto& [name, member] : arrays.empty() ? pictures : arrays) taken.push_back(name);
  others.report(path, taken, arrays.empty() ? "pictures" : "arrays", rules.skip_others, rules.note);
  if (pictures.empty()) return std::make_unique<ArrayFile>(path, arrays, rules);
  return std::make_unique<ArchiveOfPictures>(path, std::move(pictures), rules);
}

std::vector<std::unique_ptr<PictureSource>> open_folder(const std::string& path, const PictureRules& rules) {
  std::vector<std::string> pictures, arrays;
  LeftOut others;
  std::uint64_t sum = 0;
  for (const std::string& file : files_under(path)) {
    const FileBlob blob(file);
    looked_at(rules, sum += blob.size());
    BlobStream content(blob);
    if (named_like_picture(file) || is_picture(file, head_in(content)))
      pictures.push_back(file);
    else if (is_array(file, recognised_format(blob)))
      arrays.push_back(file);
    else
      others.add(file);
  }
  if (!pictures.empty() && !arrays.empty()) throw both_kinds(path, arrays[0]);
  if (pictures.empty() && arrays.empty())
    throw no_pictures(
        path, others,
        others.holds_archives() ? "name the archives in it themselves with --input" : "give a folder of pictures");
  others.report(path, arrays.empty() ? pictures : arrays, arrays.empty() ? "pictures" : "arrays", rules.skip_others,
                rules.note);
  std::vector<std::unique_ptr<PictureSource>> out;
  if (!pictures.empty()) out.push_back(std::make_unique<PictureFiles>(path, std::move(pictures), rules));
  for (const std::string& array : arrays) out.push_back(std::make_unique<ArrayFile>(array, rules));
  return out;
}

}  // namespace

std::vector<std::unique_ptr<PictureSource>> open_pictures(const std::string& path, const PictureRules& rules) {
  if (is_folder(path)) return open_folder(path, rules);
  std::vector<std::unique_ptr<PictureSource>> out;
  const FileBlob blob(path);
  BlobStream content(blob);
  const std::string head = head_in(content), format = recognised_format(blob);
  if (is_array(path, format))
    out.push_back(std::make_unique<ArrayFile>(path, rules));
  else if (is_picture(path, head))
    out.push_back(std::make_unique<PictureFiles>(path, std::vector<std::string>{path}, rules));
  else if (lower_extension(path) == "tar" || format == "tar" || format == "zip" || format == "gzip" || format == "xz" ||
           format == "bzip2" || format == "zstd")
    out.push_back(open_archive_of_pictures(path, rules));
  else if (format == "pickle")
    throw user_error("{}: is a Python pickle, which is not read; give its pictures as .npz, PNG, JPEG or WebP", path);
  else
    throw user_error("{}: must be a folder, an archive, or a PNG, JPEG, WebP, .npy or .npz file to take pictures from",
                     path);
  return out;
}

}  // namespace longstride
