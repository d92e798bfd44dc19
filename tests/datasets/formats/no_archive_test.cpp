#include "tests/datasets/formats/pictures.h"

namespace longstride {
namespace {

TEST(NoArchive, SaysWhatToInstall) {
  const Folder folder;
  for (const char* name : {"a.tar", "a.npz"}) {
    put_file(folder / name, Bytes(2048, 0));
    expect_user_error([&] { prepare_images(config_of({folder / name}), to(folder / "x.h5")); }, "libarchive-dev");
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
}

TEST(NoArchive, SaysWhatToInstallForCifar10) {
  const Folder folder;
  put_file(folder / "cifar-10-binary.tar.gz", {0x1f, 0x8b, 8, 0, 0, 0});
  PrepareCifar10Config config;
  config.inputs = {folder / "cifar-10-binary.tar.gz"};
  expect_user_error([&] { prepare_cifar10(config, to(folder / "x.h5")); }, "libarchive-dev");
}

TEST(NoArchive, SaysWhatToInstallToUnpackText) {
  const Folder folder;
  const Bytes zip = {'P', 'K', 3, 4}, xz = {0xfd, '7', 'z', 'X', 'Z', 0};
  for (const Bytes& start : {zip, xz}) {
    put_file(folder / "text", start);
    expect_user_error([&] { prepare_bytes({{folder / "text"}}, to(folder / "x.h5")); },
                      "needs libarchive, which this build lacks; install libarchive-dev");
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
}

}  // namespace
}  // namespace longstride
