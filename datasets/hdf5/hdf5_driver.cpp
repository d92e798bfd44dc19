#include "datasets/hdf5/hdf5_driver.h"

#include <fcntl.h>
#include <unistd.h>
#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>  // the driver interface has moved there
#endif

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "framework/core/errors.h"

namespace longstride::hdf5 {
namespace {

constexpr std::uint64_t page_bytes = 4096;

// HDF5 identifies a file by the first member.
struct Opened {
  H5FD_t common;
  Medium* medium;
  haddr_t end_of_allocation;
};

Opened& opened(H5FD_t* file) { return *reinterpret_cast<Opened*>(file); }
const Opened& opened(const H5FD_t* file) { return *reinterpret_cast<const Opened*>(file); }

// No exception may pass through HDF5.
template <class F>
herr_t guarded(F&& call) {
  try {
    return call() ? 0 : -1;
  } catch (...) {
    return -1;
  }
}

struct AccessInfo {
  Medium* medium;
};

constexpr const char* only_name = "longstride";  // a link to another file has another name, and is not followed

H5FD_t* open(const char* name, unsigned flags, hid_t access, haddr_t) {
  const auto* info = static_cast<const AccessInfo*>(H5Pget_driver_info(access));
  if (info == nullptr || std::strcmp(name, only_name) != 0) return nullptr;
  if ((flags & H5F_ACC_TRUNC) != 0 && guarded([&] { return info->medium->resize(0); }) < 0) return nullptr;
  auto* file = new (std::nothrow) Opened{};
  if (file == nullptr) return nullptr;
  file->medium = info->medium;
  return &file->common;
}

herr_t close(H5FD_t* file) {
  delete &opened(file);
  return 0;
}

// Files are written with the features of HDF5's own driver, so that they are laid out the same way. They are read
// without its layers: one of them writes past its buffer if a file contains an address near the largest one.
herr_t query(const H5FD_t* file, unsigned long* flags) {
  if (flags == nullptr) return 0;
  *flags = H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
  if (file == nullptr || opened(file).medium->writable())
    *flags |= H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
              H5FD_FEAT_AGGREGATE_SMALLDATA;
  return 0;
}

haddr_t end_of_allocation(const H5FD_t* file, H5FD_mem_t) { return opened(file).end_of_allocation; }

herr_t set_end_of_allocation(H5FD_t* file, H5FD_mem_t, haddr_t end) {
  opened(file).end_of_allocation = end;
  return 0;
}

haddr_t end_of_file(const H5FD_t* file, H5FD_mem_t) { return opened(file).medium->size(); }

herr_t read(H5FD_t* file, H5FD_mem_t kind, hid_t, haddr_t offset, std::size_t count, void* out) {
  return guarded([&] { return opened(file).medium->read(offset, out, count, kind); });
}

herr_t write(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t offset, std::size_t count, const void* bytes) {
  return guarded([&] { return opened(file).medium->write(offset, bytes, count); });
}

herr_t truncate(H5FD_t* file, hid_t, hbool_t) {
  Opened& o = opened(file);
  if (o.end_of_allocation == o.medium->size()) return 0;
  return guarded([&] { return o.medium->resize(o.end_of_allocation); });
}

hid_t driver() {
  static const hid_t registered = [] {
    static H5FD_class_t type = {};
#ifdef H5FD_CLASS_VERSION
    type.version = H5FD_CLASS_VERSION;
    type.value = static_cast<H5FD_class_value_t>(H5_VFD_RESERVED + 77);
#endif
    type.name = "longstride";
    type.maxaddr = (haddr_t{1} << 62) - 1;
    type.fc_degree = H5F_CLOSE_WEAK;
    type.fapl_size = sizeof(AccessInfo);
    type.open = open;
    type.close = close;
    type.query = query;
    type.get_eoa = end_of_allocation;
    type.set_eoa = set_end_of_allocation;
    type.get_eof = end_of_file;
    type.read = read;
    type.write = write;
    type.truncate = truncate;
    constexpr H5FD_mem_t kinds[] = H5FD_FLMAP_DICHOTOMY;
    std::copy(std::begin(kinds), std::end(kinds), type.fl_map);
    return H5FDregister(&type);
  }();
  return registered;
}

Handle access_through(Medium& medium) {
  const AccessInfo info = {&medium};
  Handle access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_driver(access, driver(), &info);
  return access;
}

}  // namespace

bool BlobMedium::read(std::uint64_t offset, void* out, std::size_t count, H5FD_mem_t kind) {
  if (kind == H5FD_MEM_DRAW && count > most_of_arrays_) return false;
  blob_->read(offset, out, count);
  return kind != H5FD_MEM_OHDR || guard_.allows(offset, static_cast<const std::uint8_t*>(out), count);
}

DiskMedium::DiskMedium(const std::string& path) : descriptor_(::open(path.c_str(), O_RDWR | O_CLOEXEC)) {
  if (descriptor_ < 0) throw user_error("{}: cannot open: {}", path, std::strerror(errno));
}

DiskMedium::~DiskMedium() { ::close(descriptor_); }

bool DiskMedium::write(std::uint64_t offset, const void* bytes, std::size_t count) {
  const auto* next = static_cast<const std::uint8_t*>(bytes);
  size_ = std::max(size_, offset + count);
  while (error_ == 0 && count > 0) {
    const ssize_t written = ::pwrite(descriptor_, next, count, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      error_ = written < 0 ? errno : ENOSPC;
      break;
    }
    next += written;
    offset += static_cast<std::uint64_t>(written);
    count -= static_cast<std::size_t>(written);
  }
  if (error_ != 0) keep(offset, next, count);
  return true;
}

bool DiskMedium::resize(std::uint64_t size) {
  if (error_ == 0 && ::ftruncate(descriptor_, static_cast<off_t>(size)) != 0) error_ = errno;
  size_ = size;
  return true;
}

// HDF5 reads what it has allocated but not yet written, past the end of the file, as zeros.
void DiskMedium::read_disk(std::uint64_t offset, std::uint8_t* out, std::size_t count) {
  while (count > 0) {
    const ssize_t got = ::pread(descriptor_, out, count, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && error_ == 0) error_ = errno;
    if (got <= 0) break;
    out += got;
    offset += static_cast<std::uint64_t>(got);
    count -= static_cast<std::size_t>(got);
  }
  std::fill_n(out, count, std::uint8_t{0});
}

void DiskMedium::keep(std::uint64_t offset, const std::uint8_t* bytes, std::size_t count) {
  while (count > 0) {
    const std::uint64_t page = offset / page_bytes, at = offset % page_bytes;
    auto& content = kept_[page];
    if (content.empty()) {
      content.resize(page_bytes);
      read_disk(page * page_bytes, content.data(), page_bytes);
    }
    const auto taken = static_cast<std::size_t>(std::min<std::uint64_t>(count, page_bytes - at));
    std::copy_n(bytes, taken, content.begin() + static_cast<std::ptrdiff_t>(at));
    bytes += taken, offset += taken, count -= taken;
  }
}

bool DiskMedium::read(std::uint64_t offset, void* out, std::size_t count, H5FD_mem_t) {
  auto* next = static_cast<std::uint8_t*>(out);
  read_disk(offset, next, count);
  for (auto page = kept_.lower_bound(offset / page_bytes); page != kept_.end(); ++page) {
    const std::uint64_t begin = page->first * page_bytes, from = std::max(begin, offset);
    if (begin >= offset + count) break;
    const std::uint64_t end = std::min(begin + page_bytes, offset + count);
    std::copy_n(page->second.begin() + static_cast<std::ptrdiff_t>(from - begin), end - from, next + (from - offset));
  }
  return true;
}

Handle open_file(Medium& medium) {
  const Handle access = access_through(medium);
  return H5Fopen(only_name, H5F_ACC_RDONLY, access);
}

Handle create_file(Medium& medium) {
  const Handle access = access_through(medium);
  H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);  // headers and indexes carry checksums
  H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
  const Handle creation = H5Pcreate(H5P_FILE_CREATE);
  H5Pset_link_phase_change(creation, 32, 16);  // the names of all arrays in one header, never in a separate tree
  return H5Fcreate(only_name, H5F_ACC_TRUNC, creation, access);
}

}  // namespace longstride::hdf5
