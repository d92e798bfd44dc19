// Checks the metadata that HDF5 1.10 does not, where bad values make it crash or loop forever.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "datasets/formats/byte_input.h"

namespace longstride::hdf5 {

class HeaderGuard {
 public:
  explicit HeaderGuard(std::shared_ptr<const Blob> file) : file_(std::move(file)) {}

  // True if HDF5 may read these `count` bytes at `offset` as an object's header or a part of one. It may not if a
  // message of that header is inconsistent or stored elsewhere. All parts of a header are checked when HDF5 reads its
  // beginning.
  bool allows(std::uint64_t offset, const std::uint8_t* block, std::size_t count);

 private:
  struct Form {
    bool first_version;
    std::size_t before;  // bytes of a message before its content
  };
  // An array as the messages of a header describe it, and the number of parts that hold them.
  struct Dataset {
    std::vector<std::uint64_t> shape;  // and what it may grow to
    std::vector<std::uint8_t> layout;  // the message
    bool filtered = false;
    int parts = 0;
  };
  bool header_holds(std::uint64_t offset, const std::uint8_t* block, std::size_t count);
  bool parts_hold(std::uint64_t offset, const std::uint8_t* block, std::size_t count, Dataset& dataset);
  bool messages_hold(std::uint64_t offset, std::uint64_t size, Form form, Dataset& dataset);

  std::shared_ptr<const Blob> file_;
  std::map<std::uint64_t, std::uint64_t> seen_;  // parts of headers: begin and end
};

}  // namespace longstride::hdf5
