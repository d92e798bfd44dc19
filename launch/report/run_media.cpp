#include "launch/report/run_media.h"

#include <fmt/format.h>

#include <algorithm>

#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/files/inside.h"
#include "framework/core/text/json.h"
#include "launch/report/html.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

std::string figure(const std::string& media, const std::string& caption) {
  return fmt::format("<figure>{}<figcaption>{}</figcaption></figure>\n", media, html_text(caption));
}

// A contact sheet, as attention.json lists it.
struct Sheet {
  std::string file, part;
  std::int64_t layer = 0;
};

// UserError if it is not as `attention` writes it.
std::vector<Sheet> sheets_of(const std::string& path) {
  const nlohmann::json index = parse_json(read_at_most(path));
  const bool lists = index.is_object() && index.contains("sheets") && index.at("sheets").is_array();
  std::vector<Sheet> sheets;
  const auto text = [](const nlohmann::json& sheet, const char* key) {
    return sheet.is_object() && sheet.contains(key) && sheet.at(key).is_string() ? sheet.at(key).get<std::string>()
                                                                                 : "";
  };
  for (const nlohmann::json& sheet : lists ? index.at("sheets") : nlohmann::json::array()) {
    Sheet& s = sheets.emplace_back(Sheet{text(sheet, "file"), text(sheet, "part")});
    const bool number = !s.file.empty() && sheet.contains("layer") && sheet.at("layer").is_number_integer();
    if (!number || s.file.find('/') != std::string::npos || s.file.front() == '.') return {};
    s.layer = sheet.at("layer").get<std::int64_t>();
  }
  return sheets;
}

}  // namespace

// As names within the run, in order.
std::vector<std::string> RunMedia::files_in(const std::string& folder, const std::string& ending) const {
  std::vector<std::string> files;
  std::error_code none;
  for (const fs::path path : entries_of(inside(run_, folder))) {
    if (path.extension() != ending) continue;
    const std::string name = folder + "/" + path.filename().string();
    if (fs::is_regular_file(inside(run_, name), none)) files.push_back(name);
  }
  return files;
}

// `element`: the beginning of a tag without its source.
std::string RunMedia::shown(const std::string& name, const std::string& element) {
  constexpr std::uint64_t most = std::uint64_t{64} << 20;
  const bool sound = name.ends_with(".wav");
  const std::string path = inside(run_, name);
  const auto left_out = [&](const std::string& reason) {
    return fmt::format("<p>{} is left out: {}</p>\n", html_text(path), reason);
  };
  const std::uint64_t bytes = InputFile(path).size();
  if (shown_ + bytes > most) return left_out(fmt::format("a page has at most {} MiB of files", most >> 20));
  const std::string content = read_at_most(path, most);
  if (!content.starts_with(sound ? "RIFF" : "\x89PNG\r\n")) return left_out(sound ? "it is no WAV" : "it is no PNG");
  shown_ += bytes;
  return fmt::format("{} src=\"{}\">{}", element, data_uri(sound ? "audio/wav" : "image/png", content),
                     sound ? "</audio>" : "");
}

std::string RunMedia::pictures(const std::string& folder) {
  constexpr std::size_t most = 16;
  std::string out;
  std::error_code none;
  if (const std::string grid = folder + "/grid.png"; fs::exists(inside(run_, grid), none))
    return figure(shown(grid, "<img class=\"pixels\" alt=\"grid of samples\""), "all samples");
  const std::vector<std::string> files = files_in(folder, ".png");
  for (std::size_t i = 0; i < std::min(most, files.size()); ++i)
    out += shown(files[i],
                 fmt::format("<img class=\"pixels small\" alt=\"{}\"", html_text(fs::path(files[i]).stem().string()))) +
           "\n";
  return out;
}

std::string RunMedia::samples_of(const std::string& folder, std::size_t most) {
  constexpr std::size_t most_characters = 1500;
  std::string out = pictures(folder);
  const std::vector<std::string> sounds = files_in(folder, ".wav"), texts = files_in(folder, ".txt");
  for (std::size_t i = 0; i < std::min(most, sounds.size()); ++i)
    out += figure(shown(sounds[i], "<audio controls preload=\"none\""), fs::path(sounds[i]).filename().string());
  for (std::size_t i = 0; i < std::min(most, texts.size()); ++i)
    out += fmt::format("<pre class=\"sample\">{}</pre>\n",
                       html_text(read_beginning(inside(run_, texts[i]), most_characters)));
  const std::size_t left =
      (sounds.size() > most ? sounds.size() - most : 0) + (texts.size() > most ? texts.size() - most : 0);
  if (left > 0) out += fmt::format("<p>{} more in {}</p>\n", left, html_text((fs::path(run_) / folder).string()));
  return out;
}

// The last step is among them.
std::string RunMedia::samples_while_training() {
  constexpr std::size_t most_steps = 6, most_of_a_step = 1;
  std::vector<std::string> folders;
  std::error_code none;
  for (const fs::path path : entries_of(inside(run_, "samples"))) {
    if (!path.filename().string().starts_with("step-")) continue;
    const std::string name = "samples/" + path.filename().string();
    if (fs::is_directory(inside(run_, name), none)) folders.push_back(name);
  }
  std::string out;
  const std::size_t steps = std::min(most_steps, folders.size());
  for (std::size_t i = 1; i <= steps; ++i) {
    const std::string& folder = folders[i * folders.size() / steps - 1];
    out += fmt::format("<h3>{}</h3>\n", html_text(fs::path(folder).filename().string())) +
           samples_of(folder, most_of_a_step);
  }
  return out;
}

std::string RunMedia::samples() {
  const std::string out = samples_of("samples", 4), training = samples_while_training();
  if (out.empty() && training.empty())
    return fmt::format("<p>None yet: <code>longstride sample {}</code></p>\n", html_text(run_));
  return out + training;
}

std::string RunMedia::attention() {
  constexpr std::size_t most = 8;
  const std::string path = inside(run_, "attention/attention.json");
  if (std::error_code none; !fs::exists(path, none))
    return fmt::format("<p>None yet: <code>longstride attention {}</code></p>\n", html_text(run_));
  const std::vector<Sheet> sheets = sheets_of(path);
  if (sheets.empty()) return fmt::format("<p>{} lists no sheets.</p>\n", html_text(path));
  std::string out =
      "<p>White: what the outlined query attends to; black: the future. One row per head and one column per query; "
      "wide "
      "strips are stacked.</p>\n<div class=\"sheets\">\n";
  const std::size_t count = std::min(most, sheets.size());
  for (std::size_t i = 0; i < count; ++i) {
    const Sheet& sheet = sheets[i * sheets.size() / count];
    const std::string file = "attention/" + sheet.file, name = fmt::format("layer {}: {}", sheet.layer, sheet.part);
    if (!fs::exists(inside(run_, file))) continue;
    out += figure(shown(file, fmt::format("<img alt=\"attention of {}\"", html_text(name))), name);
  }
  return out + "</div>\n";
}

}  // namespace longstride
