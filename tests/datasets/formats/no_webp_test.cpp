#include "tests/datasets/formats/pictures.h"

namespace longstride {
namespace {

TEST(NoWebP, SaysWhatToInstall) {
  const Folder folder;
  put_file(folder / "photo", {'R', 'I', 'F', 'F', 9, 0, 0, 0, 'W', 'E', 'B', 'P'});
  expect_user_error([&] { prepare_images(config_of({folder / "photo"}), to(folder / "x.h5")); },
                    "reading WebP files needs libwebp, which this build lacks; install libwebp-dev");
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
}

}  // namespace
}  // namespace longstride
