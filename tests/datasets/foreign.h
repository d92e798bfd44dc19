// Datasets as other programs write them, with features that our own writer never uses.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "datasets/hdf5/hdf5_handle.h"

namespace longstride {

using Bytes = std::vector<std::uint8_t>;

class Foreign {
 public:
  explicit Foreign(const std::string& path, hid_t access = H5P_DEFAULT)
      : file_(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access)) {}
  // variable: as text of variable length, like h5py.
  Foreign& kind(const std::string& kind, bool variable = false) {
    if (!variable) {
      hdf5::write_attribute(file_, "kind", kind);
      return *this;
    }
    const hdf5::Handle type = H5Tcopy(H5T_C_S1), scalar = H5Screate(H5S_SCALAR);
    H5Tset_size(type, H5T_VARIABLE);
    const hdf5::Handle attribute = H5Acreate2(file_, "kind", type, scalar, H5P_DEFAULT, H5P_DEFAULT);
    const char* text = kind.c_str();
    H5Awrite(attribute, type, &text);
    return *this;
  }
  Foreign& number(const char* name, std::int64_t value) {
    hdf5::write_attribute(file_, name, value);
    return *this;
  }
  Foreign& array(const char* name, std::vector<hsize_t> shape, hid_t type = H5T_STD_U8LE) {
    std::size_t bytes = H5Tget_size(type);
    for (const hsize_t size : shape) bytes *= size;
    return array(name, shape, Bytes(bytes, 0), H5P_DEFAULT, type);
  }
  Foreign& array(const char* name, std::vector<hsize_t> shape, const Bytes& content, hid_t creation,
                 hid_t type = H5T_STD_U8LE) {
    const hdf5::Handle space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
    const hdf5::Handle data = H5Dcreate2(file_, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    if (!content.empty()) H5Dwrite(data, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, content.data());
    return *this;
  }
  // A header that claims `entries` entries, without data.
  Foreign& hollow(const char* name, hsize_t entries) {
    const hsize_t chunk = 1024;
    const hdf5::Handle creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(creation, 1, &chunk);
    return array(name, {entries}, {}, creation);
  }
  Foreign& splits(std::vector<hsize_t> shape) {
    for (const char* name : split_names) array(name, shape);
    return *this;
  }

 private:
  hdf5::Lock lock_;
  hdf5::Handle file_;
};

}  // namespace longstride
