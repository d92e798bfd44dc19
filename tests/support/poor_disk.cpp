// Preloaded into a command: all its disks are poor.
#include "tests/support/poor_disk.h"

namespace {
const longstride::testing::PoorDisk poor;
}
