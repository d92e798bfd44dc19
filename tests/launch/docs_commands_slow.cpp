// Every `longstride` command on the pages below runs, in order and at toy size, in a folder with the recipes and files
// that they name. Settings that make the models small are appended.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <cmath>
#include <sstream>

#include "datasets/formats/wav.h"
#include "launch/commands/toy_data.h"
#include "tests/support/command.h"

namespace longstride::testing {
namespace {

namespace fs = std::filesystem;

// The indented lines of a page that call the command, continuation lines joined.
std::vector<std::string> commands_of(const std::string& page) {
  std::vector<std::string> found;
  std::istringstream lines(text_of(LONGSTRIDE_SOURCE_DIR "/" + page));
  std::string open;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("    ")) continue;
    std::string command = open + line.substr(line.find_first_not_of(' '));
    open.clear();
    if (command.ends_with("\\")) {
      open = command.substr(0, command.size() - 1);
      continue;
    }
    const bool ours =
        command.find("$L ") != std::string::npos || command.starts_with("longstride ") || command.starts_with("cp ");
    if (ours && !command.starts_with("#") && !command.starts_with("longstride: ")) found.push_back(command);
  }
  return found;
}

// The same command at toy size.
std::string toy(const std::string& command) {
  const auto has = [&](const char* word) { return command.find(word) != std::string::npos; };
  if (const std::size_t at = command.find("--train-vocabulary 4096"); at != std::string::npos)
    return std::string(command).replace(at, std::string("--train-vocabulary 4096").size(), "--train-vocabulary 300");
  if (has(" train "))
    return command +
           " --device cpu --set train.steps=2 --set model.width=32 --set model.layers=1 --set train.evaluate_windows=1 "
           "--set train.warmup=1";
  if (has(" reproduce ") && has("--scale speed"))
    return command +
           " --device cpu --steps 1 --set model.width=32 --set model.layers=1 --set model.heads=2 "
           "--set data.context=3072 --set train.global_batch=1 --set train.micro_batch=1";
  if (has("--train-seconds"))
    return "longstride reproduce table1 --train-seconds 1 --scale smoke --windows 1 --output short";
  if (has(" reproduce "))
    return command + (has("--scale") ? "" : " --scale smoke") + (has("--windows") ? "" : " --windows 1") +
           " --device cpu --set train.steps=2 --set train.warmup=1 --set model.layers=1";
  if (has(" bench ")) return command + " --device cpu --set model.width=32 --set model.layers=1 --set model.heads=2";
  if (has(" sample ") && !has("cifar10") && !has("--length")) return command + " --length 600";
  if (has(" eval ")) return command + " --device cpu";
  return command;
}

// The listing of a page that begins with this line, without the indentation.
std::string listing(const std::string& page, const std::string& first) {
  std::istringstream lines(text_of(LONGSTRIDE_SOURCE_DIR "/" + page));
  std::string found;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("    " + first) || (!found.empty() && line.starts_with("    ")))
      found += line.substr(4) + "\n";
    else if (!found.empty())
      break;
  return found;
}

void make_files(const TemporaryDirectory& dir) {
  for (const char* name : {"own", "remembers"})
    write_text(dir / (std::string(name) + ".yaml"), listing("docs/guide/recipes.md", std::string("name: ") + name));
  std::string text;
  for (int i = 0; i < 100000; ++i) text += static_cast<char>('a' + i * i % 23);
  write_text(dir / "FILE", text);
  write_text(dir / "prompt.txt", text.substr(0, 100));
  for (const char* name : {"train.bin", "val.bin"}) write_text(dir / name, text);  // 16-bit ids, two letters each
  write_text(dir / "texts/a.txt", text);
  std::string records;
  for (int i = 0; i < 40; ++i)
    records += "{\"text\": \"" + text.substr(static_cast<std::size_t>(100 * i), 100) + "\"}\n";
  write_text(dir / "train.jsonl", records);
  write_text(dir / "valid.jsonl", records.substr(0, 1130));
  fs::create_directories(dir / "more");
  std::ofstream(dir / "enwik8", std::ios::binary).seekp(99999999).put('x');  // as long as the real one
  const std::string pack =
      "cd '" + dir.path() +
      "' && gzip -c FILE > more/FILE.gz && gzip train.jsonl && python3 -m zipfile -c enwik8.zip enwik8";
  ASSERT_EQ(std::system(pack.c_str()), 0);
  std::vector<float> sound(40000);
  fs::create_directories(dir / "music");
  float pitch = 0.05F;
  for (const char* name : {"a.wav", "b.wav", "c.wav"}) {
    for (std::size_t i = 0; i < sound.size(); ++i) sound[i] = std::sin(pitch * static_cast<float>(i));
    pitch *= 1.5F;  // copies would go into one split
    write_wav(dir / (std::string("music/") + name), sound, 12000);
  }
  made_up_dataset(DataKind::cifar10, dir / "made");
  made_up_dataset(DataKind::images, dir / "made");
  fs::rename(dir / "made/made-up-cifar10", dir / "cifar-10-batches-bin");
  ASSERT_EQ(std::system(("cd '" + dir.path() + "' && tar -czf cifar-10-binary.tar.gz cifar-10-batches-bin").c_str()),
            0);
  fs::rename(dir / "made/made-up-images", dir / "train_64x64");
  for (const char* copy : {"valid_64x64", "photos"}) fs::copy(dir / "train_64x64", dir / copy);
  fs::create_directories(dir / "data");
  fs::create_directories(dir / "bin");
  fs::create_directory_symlink(LONGSTRIDE_SOURCE_DIR "/recipes", dir / "recipes");
  fs::create_symlink(LONGSTRIDE_COMMAND, dir / "bin/longstride");
}

TEST(DocsCommands, EveryCommandOfTheReadmeAndTheGuideRuns) {
  const TemporaryDirectory dir;
  make_files(dir);
  int ran = 0;
  for (const char* page :
       {"README.md", "docs/guide/getting_started.md", "docs/guide/data.md", "docs/guide/recipes.md",
        "docs/guide/reproducing.md", "docs/guide/looking_at_results.md", "docs/guide/fine_tuning.md"})
    for (const std::string& command : commands_of(page)) {
      SCOPED_TRACE(toy(command));
      const std::string script =
          "cd '" + dir.path() + "' && export PATH=$PWD/bin:$PATH L=longstride OMP_NUM_THREADS=2 " +
          "CUDA_VISIBLE_DEVICES= GOMP_SPINCOUNT=1000 OMPI_ALLOW_RUN_AS_ROOT=1 " +
          "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1\n" + toy(command) + "\n";
      write_text(dir / "command.sh", script);
      const std::string out = dir / "out";
      const int status = std::system(("bash '" + (dir / "command.sh") + "' >'" + out + "' 2>&1").c_str());
      EXPECT_EQ(status, 0) << text_of(out);
      ++ran;
    }
  EXPECT_GE(ran, 20);
}

}  // namespace
}  // namespace longstride::testing
