// How a pattern becomes work: parts, each a set of segments, each segment a query stream and a key stream in which
// every query may attend to one interval of keys, cut into tiles.
//
// A *stream* is a sequence of rows of q, k or v, read in place: entry t is the row at position
//     base + ((t + skip) / run) * period + (t + skip) mod run.
// Natural order: run = n. Residue class r of l: base = r, run = 1, period = l. Summary rows of sub-block s:
// base = l - (s+1)c, run = c, period = l. Streams are increasing, so "all allowed positions up to p" is a prefix.
//
// A *limit* gives a bound on positions from the query position i: (block > 0 ? floor(i / block) * block : i) - back.
// Every pattern of the paper is an interval [low limit, high limit] of positions of its key stream:
//     dense          low 0                    high i
//     local          low i - w + 1            high i
//     fixed_block    low floor(i/l) l         high i
//     column         low 0                    high i     (merged: i - w, what the window has not)
//     fixed_summary  low 0                    high i     (merged: floor(i/l) l - 1)
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/attention/pattern.h"

namespace longstride::kernels {

struct AttentionPlan;  // see below

}  // namespace longstride::kernels
