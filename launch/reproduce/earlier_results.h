// The results that a folder's table already has, for rows that a command does not run again.
#pragma once
#include <map>
#include <string>

#include "launch/reproduce/reproduction.h"

namespace longstride {

struct EarlierResult {
  Measured measured;
  std::int64_t min_context = 0;
};

// By the rows' labels, from a file that json() has made; empty if there is none, or it is of another table or scale.
// UserError if it is no such file.
std::map<std::string, EarlierResult> earlier_results(const std::string& path, const PaperTable& table);

// The table with the earlier results of the rows that it lacks; `all`: every row of the paper's table, in order.
PaperTable with_earlier_results(const PaperTable& table, const std::map<std::string, EarlierResult>& earlier,
                                const std::vector<PaperRow>& all);

}  // namespace longstride
