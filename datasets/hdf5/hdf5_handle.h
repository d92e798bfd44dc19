// HDF5 with C++ lifetimes, used only by the reader and the writer of datasets.
//
// HDF5 may be built without thread safety, so every call is made under one process-wide lock; a Lock also keeps HDF5
// from printing its error stack. Functions return invalid handles on failure: the caller has the context for a message.
#pragma once
#include <hdf5.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace longstride::hdf5 {

class Lock {
 public:
  Lock();

 private:
  std::lock_guard<std::recursive_mutex> lock_;
};

// Owns an identifier of any class. Made, used and destroyed under a Lock (the destructor takes its own).
class Handle {
 public:
  Handle() = default;
  Handle(hid_t id) : id_(id) {}  // NOLINT: HDF5 functions return a plain hid_t
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  ~Handle();

  operator hid_t() const { return id_; }  // NOLINT: so that it can be passed as one
  bool valid() const { return id_ >= 0; }
  // False if HDF5 reports that closing failed. The handle is empty afterwards.
  bool close();

 private:
  hid_t id_ = -1;
};

// Scalar attributes of `object`. Nothing if absent, of another type, or longer than a mebibyte.
std::optional<std::string> text_attribute(hid_t object, const char* name);
std::optional<std::int64_t> integer_attribute(hid_t object, const char* name);

// False if HDF5 could not write it.
bool write_attribute(hid_t object, const char* name, const std::string& value);
bool write_attribute(hid_t object, const char* name, std::int64_t value);

}  // namespace longstride::hdf5
