// Settings of a scan from a caller in C, checked and in the terms of the kernels.
#pragma once
#include <cstdint>

#include "kernels/c_api/scan.h"
#include "kernels/c_api/settings.h"
#include "kernels/scan/scan.h"

namespace longstride::kernels::c_api {

struct ScanSettings {
  Settings rows;
  ScanForm form = ScanForm::sum;
  longstride_scan_decay decay = LONGSTRIDE_NO_DECAY;
  bool normalised = false, groups = false, forward_only = false;
  Direction direction = Direction::past;

  bool both() const { return direction == Direction::both; }
  bool decays() const { return decay != LONGSTRIDE_NO_DECAY; }
};

// Throws Mistake or Unsupported.
ScanSettings scan_settings_of(const longstride_scan_config* config);

}  // namespace longstride::kernels::c_api
