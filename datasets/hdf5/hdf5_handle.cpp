#include "datasets/hdf5/hdf5_handle.h"

#include <algorithm>
#include <vector>

namespace longstride::hdf5 {
namespace {

constexpr std::size_t longest_text = std::size_t{1} << 20;

std::recursive_mutex& mutex() {
  static std::recursive_mutex one;
  return one;
}

Handle open_scalar(hid_t object, const char* name) {
  if (H5Aexists(object, name) <= 0) return {};
  Handle attribute = H5Aopen(object, name, H5P_DEFAULT);
  if (!attribute.valid()) return {};
  const Handle space = H5Aget_space(attribute);
  if (!space.valid() || H5Sget_simple_extent_npoints(space) != 1) return {};
  return attribute;
}

// Text of variable length, as h5py writes it.
std::optional<std::string> variable_text(hid_t attribute, hid_t type) {
  const Handle memory = H5Tcopy(type);
  char* text = nullptr;
  if (H5Aread(attribute, memory, &text) < 0 || text == nullptr) return std::nullopt;
  std::string out(text);
  H5free_memory(text);
  return out;
}

}  // namespace

Lock::Lock() : lock_(mutex()) { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

Handle::~Handle() { close(); }

bool Handle::close() {
  if (id_ < 0) return true;
  const Lock lock;
  return H5Idec_ref(std::exchange(id_, -1)) >= 0;
}

std::optional<std::string> text_attribute(hid_t object, const char* name) {
  const Handle attribute = open_scalar(object, name);
  if (!attribute.valid()) return std::nullopt;
  const Handle type = H5Aget_type(attribute);
  if (!type.valid() || H5Tget_class(type) != H5T_STRING) return std::nullopt;
  if (H5Tis_variable_str(type) > 0) return variable_text(attribute, type);
  const std::size_t size = H5Tget_size(type);
  if (size == 0 || size > longest_text) return std::nullopt;
  std::vector<char> text(size);
  if (H5Aread(attribute, type, text.data()) < 0) return std::nullopt;
  return std::string(text.begin(), std::find(text.begin(), text.end(), '\0'));
}

std::optional<std::int64_t> integer_attribute(hid_t object, const char* name) {
  const Handle attribute = open_scalar(object, name);
  if (!attribute.valid()) return std::nullopt;
  const Handle type = H5Aget_type(attribute);
  std::int64_t value = 0;
  if (!type.valid() || H5Tget_class(type) != H5T_INTEGER || H5Aread(attribute, H5T_NATIVE_INT64, &value) < 0)
    return std::nullopt;
  return value;
}

bool write_attribute(hid_t object, const char* name, const std::string& value) {
  const Handle space = H5Screate(H5S_SCALAR);
  const Handle type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, std::max<std::size_t>(value.size(), 1));
  H5Tset_strpad(type, H5T_STR_NULLPAD);
  H5Tset_cset(type, H5T_CSET_UTF8);
  const Handle attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  return attribute.valid() && H5Awrite(attribute, type, value.c_str()) >= 0;
}

bool write_attribute(hid_t object, const char* name, std::int64_t value) {
  const Handle space = H5Screate(H5S_SCALAR);
  const Handle attribute = H5Acreate2(object, name, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);
  return attribute.valid() && H5Awrite(attribute, H5T_NATIVE_INT64, &value) >= 0;
}

}  // namespace longstride::hdf5
