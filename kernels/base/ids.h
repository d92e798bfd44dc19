// Ids of tokens: bytes, or 16 bits each where a vocabulary has more than 256. Kernels read either through this view.
#pragma once
#include "kernels/base/host_device.h"
#include "kernels/base/tensor.h"

namespace longstride::kernels {

struct Ids {
  const void* data = nullptr;
  bool wide = false;  // 16 bits

  LONGSTRIDE_HOST_DEVICE int operator[](std::int64_t i) const {
    return wide ? static_cast<const std::uint16_t*>(data)[i] : static_cast<const std::uint8_t*>(data)[i];
  }
};

// ids[i] = id, below 256 unless `wide`.
LONGSTRIDE_HOST_DEVICE inline void write_id(void* ids, bool wide, std::int64_t i, int id) {
  if (wide)
    static_cast<std::uint16_t*>(ids)[i] = static_cast<std::uint16_t>(id);
  else
    static_cast<std::uint8_t*>(ids)[i] = static_cast<std::uint8_t>(id);
}

inline Ids ids_of(const Tensor& t) { return {t.data(), t.dtype() == Dtype::u16}; }

// The type of a vocabulary's ids.
inline Dtype id_type(std::int64_t vocabulary) { return vocabulary > 256 ? Dtype::u16 : Dtype::u8; }

}  // namespace longstride::kernels
