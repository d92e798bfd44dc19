// The figures that a run reports: RUN/metrics.jsonl, one JSON object per line, and TensorBoard event files in the same
// directory. For one rank.
//   {"step":10,"loss":5.1,"bits_per_byte":7.4,"lr":7e-06,"grad_norm":1.2,"tokens_per_second":10234.5,"mean_loss":5.3,
//    "tokens":122880,"time":"2026-11-23T16:25:56.012Z","host_peak_bytes":512000000}
// A model with auxiliary losses adds "auxiliary":{"span":0.0021} to a step's line; "loss" does not contain them.
// On a GPU a step's line also has "device_peak_bytes", and in fp16 a step's line also has "loss_scale" and "skipped",
// the number of consecutive steps skipped up to this one.
//   {"step":0,"device":"NVIDIA H200","precision":"bf16","planned_bytes":37580963840}   once, when training on a GPU
//   {"step":1000,"planned_bytes":37580963840,"used_bytes":37580963840}                 at the end of a process
//   {"step":1000,"split":"valid","loss":1.9,"bits_per_byte":2.7,"bytes":100000,"seconds":12.5,
//    "time":"2026-11-23T16:26:08.512Z"}
// The figures of a line, here "loss" and "bits_per_byte", are those of the objective (framework/core/objective.h).
// A number that is not finite is written as null, because JSON cannot represent it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/train/metrics/event_file.h"

namespace longstride {

struct StepMetrics {
  std::int64_t step = 0;  // optimizer steps taken
  Scalars figures;        // figures of the global batch's mean loss, by key: "loss", "bits_per_byte"
  double lr = 0;
  double grad_norm = 0;  // before clipping
  double tokens_per_second = 0;
  double mean_loss = 0;     // nats, over the steps since the previous line or since the process began
  std::int64_t tokens = 0;  // seen by the run so far
  std::optional<std::int64_t> host_peak_bytes;    // see peak_host_bytes()
  std::optional<std::int64_t> device_peak_bytes;  // peak of the one block on the GPU
  std::optional<double> loss_scale;               // fp16 only, like
  std::optional<std::int64_t> skipped;
  Scalars auxiliary = {};  // losses by name, apart from `loss`
};

struct EvaluationMetrics {
  std::int64_t step = 0;
  std::string split;       // "valid", "test"
  Scalars figures;         // the objective's, by key
  std::int64_t bytes = 0;  // scored
  double seconds = 0;
};

struct SampleMetrics {
  std::int64_t step = 0;
  std::vector<Media> samples;
};

struct DeviceMetrics {
  std::int64_t step = 0;  // that the run starts or resumes at
  std::string device, precision;
  std::int64_t planned_bytes = 0;  // device memory that the run allocates
};

struct MemoryMetrics {
  std::int64_t step = 0;
  std::int64_t planned_bytes = 0, used_bytes = 0;  // the one block on the device that trains
};

// The most memory that this process has had resident at once; absent if the system does not say.
std::optional<std::int64_t> peak_host_bytes();

class MetricsWriter {
 public:
  // Drops the lines of an earlier process for steps after `resumed_step`, which will be taken again (0: a new run,
  // drops everything), then appends.
  MetricsWriter(const std::string& run, std::int64_t resumed_step);

  // Lines of steps and evaluations get the time of the call. The system has the data when they return. UserError when a
  // file cannot be written or is no longer the run's (append_file.h).
  void write(const StepMetrics& metrics);
  void write(const EvaluationMetrics& metrics);
  void write(const SampleMetrics& metrics);  // for TensorBoard alone; the samples are files in the run
  void write(const DeviceMetrics& metrics);
  void write(const MemoryMetrics& metrics);
  // Flushes to disk, so that a checkpoint cannot survive a power failure that the lines before it do not.
  void flush();

 private:
  EventFile events_;
  AppendFile lines_;
};

}  // namespace longstride
