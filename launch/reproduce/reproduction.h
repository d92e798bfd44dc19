// The results of one row of a table, and the tables made from them.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/reproduce/paper_rows.h"

namespace longstride {

enum class Evidence : std::uint8_t { none, speed, toy, short_run, full_run };

struct Measured {
  Evidence evidence = Evidence::none;
  std::string note;                     // why there is none, or how to continue
  std::string data, device, precision;  // data: the dataset's file; device: a GPU's name, or "the CPU"
  std::optional<double> bits_per_byte;
  std::string split;                       // the one that was scored
  std::int64_t scored = 0;                 // bytes of it
  std::optional<double> seconds_per_step;  // time of a step of the global batch
  std::int64_t step_tokens = 0;            // tokens in that batch; 0: as the row's recipe has it
  std::int64_t parameters = 0, steps = 0, tokens = 0, published_tokens = 0;
  double device_hours = 0;
  int ranks = 1;
  bool finished = false;  // all steps of the recipe are done

  double tokens_per_second(const PaperRow& row) const {
    const std::int64_t per_step =
        step_tokens > 0 ? step_tokens : row.recipe.train.global_batch * row.recipe.data.context;
    return static_cast<double>(per_step) / *seconds_per_step;
  }
};

struct TableRow {
  PaperRow paper;
  Measured measured;
};

struct PaperTable {
  int number = 0;
  Scale scale = Scale::paper;
  std::vector<TableRow> rows;
};

// Table 2: how many times faster than the dense row on the same data, in the paper and as measured.
struct Speedup {
  std::optional<double> paper, measured;
};
Speedup speedup_over_dense(const PaperTable& table, const TableRow& row);

// Hours that the published training of a row takes at the measured speed: each rank's tokens at the speed of one
// device, and then the gradients' all-reduce, not overlapped. With more ranks than sequences in the batch, the batch
// grows.
double full_run_hours(const TableRow& row, int ranks);

// The evidence with this name in json(): "short run". None if it is unknown.
Evidence evidence_of(const std::string& name);

std::string markdown(const PaperTable& table);
// The table's figures alone, in columns.
std::string terminal_table(const PaperTable& table);
nlohmann::ordered_json json(const PaperTable& table);

}  // namespace longstride
