// Checks that all ranks were started alike. Ranks that read other recipes would wait for each other for ever or, worse,
// train one model on different data; without a shared file system one stale copy is enough.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "datasets/dataset.h"
#include "framework/comm/communicator.h"
#include "launch/run/train_run.h"

namespace longstride {

// Names and values, as messages have them. The path of the data is left out: hosts may keep copies in different places.
using Facts = std::map<std::string, std::string>;
Facts facts_of(const Recipe& recipe);
Facts facts_of(const TrainRequest& request);
Facts facts_of(const Dataset& dataset);  // the checksums that it stores, and sizes

// Every rank calls it. UserError on a rank whose facts differ from rank 0's, with the first difference. The others then
// never return: that rank ends them, and they have changed nothing.
void check_same_on_ranks(const Facts& facts, Communicator& comm);

// Every rank calls it before its command begins, with the command, or nothing if its arguments are a mistake. As above
// for ranks that would run different commands. Returns true on a rank whose mistake is not everyone's: it ends the
// others, which do not return.
bool mistake_of_this_rank(const std::optional<std::string>& command, Communicator& comm);

}  // namespace longstride
