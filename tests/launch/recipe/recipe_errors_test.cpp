// Mistakes in a recipe, and the sentence for each.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "launch/recipe/recipe.h"
#include "tests/launch/recipe/recipe_texts.h"
#include "tests/support/temporary_directory.h"

namespace longstride::testing::recipe_errors_test {
namespace {

std::string error_of(const std::string& text) {
  return user_error_of([&] { parse_recipe(text, "r.yaml"); });
}

struct Edit {
  const char *from, *to;
  std::string error;
};

// The same, in the place of its attention, which begins at line 8.
const char* const attention =
    "  attention:\n    integration: merged\n    parts: [fixed_block, fixed_summary]\n    stride: 8\n    summary: 2";
const Edit mixers[] = {
    {attention, "  mixers: 5",
     "r.yaml:8: model.mixers is 5, but must be a list of maps of keys and values, or of lists of these"},
    {attention, "  mixers: [5]",
     "r.yaml:8: an entry of model.mixers is 5, but must be a map of keys and values, or a list of them"},
    {attention, "  mixers: [{kind: atention, integration: merged, parts: [dense], stride: 8}]",
     "r.yaml:8: model.mixers.0.kind is atention, but must be " + allowed_mixers() + "; did you mean 'attention'?"},
    {attention, "  mixers: [{form: gated, decays: head}]",
     "r.yaml:8: model.mixers.0.kind is missing; add it (docs/guide/recipes.md lists every key)"},
    {attention, "  mixers: [{kind: mamba, state: 64}]",
     "r.yaml:8: model.mixers.0.kind is mamba, but must be " + allowed_mixers()},
    {attention, "  mixers: [{kind: attention, parts: [dense], stride: 8, integration: merged, memory: {length: 64}}]",
     "r.yaml:8: unknown key 'memory' in model.mixers.0; choose from layers, heads, kind, integration, parts, stride, "
     "window, summary, distinct_heads, summary_inclusive, first, dilation, block, blocks, shifts, random, draw, seed, "
     "direction, sink, key_heads, labels"},
    {attention,
     "  mixers:\n  - {kind: distance, table: none}\n  - {kind: distance, table: none, layers: 2}\n"
     "  - {kind: distance, table: none}\n  positions: none",
     "r.yaml:11: model.mixers.2 begins at layer 3, but the model has layers 0 to 1; remove it, or set more "
     "model.layers"},
    {attention,
     "  positions: none\n  mixers: [[{kind: distance, table: none, heads: 1}, {kind: distance, table: none, heads: "
     "2}]]",
     "r.yaml:9: model.mixers.0 has 3 heads in all, but must have model.heads, 2"},
    {attention,
     "  positions: none\n  mixers: [[{kind: distance, table: none, heads: 1}, {kind: distance, table: none}]]",
     "r.yaml:9: model.mixers.0.1.heads is missing, but mixers side by side divide model.heads, 2, among them; add it"},
    {attention, "  mixers: [{kind: distance, table: none}]\n  positions: attention",
     "r.yaml:9: model.positions is attention, whose tables follow the stride of a pattern, but no layer has one; "
     "set model.positions: none"},
    {attention,
     "  mixers:\n  - {kind: attention, integration: merged, parts: [dense], stride: 8}\n"
     "  - {kind: distance, table: none, memory: {length: 64}}\n  positions: attention",
     "r.yaml:11: model.positions is attention, whose tables end with data.context, but layers that remember read on; "
     "set "
     "model.positions: none"},
    {"model:", "model:\n  mixers: [{kind: distance, table: none}]",
     "r.yaml:4: model has both mixers and attention, but must have one of them: attention is the short form of a list "
     "with one entry; remove one"},
    {attention, "  positions: none\n  mixers: [{kind: distance, table: none}]\n  memory: {length: 64}",
     "r.yaml:10: model.memory belongs to model.distance; write it into its entry of model.mixers"},
    {attention, "  positions: none\n  mixers: [{kind: distance, table: learned}]",
     "r.yaml:9: model.mixers.0.distances is 0, but a learned table needs a number of rows; set the longest distance"},
    {attention, "  mixers: [{kind: attention, integration: merged, parts: [local, column], stride: 8, summary: 2}]",
     "r.yaml:8: model.mixers.0.summary has no effect without a part that reads it (fixed_summary); remove it"},
};

// Each replaces a piece of the small recipe.
const Edit edits[] = {
    // values
    {"layers: 2", "layers: 0", "r.yaml:5: model.layers is 0, but must be a positive whole number"},
    {"layers: 2", "layers: -3", "r.yaml:5: model.layers is -3, but must be a positive whole number"},
    {"layers: 2", "layers: 1.5", "r.yaml:5: model.layers is 1.5, but must be a positive whole number"},
    {"layers: 2", "layers: two", "r.yaml:5: model.layers is two, but must be a positive whole number"},
    {"layers: 2", "layers: '2'", "r.yaml:5: model.layers is '2', but must be a positive whole number"},
    {"layers: 2", "layers: 0x10", "r.yaml:5: model.layers is 0x10, but must be a positive whole number"},
    {"layers: 2", "layers: 010", "r.yaml:5: model.layers is 010, but must be a positive whole number"},
    {"layers: 2", "layers: 2 layers", "r.yaml:5: model.layers is 2 layers, but must be a positive whole number"},
    {"layers: 2", "layers: [2]", "r.yaml:5: model.layers is a list, but must be a positive whole number"},
    {"layers: 2", "layers: {a: 2}", "r.yaml:5: model.layers is a map, but must be a positive whole number"},
    {"layers: 2", "layers:", "r.yaml:5: model.layers has no value; give it one or remove the key"},
    {"layers: 2", "layers: ~", "r.yaml:5: model.layers has no value; give it one or remove the key"},
    {"layers: 2", "layers: 5000", "r.yaml:5: model.layers is 5000, but must be a positive whole number, at most 4096"},
    {"layers: 2", "layers: 99999999999999999999",
     "r.yaml:5: model.layers is 99999999999999999999, but must be a positive whole number, at most 4096"},
    {"lr: 1.0e-3", "lr: 0", "r.yaml:16: train.lr is 0, but must be a number above 0"},
    {"lr: 1.0e-3", "lr: .nan", "r.yaml:16: train.lr is .nan, but must be a number above 0"},
    {"lr: 1.0e-3", "lr: nan", "r.yaml:16: train.lr is nan, but must be a number above 0"},
    {"lr: 1.0e-3", "lr: 1,5", "r.yaml:16: train.lr is 1,5, but must be a number above 0"},
    {"heads: 2", "heads: 2\n  dropout: 1.0",
     "r.yaml:8: model.dropout is 1.0, but must be a number from 0 up to but not including 1"},
    {"lr: 1.0e-3", "lr: 1.0e-3\n  beta2: 1",
     "r.yaml:17: train.beta2 is 1, but must be a number from 0 up to but not including 1"},
    {"lr: 1.0e-3", "lr: 1.0e-3\n  seed: -1", "r.yaml:17: train.seed is -1, but must be 0 or a positive whole number"},
    {"context: 64", "context: 64, cross_files: yes", "r.yaml:2: data.cross_files is yes, but must be true or false"},
    {"context: 64", "context: 64, order: sorted", "r.yaml:2: data.order is sorted, but must be windows or streams"},
    {"{kind: bytes, path: x.h5, context: 64}", "{kind: images, path: x.h5, context: 192, order: streams}",
     "r.yaml:2: data.order is streams, but pictures are whole sequences; set data.order: windows"},
    {"context: 64", "context: 64, documents: apart",
     "r.yaml:2: data.documents is apart, but must be joined or separate or rows"},
    {"context: 64", "context: 64, document_positions: restart",
     "r.yaml:2: data.document_positions is restart, but data.documents is joined, whose positions count from the "
     "beginning of their row; remove it, or set data.documents: separate"},
    {"context: 64", "context: 64, documents: rows, order: streams",
     "r.yaml:2: data.documents is rows, each of which begins anew, but data.order is streams; set data.documents: "
     "separate, or data.order: windows"},
    {"{kind: bytes, path: x.h5, context: 64}", "{kind: images, path: x.h5, context: 192, documents: separate}",
     "r.yaml:2: data.documents is separate, but pictures are whole sequences; remove it, or choose text or sound"},
    {"path: x.h5", "path: ''", "r.yaml:2: data.path is '', but must be text"},
    {"path: x.h5", "path: [x.h5]", "r.yaml:2: data.path is a list, but must be text"},
    {"summary: 2", "summary: [2, x]", "r.yaml:12: model.attention.summary is x, but must be a positive whole number"},
    {"summary: 2", "summary: {a: 2}",
     "r.yaml:12: model.attention.summary is a map, but must be a whole number or a list of them"},
    // choices
    {"kind: bytes", "kind: text",
     "r.yaml:2: data.kind is text, but must be bytes or cifar10 or images or audio or tokens; text is bytes"},
    {"kind: bytes", "kind: byte",
     "r.yaml:2: data.kind is byte, but must be bytes or cifar10 or images or audio or tokens; did you mean 'bytes'?"},
    {"integration: merged", "integration: merge",
     "r.yaml:9: model.attention.integration is merge, but must be interleaved or merged or multihead; did you mean "
     "'merged'?"},
    {"[fixed_block, fixed_summary]", "[]",
     "r.yaml:10: model.attention.parts is an empty list, but must be a list of at least one of dense, local, column, "
     "fixed_block, fixed_summary, first, block_window, dilated, random_blocks, shifted_block"},
    {"kind: decoder", "kind: transformer_xl",
     "r.yaml:4: model.kind is transformer_xl, but must be decoder or sparse_transformer or encoder; transformer_xl is "
     "kind: "
     "decoder "
     "with model.distance and model.memory, as in recipes/survey/text-8min-transformer-xl.yaml"},
    {"kind: decoder", "kind: Longformer",
     "r.yaml:4: model.kind is Longformer, but must be decoder or sparse_transformer or encoder; longformer is kind: "
     "decoder with "
     "model.distance.window, as in recipes/survey/text-8min-longformer.yaml"},
    {"lr: 1.0e-3", "lr: 1.0e-3\n  precision: bfloat16",
     "r.yaml:17: train.precision is bfloat16, but must be automatic or fp32 or bf16 or fp16 or fp8; bfloat16 is bf16"},
    {"lr: 1.0e-3", "lr: 1.0e-3\n  schedule: wsd",
     "r.yaml:17: train.schedule is wsd, but must be cosine or constant or warmup_stable_decay or reciprocal_sqrt; wsd "
     "is "
     "warmup_stable_decay"},
    // keys together
    {"heads: 2", "heads: 3", "r.yaml:7: model.heads is 3, but must divide model.width, 16"},
    {"heads: 2", "heads: 2\n  key_ratio: 0.3",
     "r.yaml:8: model.key_ratio is 0.3, which makes keys of 2.4 elements per head (key_ratio * 16 / 2); choose one "
     "that "
     "makes a whole number"},
    {"heads: 2", "heads: 2\n  feed_forward_ratio: 0.03",
     "r.yaml:8: model.feed_forward_ratio is 0.03, which makes an inner width of 0.48; choose one that makes a whole "
     "number"},
    {"heads: 2", "heads: 2\n  rotary_base: 0.5",
     "r.yaml:8: model.rotary_base is 0.5, but must be 0 (no rotation) or a number above 1"},
    {"heads: 2", "heads: 2\n  rotary_base: -1",
     "r.yaml:8: model.rotary_base is -1, but must be 0 (no rotation) or a number above 1"},
    {"heads: 2", "heads: 16\n  rotary_base: 10000",
     "r.yaml:8: model.rotary_base is 10000, which rotates pairs of a key's elements, but keys have 1; choose heads and "
     "key_ratio that make an even number"},
    {"heads: 2", "heads: 2\n  query_key_norm: 1", "r.yaml:8: model.query_key_norm is 1, but must be true or false"},
    {"heads: 2", "heads: 2\n  norm: layer", "r.yaml:8: model.norm is layer, but must be pre or post"},
    {"heads: 2", "heads: 2\n  activation: gegul",
     "r.yaml:8: model.activation is gegul, but must be sigmoid_gelu or relu or gelu or geglu; did you mean 'geglu'?"},
    {"heads: 2", "heads: 2\n  tied_output: yes", "r.yaml:8: model.tied_output is yes, but must be true or false"},
    {"heads: 2", "heads: 2\n  init_deviation: -0.02",
     "r.yaml:8: model.init_deviation is -0.02, but must be 0 or a positive number"},
    {"heads: 2", "heads: 2\n  init_deviations: {layers: 1}",
     "r.yaml:8: unknown key 'layers' in model.init_deviations; choose from embedding, distance_table"},
    {"heads: 2", "heads: 2\n  init_deviations: {embedding: -1}",
     "r.yaml:8: model.init_deviations.embedding is -1, but must be 0 or a positive number"},
    {"heads: 2", "heads: 2\n  init_deviations: {distance_table: 1}",
     "r.yaml:8: model.init_deviations.distance_table is 1, but this model has no learned table of distances; remove "
     "it, or set model.distance.table: learned"},
    {"heads: 2", "heads: 2\n  tie_word_embeddings: true",
     "r.yaml:8: unknown key 'tie_word_embeddings' in model; did you mean 'tied_output'?"},
    {"heads: 2", "heads: 2\n  positions: sinusoidal",
     "r.yaml:8: model.positions is sinusoidal, but must be attention or data or learned or none"},
    {"heads: 2", "heads: 2\n  positions: data",
     "r.yaml:8: model.positions is data, but only pictures have rows, columns and channels; use attention"},
    {"kind: bytes", "kind: cifar10", "r.yaml:2: data.context is 64, but must be 3072, the bytes of a CIFAR-10 picture"},
    {"kind: bytes", "kind: images",
     "r.yaml:2: data.context is 64, but must be 3 x size x size, the bytes of a square RGB picture"},
    {"stride: 8", "stride: 0",
     "r.yaml:11: model.attention.stride is 0, but fixed_block needs a positive number of positions"},
    {"summary: 2", "summary: 9", "r.yaml:12: model.attention.summary is 9, but must be at most the stride 8"},
    {"summary: 2", "summary: [1, 2, 3]",
     "r.yaml:12: model.attention.summary lists 3 widths, but must be one width or one for each of 2 heads"},
    {"    summary: 2\n", "",
     "r.yaml:8: model.attention.summary is not set, but fixed_summary needs the number of summary positions in each "
     "block"},
    {"[fixed_block, fixed_summary]", "[fixed_block, fixed_block]",
     "r.yaml:10: model.attention.parts is [fixed_block, fixed_block], but merged takes a single part, or one window "
     "(local, fixed_block) and one of column, fixed_summary and first, or block_window and one of first and "
     "random_blocks"},
    {"summary: 2", "summary: 2\n    direction: both",
     "r.yaml:13: model.attention.direction is both, but a decoder predicts each position from those before it; set it "
     "to past"},
    {"fixed_summary]", "first]",
     "r.yaml:8: model.attention.first is 0, but the part first needs a positive number of keys"},
    {"lr: 1.0e-3", "lr: 1.0e-3\n  micro_batch: 3",
     "r.yaml:17: train.micro_batch is 3, but must divide train.global_batch, 4"},
    {"lr: 1.0e-3", "lr: 1.0e-3\n  precision: fp16\n  residual: bf16",
     "r.yaml:18: train.residual is bf16, which needs train.precision bf16, fp8 or automatic, but that is fp16"},
    {"name: small", "name: a/b",
     "r.yaml:1: name is 'a/b', but must be usable as a directory name: no slashes, no leading dot"},
    {"name: small", "name: .hidden",
     "r.yaml:1: name is '.hidden', but must be usable as a directory name: no slashes, no leading dot"},
    {"lr: 1.0e-3", "lr: 1.0e-3\n  stages: [{until: 5, context: 24}]",
     "r.yaml:17: train.stages.context is 24, but must divide data.context, 64, and be less than that"},
    {"lr: 1.0e-3", "lr: 1.0e-3\n  stages: [{until: 5, context: 64}]",
     "r.yaml:17: train.stages.context is 64, but must divide data.context, 64, and be less than that, unless the "
     "stage sets something else"},
    {"lr: 1.0e-3", "lr: 1.0e-3\n  stages:\n  - {until: 5, lr: 1e-4}\n  - {until: 9, context: 16}",
     "r.yaml:19: train.stages.context is 16, but must rise from 64 in the stage before"},
    {"lr: 1.0e-3", "lr: 1.0e-3\n  stages:\n  - {until: 5, context: 16}\n  - {until: 9, context: 16}",
     "r.yaml:19: train.stages.context is 16, but must rise from 16 in the stage before, unless one of them sets "
     "something else"},
    {"lr: 1.0e-3", "lr: 1.0e-3\n  stages: [{until: 5, lr: 2}]",
     "r.yaml:17: train.stages.lr is 2, but must give a learning rate above train.lr_floor, 0, and at most 1"},
    {"lr: 1.0e-3", "lr: 1.0e-3\n  lr_floor: 1e-4\n  stages: [{until: 5, lr: 1e-4}]",
     "r.yaml:18: train.stages.lr is 0.0001, but must give a learning rate above train.lr_floor, 0.0001, and at most 1"},
    {"lr: 1.0e-3", "lr: 1.0e-3\n  stages:\n  - {until: 5, context: 32}\n  - {until: 9, context: 16}",
     "r.yaml:19: train.stages.context is 16, but must rise from 32 in the stage before"},
    {"lr: 1.0e-3", "lr: 1.0e-3\n  stages:\n  - {until: 5, context: 16}\n  - {until: 5, context: 32}",
     "r.yaml:19: train.stages.until is 5, but must rise from 5 in the stage before"},
    {"lr: 1.0e-3", "lr: 1.0e-3\n  stages: [{until: 20, context: 16}]",
     "r.yaml:17: train.stages.until is 20, but must be below train.steps, 20"},
    {"lr: 1.0e-3", "lr: 1.0e-3\n  stages: [{until: 0, context: 16}]",
     "r.yaml:17: train.stages.until is 0, but must be a positive whole number"},
    {"lr: 1.0e-3", "lr: 1.0e-3\n  stages: [{until: 5}]",
     "r.yaml:17: train.stages.context is 64, but must divide data.context, 64, and be less than that, unless the "
     "stage sets something else"},
    {"lr: 1.0e-3", "lr: 1.0e-3\n  stages: [{until: 5, contxt: 16}]",
     "r.yaml:17: unknown key 'contxt' in train.stages; did you mean 'context'?"},
    {"lr: 1.0e-3", "lr: 1.0e-3\n  stages: [{until: 5, context: 16, dropout: 1}]",
     "r.yaml:17: unknown key 'dropout' in train.stages; choose from until, context, lr, global_batch, micro_batch, "
     "window"},
    {"lr: 1.0e-3", "lr: 1.0e-3\n  stages: [{until: 5, context: 65, global_batch: 8}]",
     "r.yaml:17: train.stages.context is 65, but must be at most data.context, 64"},
    {"lr: 1.0e-3", "lr: 1.0e-3\n  stages: [{until: 5, context: 24, global_batch: 8, micro_batch: 3}]",
     "r.yaml:17: train.stages.micro_batch is 3, but must divide the stage's global batch, 8"},
    {"lr: 1.0e-3", "lr: 1.0e-3\n  stages: [{until: 5, window: 9}]",
     "r.yaml:17: train.stages.window is given, but only attention with model.distance has windows that a stage can "
     "set"},
    {"lr: 1.0e-3", "lr: 1.0e-3\n  stages: 5",
     "r.yaml:17: train.stages is 5, but must be a list of maps of keys and values"},
    {"lr: 1.0e-3", "lr: 1.0e-3\n  stages: [5]",
     "r.yaml:17: an entry of train.stages is 5, but must be a map of keys and values"},
    {"warmup: 2", "stages: [{until: 5, context: 16}]\n  warmup: 2\nparallel: {sequence_ranks: 2}",
     "r.yaml:19: parallel.sequence_ranks is 2, but sequence ranks cannot be combined with train.stages; remove one of "
     "them"},
    {"warmup: 2", "warmup: 2\noptimizer: {kind: muom}",
     "r.yaml:18: optimizer.kind is muom, but must be adam or muon or adagrad or adafactor; did you mean 'muon'?"},
    {"warmup: 2", "warmup: 2\noptimizer: {kind: muon, shard: true}",
     "r.yaml:18: optimizer.shard is true, but optimizer.kind muon needs whole matrices on every rank; set it to false"},
    {"warmup: 2", "warmup: 2\noptimizer: {kind: adafactor, shard: true}",
     "r.yaml:18: optimizer.shard is true, but optimizer.kind adafactor needs whole matrices on every rank; set it to "
     "false"},
    {"warmup: 2", "warmup: 2\noptimizer: {kind: adafactor, decay_rate: 1}",
     "r.yaml:18: optimizer.decay_rate is 1, but must be above 0 and below 1"},
    // structure
    {"name: small", "name: small\nname: again",
     "r.yaml:2: the key 'name' is given twice, first at r.yaml:1; remove one"},
    {"heads: 2", "heads: 2\n  layers: 3", "r.yaml:8: the key 'layers' is given twice, first at r.yaml:5; remove one"},
    {"heads: 2", "heads: 2\n  dropuot: 0.1", "r.yaml:8: unknown key 'dropuot' in model; did you mean 'dropout'?"},
    {"name: small", "name: small\ntrian: {}", "r.yaml:2: unknown key 'trian'; did you mean 'train'?"},
    {"name: small", "name: small\nxyzzy: {}",
     "r.yaml:2: unknown key 'xyzzy'; choose from name, reproduces, unpublished, data, objective, model, train, "
     "optimizer, parallel"},
    {"data: {kind: bytes, path: x.h5, context: 64}", "data: x.h5",
     "r.yaml:2: data is x.h5, but must be a map of keys and values"},
    {"data: {kind: bytes, path: x.h5, context: 64}",
     "data:", "r.yaml:2: data has no value; give it one or remove the key"},
    {"name: small", "name: small\nunpublished: {train.rl: why}",
     "r.yaml:2: unpublished names 'train.rl', which this recipe does not set; name a key such as train.lr"},
    {"name: small", "name: small\nunpublished: {train.lr: [why]}",
     "r.yaml:2: unpublished 'train.lr' is a list, but must be a sentence that says why the value was chosen"},
    {"name: small", "name: small\nreproduces: {row: x, bits_per_byte: 1}",
     "r.yaml:2: reproduces has neither table nor paper, but must have one of them: a table of the Sparse Transformer's "
     "paper, or the name of another paper"},
    {"name: small", "name: small\nreproduces: {table: 5, row: x, bits_per_byte: 1}",
     "r.yaml:2: reproduces.table is 5, but must be one of the paper's tables, 1 to 4"},
    {"name: small", "base: [a]\nname: small", "r.yaml:1: base is a list, but must be the file of another recipe"},
    {"name: small", "base: nowhere.yaml\nname: small",
     "r.yaml:1: base ./nowhere.yaml: cannot be read; give the file of a recipe, such as recipes/quickstart/text.yaml"},
};

TEST(RecipeErrors, EachMistakeHasItsSentence) {
  for (const Edit& edit : edits) EXPECT_EQ(error_of(edited(small_recipe, edit.from, edit.to)), edit.error);
  for (const Edit& edit : mixers) EXPECT_EQ(error_of(edited(small_recipe, edit.from, edit.to)), edit.error);
}

TEST(RecipeErrors, AnUnknownPartIsAnsweredWithTheKnownOnes) {
  EXPECT_EQ(error_of(edited(small_recipe, "fixed_summary]", "fixed_sumary]")),
            "r.yaml:10: model.attention.parts is fixed_sumary, but must be " + allowed_parts() +
                "; did you mean 'fixed_summary'?");
}

// Forms that YAML allows and recipes do not, and texts that are not YAML.
TEST(RecipeErrors, YamlsCornerCasesAreRefused) {
  const std::string small = small_recipe;
  const std::pair<std::string, std::string> cases[] = {
      {"", "r.yaml:1: a recipe is a map of name, data, model and train, but this is empty"},
      {"# nothing but a comment\n", "r.yaml:1: a recipe is a map of name, data, model and train, but this is empty"},
      {"- a\n- b\n", "r.yaml:1: a recipe is a map of name, data, model and train, but this is a list"},
      {"just words\n", "r.yaml:1: a recipe is a map of name, data, model and train, but this is just words"},
      {small + "---\n" + small,
       "r.yaml: holds more than one YAML document; a recipe is one, so remove what follows the line ---"},
      {"a: &x 1\nb: *x\n", "r.yaml:1: this is an anchor; recipes have no anchors or aliases, so remove it"},
      {"a: &x [1]\n", "r.yaml:1: this is an anchor; recipes have no anchors or aliases, so remove it"},
      {small + "<<: {name: x}\n",
       "r.yaml:18: unknown key '<<'; choose from name, reproduces, unpublished, data, objective, model, train, "
       "optimizer, parallel"},
      {"a: !!int 3\n", "r.yaml:1: this has the tag tag:yaml.org,2002:int; recipes have no tags, so remove it"},
      {"a: !mine {b: 3}\n", "r.yaml:1: this has the tag !mine; recipes have no tags, so remove it"},
      {"? [a, b]\n: c\n", "r.yaml:1: a key must be a word, as in layers: 12"},
      {std::string("name: \0x\n", 9), "r.yaml: holds zero bytes; a recipe is YAML text"},
      {"name: x\ndata: \xff\n", "r.yaml:2: byte 0xff is not UTF-8; a recipe is YAML text"},
      {"name: \xe2\x82", "r.yaml:1: byte 0xe2 is not UTF-8; a recipe is YAML text"},
      {"name: " + std::string(2000, '['), "r.yaml:1: nested deeper than 16 levels"},
      {std::string(std::size_t{1} << 21, '#'), "r.yaml: has more than 1048576 bytes, the most a recipe can have"},
  };
  for (const auto& [text, error] : cases) EXPECT_EQ(error_of(text), error);
}

// The text after "not YAML" comes from the library.
TEST(RecipeErrors, WhatIsNotYamlIsRefusedWithItsLine) {
  const std::pair<std::string, std::string> cases[] = {
      {"name: x\n\tdata: y\n", "r.yaml:2: is indented with a tab, which YAML does not allow; use spaces"},
      {"name: \"x", "r.yaml:1: not YAML: "},
      {"name: [x, y\n", "r.yaml:2: not YAML: "},
      {"name: x\n  data: y\n", "r.yaml:2: not YAML: "},
      {"name: {x: y]\n", "r.yaml:1: not YAML: "},
      {"%YAML 3.0\n---\nname: x\n", "r.yaml:1: not YAML: "},
      {"name: \"\\q\"\n", "r.yaml:1: not YAML: "},
      {"name: @x\n", "r.yaml:1: not YAML: "},
  };
  for (const auto& [text, error] : cases) {
    EXPECT_EQ(error_of(text).substr(0, error.size()), error);
    EXPECT_EQ(error_of(text).find('\n'), std::string::npos) << error_of(text);
  }
}

// A document that anchors would expand to millions of values, and one that is merely long.
TEST(RecipeErrors, HugeDocumentsAreRefusedEarly) {
  std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c < 'k'; ++c) bomb += fmt::format("{0}: &{0} [*{1}, *{1}, *{1}, *{1}, *{1}]\n", c, char(c - 1));
  EXPECT_EQ(error_of(bomb), "r.yaml:1: this is an anchor; recipes have no anchors or aliases, so remove it");
  std::string wide;
  for (int i = 0; i < 50000; ++i) wide += fmt::format("k{}: 1\n", i);
  EXPECT_EQ(error_of(wide), "r.yaml:5000: more than 10000 values; this is not a recipe");
}

TEST(RecipeErrors, SequencesThatRanksCannotDivideAreRefused) {
  const auto with = [](const std::vector<std::string>& overrides) {
    return user_error_of([&] { parse_recipe(small_recipe, "r.yaml", overrides); });
  };
  EXPECT_EQ(with({"parallel.sequence_ranks=3"}),
            "--set parallel.sequence_ranks=3: parallel.sequence_ranks is 3, but must divide model.heads, 2");
  EXPECT_EQ(with({"parallel.sequence_ranks=2", "data.context=63"}),
            "--set parallel.sequence_ranks=2: parallel.sequence_ranks is 2, but must divide data.context, 63");
  EXPECT_EQ(with({"parallel.sequence_ranks=2", "train.micro_batch=2"}),
            "--set train.micro_batch=2: train.micro_batch is 2, but sequence ranks (parallel.sequence_ranks is 2) "
            "process one "
            "sequence at a time; set it to 1");
}

TEST(RecipeErrors, ProductsTooLargeToCountAreRefused) {
  const auto with = [](const std::vector<std::string>& overrides) {
    return user_error_of([&] { parse_recipe(small_recipe, "r.yaml", overrides); });
  };
  EXPECT_EQ(with({"train.global_batch=1e6", "train.steps=1e9"}),
            "--set train.steps=1e9: train.steps is 1000000000, which makes 6.4e+16 positions in all; choose fewer than "
            "9e+15");
  EXPECT_EQ(with({"train.global_batch=1e6", "data.context=1e7", "model.width=65536"}),
            "--set train.global_batch=1e6: train.global_batch is 1000000, which makes 4.2e+19 bytes of activations; "
            "choose fewer than 1e+18");
  EXPECT_EQ(with({"train.steps=1e9", "train.stages=[{until: 999999999, global_batch: 1000000}]"}),
            "--set train.steps=1e9: train.steps is 1000000000, which makes 6.4e+16 positions in all; choose fewer than "
            "9e+15");
  const std::string stages = "train.stages=[{until: 1, global_batch: 1000000}]";
  EXPECT_EQ(
      with({stages, "data.context=1e7", "model.width=65536"}),
      "--set " + stages + ": train.stages.global_batch is 1000000, but must make at most 1e+18 bytes of activations");
}

TEST(RecipeErrors, RotationIsRefusedWhereScoresWouldDependOnMoreThanDistances) {
  constexpr const char* text = R"(name: distances
data: {kind: bytes, path: x.h5, context: 32}
model: {kind: decoder, layers: 1, width: 16, heads: 2, positions: none, distance: {table: none, biases: none}}
train: {steps: 20, global_batch: 2, lr: 1.0e-3, warmup: 2}
)";
  const auto with = [&](const std::vector<std::string>& overrides) {
    return user_error_of([&] { parse_recipe(text, "r.yaml", overrides); });
  };
  const std::string error =
      "--set model.rotary_base=100: model.rotary_base is 100, but rotation cannot be combined with ";
  const std::string remedy = "; set it to 0, or set model.distance.table: none and model.distance.biases: none";
  EXPECT_NO_THROW(parse_recipe(text, "r.yaml", {"model.rotary_base=100"}));
  EXPECT_EQ(with({"model.rotary_base=100", "model.distance.table=sinusoid"}), error + "a table of distances" + remedy);
  EXPECT_EQ(with({"model.rotary_base=100", "model.distance.biases=layer"}), error + "model.distance.biases" + remedy);
}

TEST(RecipeErrors, KeysOfDistancesThatLeaveNothingToReadOrHaveNoEffectAreRefused) {
  const auto with = [&](const std::vector<std::string>& overrides) {
    return user_error_of([&] { parse_recipe(small_distance_recipe, "r.yaml", overrides); });
  };
  const std::string hidden =
      "has the value 1, the position itself, which model.distance.self: false hides; set 2 or more";
  EXPECT_EQ(with({"model.distance.self=false", "model.distance.window=[9, 1]"}),
            "--set model.distance.window=[9, 1]: model.distance.window " + hidden);
  EXPECT_EQ(with({"model.distance.self=false", "train.stages=[{until: 5, window: 1}]"}),
            "--set train.stages=[{until: 5, window: 1}]: train.stages.window " + hidden);
  EXPECT_NO_THROW(parse_recipe(small_distance_recipe, "r.yaml", {"model.distance.window=1"}));
  EXPECT_EQ(with({"model.distance.dilated_heads=1", "model.distance.dilation=1"}),
            "--set model.distance.dilated_heads=1: model.distance.dilated_heads is 1, but model.distance.dilation is 1 "
            "in every layer, so it has no effect; set a dilation, or remove it");
  EXPECT_NO_THROW(parse_recipe(small_distance_recipe, "r.yaml", {"data.documents=separate"}));
  EXPECT_EQ(with({"data.documents=separate", "model.memory.start=zeros"}),
            "--set data.documents=separate: data.documents is separate, but a memory starts as zeros, which precede a "
            "row but not a document within it (start: empty would do); set data.documents: joined");
  EXPECT_EQ(with({"model.init_deviations.distance_table=1"}),
            "--set model.init_deviations.distance_table=1: model.init_deviations.distance_table is 1, but this model "
            "has no learned table of distances; remove it, or set model.distance.table: learned");
  EXPECT_NO_THROW(parse_recipe(
      small_distance_recipe, "r.yaml",
      {"model.init_deviations.distance_table=1", "model.distance.table=learned", "model.distance.distances=9"}));
}

TEST(RecipeErrors, MoreRowsThanAttentionCountsAreRefused) {
  const std::vector<std::string> most = {"data.context=8388608", "model.memory.length=8388607"};
  EXPECT_NO_THROW(parse_recipe(small_distance_recipe, "r.yaml", most));
  EXPECT_EQ(
      user_error_of([&] {
        parse_recipe(small_distance_recipe, "r.yaml", {most[0], "model.memory.length=8388608"});
      }),
      "--set data.context=8388608: data.context is 8388608, which with what model.memory remembers makes 16777216 "
      "rows, but model.distance takes at most 16777215; lower one of them");
}

}  // namespace
}  // namespace longstride::testing::recipe_errors_test
