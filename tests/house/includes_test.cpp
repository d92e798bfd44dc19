// Each room of the source sees only the rooms below it. Reads every #include of the source.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "tests/support/command.h"

namespace longstride::testing {
namespace {

namespace fs = std::filesystem;

// The rooms that a room may include besides itself: docs/develop/overview.md, "Rooms".
const std::map<std::string, std::set<std::string>> may_see = {
    {"kernels", {}},
    {"framework/core", {"kernels"}},
    {"framework/ops", {"kernels", "framework/core"}},
    {"framework/layers", {"kernels", "framework/core", "framework/ops"}},
    {"framework/mixers", {"kernels", "framework/core", "framework/ops", "framework/layers"}},
    {"framework/models", {"kernels", "framework/core", "framework/ops", "framework/layers", "framework/mixers"}},
    {"framework/optim", {"kernels", "framework/core", "framework/ops"}},
    {"framework/comm", {"kernels", "framework/core"}},
    {"datasets", {"kernels", "framework/core"}},
    {"framework/train",
     {"kernels", "framework/core", "framework/ops", "framework/layers", "framework/mixers", "framework/models",
      "framework/optim", "framework/comm"}},
    {"launch",
     {"kernels", "framework/core", "framework/ops", "framework/layers", "framework/mixers", "framework/models",
      "framework/optim", "framework/comm", "datasets", "framework/train"}},
};

// Libraries that only one room may use.
const std::map<std::string, std::string> belongs_to = {
    {"yaml-cpp/", "launch"},       {"CLI/", "launch"},     {"mpi.h", "framework/comm"},
    {"nccl.h", "framework/comm"},  {"hdf5.h", "datasets"}, {"png.h", "datasets"},
    {"sndfile.h", "datasets"},     {"soxr.h", "datasets"}, {"cblas.h", "kernels"},
    {"sentencepiece", "datasets"},
};

std::string room_of(const std::string& path) {
  for (const auto& [room, below] : may_see)
    if (path.starts_with(room + "/")) return room;
  return "";
}

struct Include {
  std::string name;
  bool angled;
};

std::vector<Include> includes_of(const std::string& text) {
  std::vector<Include> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::size_t at = line.find_first_not_of(" \t");
    if (at == std::string::npos || line[at] != '#') continue;
    at = line.find_first_not_of(" \t", at + 1);
    if (at == std::string::npos || line.compare(at, 7, "include") != 0) continue;
    const std::size_t open = line.find_first_of("\"<", at);
    const std::size_t close = open == std::string::npos ? open : line.find_first_of("\">", open + 1);
    if (close != std::string::npos) found.push_back({line.substr(open + 1, close - open - 1), line[open] == '<'});
  }
  return found;
}

std::string problem_of(const std::string& room, const Include& include) {
  if (include.angled) {
    for (const auto& [library, owner] : belongs_to)
      if (include.name.starts_with(library) && owner != room) return "only " + owner + " may use this library";
    return room_of(include.name).empty() ? "" : "a file of this project belongs in quotes";
  }
  const std::string seen = room_of(include.name);
  if (seen.empty()) return "not a path from the root into a room";
  return seen == room || may_see.at(room).contains(seen) ? "" : room + " may not see " + seen;
}

// Headers of the C interface name one another without a folder, because they are installed side by side.
bool lies_beside(const fs::path& file, const std::string& path, const Include& include) {
  return path.starts_with("kernels/c_api/") && !include.angled && include.name.find('/') == std::string::npos &&
         fs::exists(file.parent_path() / include.name);
}

// Every breach under `root`, as "path includes name: why"; `files` counts what was read.
std::vector<std::string> breaches(const fs::path& root, int& files) {
  std::vector<std::string> found;
  for (const char* folder : {"kernels", "framework", "datasets", "launch"}) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string ending = entry.path().extension().string();
      if (ending != ".h" && ending != ".cpp" && ending != ".cu" && ending != ".cuh") continue;
      ++files;
      const std::string path = entry.path().lexically_relative(root).string(), room = room_of(path);
      if (room.empty()) found.push_back(path + " is in no room");
      for (const Include& include : includes_of(room.empty() ? "" : text_of(entry.path().string()))) {
        if (lies_beside(entry.path(), path, include)) continue;
        if (const std::string problem = problem_of(room, include); !problem.empty())
          found.push_back(path + " includes " + include.name + ": " + problem);
      }
    }
  }
  return found;
}

TEST(Includes, NoneLeadsToAHigherRoom) {
  int files = 0;
  for (const std::string& breach : breaches(LONGSTRIDE_SOURCE_DIR, files)) ADD_FAILURE() << breach;
  EXPECT_GT(files, 150);
}

TEST(Includes, BreachesAreFound) {
  const TemporaryDirectory dir;
  write_text(dir / "kernels/a.h", "#pragma once\n#include \"framework/core/tensor.h\"\n#include \"kernels/b.h\"\n");
  write_text(dir / "framework/layers/a.cpp", "  #  include\t\"framework/train/trainer.h\"\n#include <vector>\n");
  write_text(dir / "framework/train/a.cpp", "#include <yaml-cpp/yaml.h>\n#include \"framework/models/model.h\"\n");
  write_text(dir / "datasets/a.cu", "#include \"../launch/recipe/recipe.h\"\n// #include \"launch/recipe/recipe.h\"\n");
  write_text(dir / "framework/ops/a.h", "#include <launch/recipe/recipe.h>\n");
  write_text(dir / "framework/stray.h", "");
  write_text(dir / "kernels/c_api/a.h", "#include \"b.h\"\n#include \"absent.h\"\n");
  write_text(dir / "kernels/c_api/b.h", "");
  write_text(dir / "launch/fine.cpp", "#include \"kernels/gemm/gemm.h\"\n#include <CLI/CLI.hpp>\n");
  int files = 0;
  std::vector<std::string> found = breaches(dir.path(), files);
  std::sort(found.begin(), found.end());
  const std::vector<std::string> expected = {
      "datasets/a.cu includes ../launch/recipe/recipe.h: not a path from the root into a room",
      "framework/layers/a.cpp includes framework/train/trainer.h: framework/layers may not see framework/train",
      "framework/ops/a.h includes launch/recipe/recipe.h: a file of this project belongs in quotes",
      "framework/stray.h is in no room",
      "framework/train/a.cpp includes yaml-cpp/yaml.h: only launch may use this library",
      "kernels/a.h includes framework/core/tensor.h: kernels may not see framework/core",
      "kernels/c_api/a.h includes absent.h: not a path from the root into a room",
  };
  EXPECT_EQ(found, expected);
  EXPECT_EQ(files, 9);
}

// In lower case, with _ before and after every word of a name: LongMemory and long_memory are both _long_memory_, and
// no word is found within another one.
std::string in_words(const std::string& text) {
  const auto is = [&](int (*kind)(int), std::size_t i) {
    return i < text.size() && kind(static_cast<unsigned char>(text[i])) != 0;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!is(std::isalnum, i)) {
      if (i > 0 && is(std::isalnum, i - 1)) out += '_';
      if (text[i] != '_') out += ' ';
      continue;
    }
    const bool continues = i > 0 && is(std::isalnum, i - 1),
               capital = is(std::isupper, i) && (!is(std::isupper, i - 1) || is(std::islower, i + 1));
    if ((!continues || capital) && !out.ends_with('_')) out += '_';
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(text[i])));
  }
  return out + '_';
}

// Files of launch/ and framework/train that name a model, a folder of framework/models, the class of a mixer, of which
// framework/mixers has a folder, or an objective, a header in datasets/objectives: as "path names folder".
std::vector<std::string> named_architectures(const fs::path& root) {
  std::vector<std::string> found;
  std::vector<std::pair<std::string, std::string>> names;  // folder, and how code would name it
  for (const auto& [room, suffix] : {std::pair("framework/models", ""), std::pair("framework/mixers", "_mixer")})
    for (const auto& folder : fs::exists(root / room) ? fs::directory_iterator(root / room) : fs::directory_iterator())
      if (folder.is_directory())
        names.emplace_back(folder.path().filename().string(), in_words(folder.path().filename().string() + suffix));
  const fs::path objectives = root / "datasets/objectives";
  for (const auto& file : fs::exists(objectives) ? fs::directory_iterator(objectives) : fs::directory_iterator())
    if (const std::string stem = file.path().stem().string(); file.path().extension() == ".h" && stem != "kinds")
      names.emplace_back(stem, in_words(stem));
  for (const char* room : {"launch", "framework/train"})
    for (const auto& file : fs::recursive_directory_iterator(root / room)) {
      if (file.path().extension() != ".h" && file.path().extension() != ".cpp") continue;
      const std::string raw = text_of(file.path().string()), text = in_words(raw);
      for (const auto& [folder, name] : names)
        if (text.find(name) != std::string::npos || raw.find("framework/mixers/" + folder + "/") != std::string::npos)
          found.push_back(file.path().lexically_relative(root).string() + " names " + folder);
    }
  std::sort(found.begin(), found.end());
  return found;
}

TEST(Includes, LaunchAndTrainNameNoArchitectureNoMixerAndNoObjective) {
  EXPECT_EQ(named_architectures(LONGSTRIDE_SOURCE_DIR), std::vector<std::string>{});
  const TemporaryDirectory dir;
  write_text(dir / "framework/models/long_memory/config.h", "");
  write_text(dir / "framework/train/a.cpp", "#include \"framework/models/long_memory/config.h\"\n");
  write_text(dir / "launch/run/b.h", "// LongMemory\n");
  write_text(dir / "launch/fine.cpp", "// a long memory\n");
  write_text(dir / "framework/models/mine/config.h", "");
  write_text(dir / "launch/c.cpp", "MineConfig config;\n");
  write_text(dir / "launch/determined.cpp", "int determined(int minext);\n");
  write_text(dir / "framework/mixers/lookup/mixer.h", "");
  write_text(dir / "launch/d.cpp", "#include \"framework/mixers/lookup/mixer.h\"\n");
  write_text(dir / "launch/e.cpp", "const LookupMixer& mixer; // a lookup\n");
  write_text(dir / "launch/f.cpp", "// a lookup\n");
  write_text(dir / "datasets/objectives/cloze.h", "");
  write_text(dir / "launch/g.cpp", "Cloze objective;\n");
  EXPECT_EQ(named_architectures(dir.path()),
            (std::vector<std::string>{"framework/train/a.cpp names long_memory", "launch/c.cpp names mine",
                                      "launch/d.cpp names lookup", "launch/e.cpp names lookup",
                                      "launch/g.cpp names cloze", "launch/run/b.h names long_memory"}));
}

}  // namespace
}  // namespace longstride::testing
