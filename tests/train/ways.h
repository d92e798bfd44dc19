// Settings of stages and phases, for their own tests and for those of every way of training.
#pragma once
#include "tests/support/distance_toys.h"
#include "tests/train/trained.h"

namespace longstride::test {

inline TrainConfig way_config(std::int64_t rows, std::int64_t micro = 0) {
  TrainConfig c;
  c.steps = 20;
  c.global_batch = rows;
  c.micro_batch = micro;
  c.lr = 1e-2;
  c.warmup = 2;
  c.ema = 0.9;
  return c;
}

inline DecoderConfig staged_model(std::int64_t positions = 48, double dropout = 0.3) {
  DecoderConfig c = toy_config();
  c.context = positions;
  c.dropout = dropout;
  c.attention.integration = kernels::Integration::merged;
  c.attention.parts = {kernels::PartKind::local, kernels::PartKind::column};
  c.attention.window = 5;
  c.attention.stride = 48;  // one row of the position tables at any context
  return c;
}

inline DistanceToy phased_model(std::int64_t positions = 48) {
  DistanceToy c = longformer_toy();
  c.context = positions;
  c.dropout = 0.3;
  return c;
}

// Contexts that do not divide the longest, a batch that falls, windows that grow.
inline TrainConfig phased() {
  TrainConfig c = way_config(2, 1);
  c.schedule = kernels::ScheduleKind::constant;
  c.stages = {{2, 10, 4e-3, 12, 6, {2}}, {4, 20, 2e-3, 6, 2, {3, 3, 4}}, {6, 48, 1e-3, 0, 0, {4}}};
  return c;
}

}  // namespace longstride::test
