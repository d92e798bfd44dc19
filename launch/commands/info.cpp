// longstride info FILE: what a prepared dataset holds, where it came from, and what its bytes look like.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "datasets/histogram.h"
#include "framework/core/errors.h"
#include "framework/core/files/sha256.h"
#include "framework/core/text/printable.h"
#include "launch/commands/commands.h"
#include "launch/commands/dataset_picture.h"
#include "launch/console/describe.h"
#include "launch/console/json_output.h"
#include "launch/console/output.h"
#include "launch/sample/run_tokens.h"

namespace longstride {
namespace {

struct InfoOptions {
  std::string path, picture;
  std::size_t sources = 10;
  bool verify = false, json = false;
  bool replace = false;  // the picture
};

// The findings of one pass over a split.
struct Scan {
  std::vector<std::int64_t> count;  // by value or id
  double entropy = 0;
  std::vector<std::uint8_t> first;  // bytes, or two for each token
  std::string sha256;

  std::int64_t all() const { return std::accumulate(count.begin(), count.end(), std::int64_t{0}); }
};

constexpr std::size_t preview_bytes = 72;

Scan scan_split(const Dataset& dataset, const std::string& name) {
  Scan out;
  Histogram histogram;
  Sha256 sha;
  const bool wide = dataset.info().token_bytes() > 1;
  std::vector<std::int64_t> ids(wide ? 65536 : 0);
  dataset.scan(name, [&](const std::uint8_t* bytes, std::int64_t n) {
    for (std::int64_t i = 0; wide && i < n / 2; ++i) ++ids[static_cast<std::size_t>(kernels::Ids{bytes, true}[i])];
    if (!wide) histogram.add(bytes, n);
    sha.update(bytes, static_cast<std::size_t>(n));
    const auto wanted = std::min<std::size_t>(preview_bytes - out.first.size(), static_cast<std::size_t>(n));
    out.first.insert(out.first.end(), bytes, bytes + wanted);
  });
  out.sha256 = sha.hex();
  const auto counts = histogram.counts();
  out.count = wide ? std::move(ids) : std::vector<std::int64_t>(counts.begin(), counts.end());
  out.count.resize(static_cast<std::size_t>(dataset.info().vocabulary));
  out.entropy = entropy_of(out.count);
  return out;
}

std::string preview(const Scan& scan, const DatasetInfo& info) {
  const bool text = is_text(info.kind);
  std::string out;
  DataConfig data;
  data.kind = info.kind;
  data.vocabulary = info.vocabulary;
  for (std::uint8_t byte : RunTokens(data, info.tokenizer, "tokenizer").text(scan.first)) {
    if (!text)
      out += fmt::format("{:02x} ", byte);
    else if (byte == '\n')
      out += "\\n";
    else if (byte >= 32 && byte < 127)
      out += static_cast<char>(byte);
    else
      out += fmt::format("\\x{:02x}", byte);
  }
  return out;
}

void print_histogram(const Scan& scan) {
  std::array<std::int64_t, 16> bins{};
  for (std::size_t value = 0; value < 256; ++value) bins[value / 16] += scan.count[value];
  const auto most = static_cast<double>(*std::max_element(bins.begin(), bins.end()));
  const auto total = static_cast<double>(scan.all());
  for (std::size_t b = 0; b < bins.size(); ++b) {
    const auto n = static_cast<double>(bins[b]);
    fmt::print("    {:>3} to {:>3} {:6.2f}% {}\n", 16 * b, 16 * b + 15, 100 * n / total,
               std::string(static_cast<std::size_t>(std::lround(40 * n / most)), '#'));
  }
}

void check_sum(const InfoOptions& o, const std::string& name, const Scan& scan, const std::string& stored) {
  if (!stored.empty() && stored != scan.sha256)
    throw user_error("{}: '{}' has the sha256 {}, but {} was written; the file is damaged, copy or prepare it again",
                     o.path, name, scan.sha256, printable(stored));
}

std::int64_t different_values(const Scan& scan) {
  return std::count_if(scan.count.begin(), scan.count.end(), [](std::int64_t n) { return n > 0; });
}

void print_scan(const std::string& name, const Scan& scan, const DatasetInfo& info) {
  const bool tokens = info.kind == DataKind::tokens;
  fmt::print("  {}: entropy {:.4f} bits per {} (order 0), {} different {}\n", name, scan.entropy, info.unit(),
             different_values(scan), tokens ? "ids" : "byte values");
  if (name == "train" && !tokens) print_histogram(scan);
  fmt::print("    begins {}\n", preview(scan, info));
}

void run_info(const InfoOptions& o) {
  const auto dataset = Dataset::open(o.path);
  if (!o.picture.empty()) {
    check_can_be_drawn(*dataset);
    check_picture_file(o.picture, o.replace, {o.path}, "--picture");
    check_json_output(o.json, o.picture);
  }
  nlohmann::ordered_json out;
  if (o.json)
    out = describe_as_json(*dataset);
  else
    fmt::print("{}", describe(*dataset, o.sources));
  std::vector<std::string> unverified;
  for (const std::string name : split_names) {
    const Scan scan = scan_split(*dataset, name);
    const std::string stored = dataset->stored_sha256(name);
    if (stored.empty()) unverified.push_back(name);
    check_sum(o, name, scan, stored);
    dataset->labels(name);  // compared with their checksum, as sources and boundaries have been
    if (o.json)
      out["splits"][name].update({{"verified", !stored.empty()},
                                  {fmt::format("entropy_bits_per_{}", dataset->info().unit()), scan.entropy},
                                  {"histogram", scan.count}});
    else if (scan.all() > 0)
      print_scan(name, scan, dataset->info());
  }
  const std::string names = fmt::format("{}", fmt::join(unverified, ", "));
  if (o.verify && !unverified.empty())
    throw user_error("{}: {}: no checksum to verify; prepare the file with this program", o.path, names);
  const std::string drawn = o.picture.empty() ? "" : draw_dataset(*dataset, o.picture);
  if (o.json && !drawn.empty()) out["picture"] = o.picture;
  if (o.json) return print_json(out);
  if (unverified.empty())
    fmt::print("  verified: every split has the checksum it was written with\n");
  else
    fmt::print("  not verified: {}: no checksum to verify\n", names);
  if (!drawn.empty()) print_written(o.picture, drawn);
}

}  // namespace

void add_info(CLI::App& app, Session& session) {
  auto o = std::make_shared<InfoOptions>();
  CLI::App* info = app.add_subcommand("info", "Print what a prepared dataset holds and where it came from");
  info->add_option("file", o->path, "dataset written by `longstride prepare`")->required();
  info->add_option("--sources", o->sources, "largest number of source files to list")->capture_default_str();
  info->add_flag("--verify", o->verify, "also fail if a split has no checksum; existing ones are always verified");
  CLI::Option* picture =
      info->add_option("--picture", o->picture,
                       "PNG to write: a contact sheet of the pictures, or the wave of the sound, of every split");
  info->add_flag("--force", o->replace, "replace the picture if it exists")->needs(picture);
  add_json_option(*info, o->json);
  info->callback([o, &session] {
    if (session.comm->rank() == 0) run_info(*o);
  });
}

}  // namespace longstride
