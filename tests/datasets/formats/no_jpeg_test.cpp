#include "tests/datasets/formats/pictures.h"

namespace longstride {
namespace {

TEST(NoJPEG, SaysWhatToInstall) {
  const Folder folder;
  put_file(folder / "photo", {0xff, 0xd8, 0xff, 0xe0, 0, 16});
  expect_user_error([&] { prepare_images(config_of({folder / "photo"}), to(folder / "x.h5")); },
                    "reading JPEG files needs libjpeg, which this build lacks; install libjpeg-dev");
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
}

}  // namespace
}  // namespace longstride
