// A page that compares runs: their results in a table, their curves in the same plots, the settings that differ.
#pragma once
#include <string>
#include <vector>

#include "launch/report/report_axis.h"
#include "launch/report/run_facts.h"

namespace longstride {

// At least two runs, with curves over this axis.
std::string comparison(const std::vector<RunFacts>& runs, ReportAxis by);

}  // namespace longstride
