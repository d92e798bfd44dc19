#include "datasets/formats/wav.h"
#include "datasets/prepare/prepare.h"
#include "tests/datasets/support.h"

namespace longstride {
namespace {

TEST(NoAudio, SaysWhatToInstall) {
  const Folder folder;
  write_wav(folder / "a.wav", std::vector<float>(2000, 0.1f), 12000);
  PrepareAudioConfig config;
  config.inputs = {folder.path()};
  expect_user_error([&] { prepare_audio(config, to(folder / "x.h5")); }, "libsndfile1-dev");
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
}

}  // namespace
}  // namespace longstride
