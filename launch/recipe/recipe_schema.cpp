#include "launch/recipe/recipe_schema.h"

#include "framework/models/registry.h"

namespace longstride {
namespace {

// Words of other programs, and of people, for what is chosen here.
const OtherWords data_words = {
    {"text", "bytes"},      {"txt", "bytes"},   {"image", "images"}, {"pictures", "images"},     {"picture", "images"},
    {"imagenet", "images"}, {"sound", "audio"}, {"music", "audio"},  {"wav", "audio"},           {"cifar", "cifar10"},
    {"token", "tokens"},    {"bpe", "tokens"},  {"words", "tokens"}, {"sentencepiece", "tokens"}};
const OtherWords precision_words = {{"float32", "fp32"},  {"f32", "fp32"},     {"float", "fp32"}, {"tf32", "fp32"},
                                    {"bfloat16", "bf16"}, {"float16", "fp16"}, {"f16", "fp16"},   {"half", "fp16"},
                                    {"mixed", "bf16"},    {"amp", "bf16"},     {"float8", "fp8"}};
const OtherWords schedule_words = {{"wsd", "warmup_stable_decay"},
                                   {"trapezoidal", "warmup_stable_decay"},
                                   {"noam", "reciprocal_sqrt"},
                                   {"inverse_sqrt", "reciprocal_sqrt"},
                                   {"none", "constant"}};

namespace sizes {
constexpr Range vocabulary{2, 65536, false, true, "from 2 to 65535 ids"};
constexpr Range steps{1, 1e9, false, false, "a positive whole number"};
constexpr Range batch{1, 1 << 20, false, false, "a positive whole number"};
constexpr Range ranks{1, 4096, false, false, "a positive number of ranks"};
constexpr Range bucket{1, 1 << 30, false, false, "a positive number of gradients"};
constexpr Range micro_batch{0, 1 << 20, false, false, "0 or a positive whole number"};
}  // namespace sizes

void visit_data(SettingsVisitor& v, DataConfig& c) {
  v.choice("kind", c.kind, Need::required,
           Choices<DataKind>{{"bytes", DataKind::bytes},
                             {"cifar10", DataKind::cifar10},
                             {"images", DataKind::images},
                             {"audio", DataKind::audio},
                             {"tokens", DataKind::tokens}},
           data_words);
  v.field("path", c.path, Need::required);
  v.field("context", c.context, Need::required, ranges::positions);
  v.field("vocabulary", c.vocabulary, Need::optional, sizes::vocabulary);
  v.field("cross_files", c.cross_files, Need::optional);
  v.choice("order", c.order, Need::optional,
           Choices<DataOrder>{{"windows", DataOrder::windows}, {"streams", DataOrder::streams}});
  Choices<Documents> documents;
  for (const Documents d : {Documents::joined, Documents::separate, Documents::rows})
    documents.emplace_back(name_of(d), d);
  v.choice("documents", c.documents, Need::optional, documents);
  v.choice("document_positions", c.document_positions, Need::optional,
           Choices<DocumentPositions>{{"automatic", DocumentPositions::automatic},
                                      {"restart", DocumentPositions::restart},
                                      {"continue", DocumentPositions::continued}});
}

void visit_stage(SettingsVisitor& v, Stage& c) {
  v.field("until", c.until, Need::required, sizes::steps);
  v.field("context", c.context, Need::optional, ranges::positions);
  v.field("lr", c.lr, Need::optional, ranges::not_negative_real);
  v.field("global_batch", c.global_batch, Need::optional, sizes::micro_batch);
  v.field("micro_batch", c.micro_batch, Need::optional, sizes::micro_batch);
  v.list("window", c.window, Need::optional);
}

void visit_train(SettingsVisitor& v, TrainConfig& c) {
  v.field("steps", c.steps, Need::required, sizes::steps);
  v.field("global_batch", c.global_batch, Need::required, sizes::batch);
  v.field("micro_batch", c.micro_batch, Need::optional, sizes::micro_batch);
  v.field("lr", c.lr, Need::required, ranges::positive_real);
  v.field("warmup", c.warmup, Need::optional, ranges::not_negative);
  v.choice("schedule", c.schedule, Need::optional,
           Choices<kernels::ScheduleKind>{{"cosine", kernels::ScheduleKind::cosine},
                                          {"constant", kernels::ScheduleKind::constant},
                                          {"warmup_stable_decay", kernels::ScheduleKind::warmup_stable_decay},
                                          {"reciprocal_sqrt", kernels::ScheduleKind::reciprocal_sqrt}},
           schedule_words);
  v.field("lr_floor", c.lr_floor, Need::optional, ranges::not_negative_real);
  v.field("decay_steps", c.decay_steps, Need::optional, ranges::not_negative);
  v.field("decay_from", c.decay_from, Need::optional, ranges::not_negative);
  v.choice("lr_is", c.lr_is, Need::optional,
           Choices<LearningRateIs>{{"peak", LearningRateIs::peak}, {"factor", LearningRateIs::factor}});
  v.field("beta1", c.beta1, Need::optional, ranges::fraction);
  v.field("beta2", c.beta2, Need::optional, ranges::fraction);
  v.field("epsilon", c.epsilon, Need::optional, ranges::positive_real);
  v.field("weight_decay", c.weight_decay, Need::optional, ranges::not_negative_real);
  v.field("clip", c.clip, Need::optional, ranges::not_negative_real);
  v.field("ema", c.ema, Need::optional, ranges::fraction);
  v.choice("precision", c.precision, Need::optional,
           Choices<Precision>{{"automatic", Precision::automatic},
                              {"fp32", Precision::fp32},
                              {"bf16", Precision::bf16},
                              {"fp16", Precision::fp16},
                              {"fp8", Precision::fp8}},
           precision_words);
  v.choice(
      "residual", c.residual, Need::optional,
      Choices<Precision>{{"automatic", Precision::automatic}, {"fp32", Precision::fp32}, {"bf16", Precision::bf16}});
  v.field("seed", c.seed, Need::optional, ranges::not_negative);
  v.field("graph", c.graph, Need::optional);
  v.field("log_every", c.log_every, Need::optional, ranges::positive);
  v.field("checkpoint_every", c.checkpoint_every, Need::optional, ranges::not_negative);
  v.field("keep", c.keep, Need::optional, ranges::not_negative);
  v.field("keep_best", c.keep_best, Need::optional);
  v.field("mirror", c.mirror, Need::optional);
  v.field("evaluate_every", c.evaluate_every, Need::optional, ranges::not_negative);
  v.field("evaluate_windows", c.evaluate_windows, Need::optional, ranges::not_negative);
  v.field("sample_every", c.sample_every, Need::optional, ranges::not_negative);
  v.field("sample_count", c.sample_count, Need::optional, Range{1, 65, false, true, "from 1 to 64 samples"});
  v.field("sample_length", c.sample_length, Need::optional, ranges::not_negative);
  v.field("hang_seconds", c.hang_seconds, Need::optional, ranges::not_negative_real);
  v.maps("stages", c.stages, Need::optional, visit_stage);
}

void visit_optimizer(SettingsVisitor& v, TrainConfig& c) {
  v.choice("kind", c.optimizer, Need::optional,
           Choices<OptimizerKind>{{"adam", OptimizerKind::adam},
                                  {"muon", OptimizerKind::muon},
                                  {"adagrad", OptimizerKind::adagrad},
                                  {"adafactor", OptimizerKind::adafactor}});
  v.field("shard", c.parallel.shard, Need::optional);
  v.field("tensor_clip", c.tensor_clip, Need::optional, ranges::not_negative_real);
  v.field("decay_rate", c.decay_rate, Need::optional, Range{0, 1, true, true, "above 0 and below 1"});
  v.field("clip_threshold", c.clip_threshold, Need::optional, ranges::positive_real);
  v.field("scale_parameter", c.scale_parameter, Need::optional);
}

void visit_parallel(SettingsVisitor& v, ParallelConfig& c) {
  v.field("sequence_ranks", c.sequence_ranks, Need::optional, sizes::ranks);
  v.choice("gradients", c.gradients, Need::optional,
           Choices<Precision>{{"automatic", Precision::automatic},
                              {"fp32", Precision::fp32},
                              {"bf16", Precision::bf16},
                              {"fp16", Precision::fp16}});
  v.field("bucket", c.bucket, Need::optional, sizes::bucket);
  v.choice("overlap", c.overlap, Need::optional,
           Choices<Overlap>{{"automatic", Overlap::automatic}, {"always", Overlap::always}, {"never", Overlap::never}});
}

void visit_reproduces(SettingsVisitor& v, Reproduces& c) {
  v.field("table", c.table, Need::optional, Range{0, 5, false, true, "one of the paper's tables, 1 to 4"});
  v.field("paper", c.paper, Need::optional);
  v.field("row", c.row, Need::required);
  v.field("bits_per_byte", c.bits_per_byte, Need::required, ranges::positive_real);
  v.field("parameters", c.parameters, Need::optional, ranges::not_negative_real);
  v.field("time_per_iteration", c.time_per_iteration, Need::optional, ranges::not_negative_real);
}

}  // namespace

void visit_recipe(SettingsVisitor& v, Recipe& r) {
  v.field("name", r.name, Need::required);
  v.section("reproduces", Need::optional, r.reproduces.given(), [&] { visit_reproduces(v, r.reproduces); });
  v.reasons("unpublished", r.unpublished);
  v.section("data", Need::required, true, [&] { visit_data(v, r.data); });
  const bool asks_default = std::string_view(r.objective->kind()) == default_objective().kind();
  v.section("objective", Need::optional, !asks_default,
            [&] { visit_kind(v, objective_kinds(), r.objective, Need::optional); });
  v.section("model", Need::required, true,
            [&] { visit_kind(v, model_kinds(), r.model, Need::required, models_of_kinds()); });
  v.section("train", Need::required, true, [&] { visit_train(v, r.train); });
  v.section("optimizer", Need::optional, true, [&] { visit_optimizer(v, r.train); });
  v.section("parallel", Need::optional, true, [&] { visit_parallel(v, r.train.parallel); });
}

}  // namespace longstride
