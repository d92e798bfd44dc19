#include "launch/reproduce/reproduction.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "framework/core/text/numbers.h"
#include "framework/models/mixes_positions.h"
#include "framework/train/metrics/progress.h"

namespace longstride {
namespace {

const char* const titles[] = {"", "bits per byte on four datasets", "time per iteration of three patterns",
                              "enwik8 by the minimum context of a scored byte", "classical music at longer contexts"};

std::string name_of(Scale scale) { return scale == Scale::paper ? "paper" : scale == Scale::smoke ? "smoke" : "speed"; }

std::string evidence_text(const Measured& m) {
  switch (m.evidence) {
    case Evidence::none:
      return "none: " + m.note;
    case Evidence::speed:
      return "speed only, " + counted(m.steps, "step");
    case Evidence::toy:
      return "toy size, " + counted(m.steps, "step");
    case Evidence::short_run:
      return fmt::format("short run, {}, {:.2g}% of the tokens", counted(m.steps, "step"),
                         100 * static_cast<double>(m.tokens) / static_cast<double>(m.published_tokens));
    case Evidence::full_run:
      return "full run";
  }
  return "";
}

constexpr const char* evidence_keys[] = {"none", "speed only", "toy size", "short run", "full run"};
const char* evidence_key(Evidence evidence) { return evidence_keys[static_cast<int>(evidence)]; }

std::string cell(const std::optional<double>& value, const char* format) {
  return value ? fmt::format(fmt::runtime(format), *value) : "";
}
std::optional<double> positive(double value) { return value > 0 ? std::optional(value) : std::nullopt; }

bool on_gpu(const Measured& m) { return !m.device.empty() && m.device != "the CPU"; }

std::string hours_cell(const Measured& m) {
  if (m.device_hours <= 0) return "";
  return on_gpu(m) ? fmt::format("{:.3g}", m.device_hours) : fmt::format("0 ({:.2g} of a CPU)", m.device_hours);
}

std::vector<std::string> cells(const PaperTable& table, const TableRow& row) {
  const Measured& m = row.measured;
  const Reproduces& paper = row.paper.published.reproduces;
  std::vector<std::string> out = {row.paper.label,
                                  fmt::format("{:.{}f}", row.paper.bits_per_byte, table.number == 3 ? 4 : 2),
                                  cell(m.bits_per_byte, "{:.4f}"), cell(positive(paper.time_per_iteration), "{:.2f}"),
                                  cell(m.seconds_per_step, "{:.4g}")};
  if (table.number == 2) {
    const Speedup speedup = speedup_over_dense(table, row);
    out.push_back(cell(speedup.paper, "{:.2f}"));
    out.push_back(cell(speedup.measured, "{:.2f}"));
  }
  out.push_back(fmt::format("{} / {}", in_millions(paper.parameters), in_millions(static_cast<double>(m.parameters))));
  out.push_back(m.tokens > 0 ? fmt::format("{:.3g}", static_cast<double>(m.tokens)) : "");
  out.push_back(hours_cell(m));
  out.push_back(evidence_text(m));
  return out;
}

std::string line(const std::vector<std::string>& cells) { return fmt::format("| {} |\n", fmt::join(cells, " | ")); }

std::vector<std::string> head(const PaperTable& table) {
  std::vector<std::string> out = {"row", "bits/byte, paper", "measured", "s/iteration, paper", "measured"};
  if (table.number == 2) out.insert(out.end(), {"times dense, paper", "measured"});
  out.insert(out.end(), {"parameters, paper / here", "tokens seen", "GPU-hours", "evidence"});
  return out;
}

// Columns that are as wide as their cells need, the first and the last on the left.
std::string aligned(const std::vector<std::vector<std::string>>& lines) {
  std::vector<std::size_t> widths(lines.front().size(), 0);
  for (const auto& line : lines)
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  std::string out;
  for (const auto& line : lines) {
    out += fmt::format("{:<{}}", line.front(), widths.front());
    for (std::size_t i = 1; i + 1 < line.size(); ++i) out += fmt::format("  {:>{}}", line[i], widths[i]);
    out += "  " + line.back();
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  }
  return out;
}

std::string legend(const PaperTable& table) {
  std::string out;
  for (const TableRow& row : table.rows) {
    const Measured& m = row.measured;
    if (m.evidence == Evidence::none) continue;
    std::string what = fmt::format("{} on {} of {}", m.precision, counted(m.ranks, "rank"), m.device);
    if (!m.data.empty()) what += ", data " + m.data;
    if (m.bits_per_byte)
      what += fmt::format(", {} bytes of {} scored{}", thousands(m.scored), m.split,
                          row.paper.min_context > 0
                              ? fmt::format(" with at least {} of context", thousands(row.paper.min_context))
                              : "");
    if (!m.note.empty()) what += "; " + m.note;
    out += fmt::format("- {}: {}\n", row.paper.label, what);
  }
  return out;
}

std::string costs(const PaperTable& table) {
  std::string rows;
  for (const TableRow& row : table.rows) {
    const Measured& m = row.measured;
    if (table.scale == Scale::smoke || table.number == 3 || !m.seconds_per_step || !on_gpu(m)) continue;
    const auto hours = [&](int ranks) {
      const bool wider = row.paper.published.train.global_batch < ranks;
      return fmt::format("{:.3g}{}", full_run_hours(row, ranks), wider ? "*" : "");
    };
    rows += line({row.paper.label, fmt::format("{:.3g}", static_cast<double>(m.published_tokens)),
                  rate_text(m.tokens_per_second(row.paper)), hours(1), hours(8), hours(64)});
  }
  if (rows.empty()) return "";
  return "\nWhat the published training would take at this speed, in hours on 1, 8 and 64 such GPUs (8 linked by "
         "NVLink "
         "at 350 GB/s, 64 at 50 GB/s each; gradients in 16 bits, not overlapped; computed, not run):\n\n"
         "| row | tokens | tokens/s | 1 | 8 | 64 |\n|---|---|---|---|---|---|\n" +
         rows + "\n\\* with a batch of as many sequences as GPUs, which changes the training.\n";
}

nlohmann::ordered_json or_null(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

bool is_dense(const Recipe& recipe) {
  const auto model = recipe.model->make_model();
  const auto* mixes = capability<MixesPositions>(*model);
  for (std::int64_t layer = 0; mixes != nullptr && layer < mixes->layers(); ++layer)
    for (std::int64_t head = 0; head < mixes->mixer(layer).heads(); ++head)
      if (mixes->mixer(layer).kind(head) != "dense") return false;
  return mixes != nullptr;
}

}  // namespace

Speedup speedup_over_dense(const PaperTable& table, const TableRow& row) {
  const auto per_token = [](const TableRow& r) -> std::optional<double> {
    return r.measured.seconds_per_step ? std::optional(1 / r.measured.tokens_per_second(r.paper)) : std::nullopt;
  };
  for (const TableRow& dense : table.rows) {
    if (!is_dense(dense.paper.published) || dense.paper.published.data.kind != row.paper.published.data.kind) continue;
    Speedup out;
    const double ours = row.paper.published.reproduces.time_per_iteration;
    if (ours > 0) out.paper = dense.paper.published.reproduces.time_per_iteration / ours;
    if (const auto a = per_token(dense), b = per_token(row); a && b) out.measured = *a / *b;
    return out;
  }
  return {};
}

double full_run_hours(const TableRow& row, int ranks) {
  const Measured& m = row.measured;
  const TrainConfig& train = row.paper.published.train;
  constexpr double node = 350e9, network = 50e9;  // bytes/s of one GPU's links
  const double sequences = static_cast<double>(std::max<std::int64_t>(train.global_batch, ranks));
  const double step_tokens = sequences * static_cast<double>(row.paper.published.data.context);
  const double steps = static_cast<double>(m.published_tokens) / step_tokens;
  const double one = m.tokens_per_second(row.paper) / m.ranks;
  const double bytes = 2.0 * static_cast<double>(m.parameters);
  const double reduce = ranks == 1 ? 0 : 2.0 * (ranks - 1) / ranks * bytes / (ranks <= 8 ? node : network);
  return steps * (step_tokens / ranks / one + reduce) / 3600;
}

Evidence evidence_of(const std::string& name) {
  const auto* const found = std::find(std::begin(evidence_keys), std::end(evidence_keys), name);
  return found == std::end(evidence_keys) ? Evidence::none : static_cast<Evidence>(found - std::begin(evidence_keys));
}

std::string markdown(const PaperTable& table) {
  std::string out = fmt::format("# Table {}: {}\n\n", table.number, titles[table.number]);
  if (table.scale == Scale::smoke)
    out +=
        "At toy size: this shows that every row can be trained and scored here, but says nothing about the paper's "
        "figures.\n\n";
  const std::vector<std::string> columns = head(table);
  out += line(columns) + line(std::vector<std::string>(columns.size(), "---"));
  for (const TableRow& row : table.rows) out += line(cells(table, row));
  const std::string notes = legend(table);
  if (!notes.empty()) out += "\n" + notes;
  return out + costs(table);
}

// Short names of rows, and headings as "bits/byte, paper" in two lines. Parameters, tokens and hours would make lines
// wider than a terminal.
std::string terminal_table(const PaperTable& table) {
  std::vector<std::vector<std::string>> lines(2);
  std::string notes;
  const auto columns = head(table);
  const auto chosen = [&](const std::vector<std::string>& cells, auto&& add) {
    for (std::size_t i = 0; i < cells.size(); ++i)
      if (i + 4 < cells.size() || i + 1 == cells.size()) add(cells[i]);
  };
  chosen(columns, [&](const std::string& heading) {
    const std::size_t comma = heading.find(", ");
    lines[0].push_back(comma == heading.npos ? "" : heading.substr(0, comma));
    lines[1].push_back(comma == heading.npos ? heading : heading.substr(comma + 2));
  });
  for (const TableRow& row : table.rows) {
    chosen(cells(table, row), [&, line = lines.size()](const std::string& cell) {
      lines.resize(line + 1);
      lines[line].push_back(cell);
    });
    const std::string& name = table.number == 3 ? row.paper.label : row.paper.key;  // table 3 scores one run six times
    lines.back().front() = name;
    if (row.measured.evidence == Evidence::none) lines.back().back() = "none";
    if (!row.measured.note.empty()) notes += fmt::format("{}: {}\n", name, row.measured.note);
  }
  return fmt::format("Table {}: {}\n{}\n{}{}{}", table.number, titles[table.number],
                     table.scale == Scale::smoke ? "At toy size, which says nothing about the paper's figures.\n" : "",
                     aligned(lines), notes.empty() ? "" : "\n", notes);
}

nlohmann::ordered_json json(const PaperTable& table) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const TableRow& row : table.rows) {
    const Measured& m = row.measured;
    const Reproduces& paper = row.paper.published.reproduces;
    nlohmann::ordered_json out = {{"row", row.paper.label},
                                  {"recipe", row.paper.key},
                                  {"run", row.paper.run},
                                  {"paper", {{"bits_per_byte", row.paper.bits_per_byte}}},
                                  {"evidence", evidence_key(m.evidence)},
                                  {"note", m.note},
                                  {"bits_per_byte", or_null(m.bits_per_byte)},
                                  {"split", m.split},
                                  {"scored_bytes", m.scored},
                                  {"min_context", row.paper.min_context},
                                  {"seconds_per_iteration", or_null(m.seconds_per_step)},
                                  {"tokens_per_iteration", m.step_tokens},
                                  {"parameters", m.parameters},
                                  {"steps", m.steps},
                                  {"tokens", m.tokens},
                                  {"published_tokens", m.published_tokens},
                                  {"device_hours", m.device_hours},
                                  {"device", m.device},
                                  {"precision", m.precision},
                                  {"ranks", m.ranks},
                                  {"data", m.data}};
    out["paper"]["seconds_per_iteration"] = or_null(positive(paper.time_per_iteration));
    out["paper"]["parameters"] = paper.parameters;
    if (table.number == 2) {
      const Speedup speedup = speedup_over_dense(table, row);
      out["paper"]["times_dense"] = or_null(speedup.paper);
      out["times_dense"] = or_null(speedup.measured);
    }
    if (m.seconds_per_step && table.scale != Scale::smoke)
      out["full_run_hours"] = {
          {"1", full_run_hours(row, 1)}, {"8", full_run_hours(row, 8)}, {"64", full_run_hours(row, 64)}};
    rows.push_back(out);
  }
  return {{"table", table.number}, {"scale", name_of(table.scale)}, {"rows", rows}};
}

}  // namespace longstride
