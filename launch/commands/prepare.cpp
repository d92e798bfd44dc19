// longstride prepare KIND: from raw data to a dataset file.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <memory>
#include <new>
#include <type_traits>

#include "datasets/prepare/examples/task.h"
#include "datasets/prepare/prepare.h"
#include "framework/core/errors.h"
#include "framework/core/text/printable.h"
#include "framework/train/metrics/progress.h"
#include "framework/train/run/stop.h"
#include "launch/commands/commands.h"
#include "launch/console/arguments.h"
#include "launch/console/describe.h"
#include "launch/console/json_output.h"
#include "launch/console/output.h"

namespace longstride {
namespace {

using Clock = std::chrono::steady_clock;

// "prepare 1.2/3.0 MB, 12 min left", rewritten in place on a terminal; otherwise a line every ten seconds.
class PrepareLine {
 public:
  void update(std::int64_t done, std::int64_t total) {
    if (stop_requested()) throw user_error("stopped by a signal; nothing was written");
    if (!progress_is_shown()) return;
    const auto now = Clock::now();
    const double interval = terminal_ ? 0.1 : 10.0;
    if (std::chrono::duration<double>(now - drawn_).count() < interval) return;
    drawn_ = now;
    if (total == 0) return print(fmt::format("prepare: {:.1f} MB looked at", static_cast<double>(done) / 1e6));
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const double left = done > 0 ? seconds * static_cast<double>(total - done) / static_cast<double>(done) : 0;
    print(fmt::format("prepare {:.1f}/{:.1f} MB, {} left", static_cast<double>(done) / 1e6,
                      static_cast<double>(total) / 1e6, duration_text(left)));
  }
  void note(const std::string& sentence) {
    if (progress_is_shown()) warn(sentence);
  }
  void warn(const std::string& sentence) {
    clear();
    std::fputs((printable(sentence) + "\n").c_str(), stderr);
  }
  ~PrepareLine() { clear(); }

 private:
  void print(const std::string& line) {
    std::fputs((terminal_ ? fmt::format("\r{:<60}", line) : line + "\n").c_str(), stderr);
    std::fflush(stderr);
    open_ = terminal_;
  }

  void clear() {
    if (open_) std::fputs(fmt::format("\r{:<60}\r", "").c_str(), stderr);
    open_ = false;
  }

  bool terminal_ = isatty(STDERR_FILENO) != 0;
  bool open_ = false;
  Clock::time_point start_ = Clock::now(), drawn_ = start_;
};

// A subcommand with the options that every kind has.
CLI::App* add_kind(CLI::App& prepare, const std::string& name, const std::string& what, PrepareOutput& output,
                   bool& json) {
  CLI::App* kind = prepare.add_subcommand(name, what);
  kind->add_option("--output", output.path, "dataset file to write, such as data/x.h5")->required();
  kind->add_flag("--force", output.replace, "replace the output if it exists");
  add_json_option(*kind, json);
  return kind;
}

// The consequence of a dataset that lacks a split.
const char* without(const std::string& split) {
  if (split == "train") return "there is nothing to train on";
  return split == "valid" ? "training will not be validated" : "there is nothing for eval --split test to score";
}

// Calls what may run out of memory, with advice that fits it.
template <class Work>
void within_memory(const char* advice, const Work& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    throw user_error("out of memory; {}", advice);
  }
}

constexpr const char* smaller_pictures =
    "up to eight pictures are decoded at once, each whole: scale the largest ones down, lower --size, or free memory";
constexpr const char* free_memory =
    "`prepare` needs little: free memory, or raise the limit of this process (ulimit -v)";

template <class Config>
void run_prepare(const Session& session, void (*prepare)(const Config&, const PrepareOutput&), const Config& config,
                 PrepareOutput output, bool json) {
  if (session.comm->rank() != 0) return;
  catch_stop_signals();
  {
    PrepareLine line;
    output.note = [&](const std::string& sentence) { line.note(sentence); };
    output.warn = [&](const std::string& sentence) { line.warn("warning: " + sentence); };
    output.progress = [&](std::int64_t done, std::int64_t total) { line.update(done, total); };
    constexpr bool pictures = std::is_same_v<Config, PrepareImagesConfig>;
    within_memory(pictures ? smaller_pictures : free_memory, [&] { prepare(config, output); });
  }
  const auto dataset = Dataset::open(output.path);
  if (json)
    print_json(describe_as_json(*dataset));
  else if (progress_is_shown())
    fmt::print("{}", describe(*dataset, 3));
  for (const char* split : split_names)
    if (dataset->size(split).bytes == 0)
      std::fputs(fmt::format("warning: '{}' is empty: {}\n", split, without(split)).c_str(), stderr);
}

void add_duplicates(CLI::App* kind, Duplicates& duplicates) {
  const std::map<std::string, Duplicates> names = {
      {"keep", Duplicates::keep}, {"drop", Duplicates::drop}, {"refuse", Duplicates::refuse}};
  kind->add_option("--duplicates",
                   "files with the same content: keep them in the split of the first, drop all but the "
                   "first, or refuse them")
      ->type_name("TEXT")
      ->default_str("keep")
      ->check(CLI::IsMember({"keep", "drop", "refuse"}))
      ->each([&duplicates, names](const std::string& name) { duplicates = names.at(name); });
}

template <class Config>
struct Options {
  Config config;
  PrepareOutput output;
  bool json = false;
};

// Options that only one kind of documents reads.
struct DocumentOption {
  const CLI::Option* option;
  DocumentsAre reads;
  const char* name;
};

// Returns the option --mark.
const CLI::Option* add_ends(CLI::App* kind, DocumentRule& rule, const std::string& what,
                            const std::vector<std::string>& names) {
  const std::map<std::string, DocumentsAre> documents = {{"marks", DocumentsAre::marks},
                                                         {"files", DocumentsAre::files},
                                                         {"lines", DocumentsAre::lines},
                                                         {"fasta", DocumentsAre::fasta}};
  kind->add_option("--documents", what)
      ->type_name("TEXT")
      ->check(CLI::IsMember(names))
      ->each([&rule, documents](const std::string& name) { rule.documents = documents.at(name); });
  return kind->add_option("--mark", rule.mark, "the mark of --documents marks; default: GPT-2's end of text");
}

void check_read(const std::vector<DocumentOption>& options, const DocumentRule& rule) {
  for (const DocumentOption& o : options)
    if (o.option->count() > 0 && rule.documents != o.reads)
      throw user_error("{} is {}, but only --documents {} reads it; add that, or leave {} out", o.option->get_name(),
                       printable(o.option->as<std::string>()), o.name, o.option->get_name());
}

void add_documents(CLI::App* kind, DocumentRule& rule) {
  const std::map<std::string, GroupsAre> groups = {
      {"sentences", GroupsAre::sentences}, {"paragraphs", GroupsAre::paragraphs}, {"lead", GroupsAre::lead}};
  const CLI::Option* mark = add_ends(
      kind, rule, "keep where documents end: at marks, which are removed, with files, lines, or records of FASTA",
      {"marks", "files", "lines", "fasta"});
  const CLI::Option* letters =
      kind->add_option("--letters", rule.letters, "letters of FASTA, lower case as upper case; others are refused")
          ->capture_default_str();
  const CLI::Option* others =
      kind->add_option("--other-letters", rule.other_letters, "one of --letters in place of other letters");
  kind->add_option("--groups", "also keep where sentences or paragraphs end within documents, or only title and lead")
      ->type_name("TEXT")
      ->check(CLI::IsMember({"sentences", "paragraphs", "lead"}))
      ->each([&rule, groups](const std::string& name) { rule.groups = groups.at(name); });
  kind->parse_complete_callback([=, &rule] {
    check_read({{mark, DocumentsAre::marks, "marks"},
                {letters, DocumentsAre::fasta, "fasta"},
                {others, DocumentsAre::fasta, "fasta"}},
               rule);
  });
}

void add_labels(CLI::App* kind, PrepareBytesConfig& config) {
  CLI::Option* labels = kind->add_option(
      "--labels", config.labels,
      "folder, or a table with a document's name, a tab, and a class, labels separated by commas, or a span by line");
  kind->add_option("--group-labels", config.group_labels,
                   "such a table with the numbers of groups, separated by spaces");
  kind->add_option("--classes", config.classes, "their names by number, separated by commas; default: sorted")
      ->needs(labels);
  kind->add_option("--seed", config.seed, "divide whole documents at random; default: in order, or 1 with --labels")
      ->type_name("UINT")
      ->check(CLI::Range(0, 2147483647));
}

void add_bytes(CLI::App& prepare, Session& session) {
  auto o = std::make_shared<Options<PrepareBytesConfig>>();
  CLI::App* kind = add_kind(prepare, "bytes", "Any files, as bytes", o->output, o->json);
  kind->add_option("--input", o->config.inputs,
                   "files, folders or - (standard input), joined in this order; compressed files (gzip, xz, bzip2, "
                   "zstd) and archives (tar, zip) are unpacked")
      ->required();
  kind->add_option("--valid-input", o->config.valid_inputs, "the same for valid; then --input is not divided");
  kind->add_option("--test-input", o->config.test_inputs, "the same for test");
  kind->add_option("--field", o->config.field,
                   "inputs are lines of JSON (.jsonl), of which this field's text is taken; --documents lines then "
                   "keeps where records end");
  kind->add_option("--split", o->config.split,
                   "train,valid,test in the order of the input: bytes (90000000,5000000,5000000), fractions "
                   "(0.9,0.05,0.05, the default), or enwik8");
  kind->add_flag("--raw", o->config.raw, "use the bytes of compressed files and archives as they are");
  kind->add_flag("--any", o->config.any, "also take files that are no text, such as Parquet, PDF, pictures and UTF-16");
  add_duplicates(kind, o->config.duplicates);
  add_documents(kind, o->config.documents);
  add_labels(kind, o->config);
  kind->callback([o, &session] { run_prepare(session, prepare_bytes, o->config, o->output, o->json); });
}

void add_tokens(CLI::App& prepare, Session& session) {
  auto o = std::make_shared<Options<PrepareTokensConfig>>();
  CLI::App* kind = add_kind(prepare, "tokens", "Ids of tokens, or text by SentencePiece", o->output, o->json);
  kind->add_option("--input", o->config.inputs,
                   ".bin files of 16-bit ids (nanoGPT, llm.c), or text as prepare bytes takes it")
      ->required();
  kind->add_option("--valid-input", o->config.valid_inputs, "the same for valid; then --input is not divided");
  kind->add_option("--test-input", o->config.test_inputs, "the same for test");
  kind->add_option("--split", o->config.split,
                   "train,valid,test: bytes or ids, or fractions (0.9,0.05,0.05, the default)");
  kind->add_option("--vocabulary", o->config.vocabulary, "ids are below it; needed for .bin without --model")
      ->check(CLI::Range(2, 65535));
  CLI::Option* model =
      kind->add_option("--model", o->config.model, "SentencePiece's .model file, kept with the data and runs");
  kind->add_option("--train-vocabulary", o->config.train_vocabulary,
                   "number of pieces of a model that is trained first, such as 4096")
      ->check(CLI::Range(300, 65535))
      ->excludes(model);
  kind->add_option("--field", o->config.field, "text: this field of lines of JSON (.jsonl)");
  add_duplicates(kind, o->config.duplicates);
  const CLI::Option* mark =
      add_ends(kind, o->config.documents, "text: keep where documents end", {"marks", "files", "lines"});
  kind->parse_complete_callback([=] { check_read({{mark, DocumentsAre::marks, "marks"}}, o->config.documents); });
  kind->callback([o, &session] { run_prepare(session, prepare_tokens, o->config, o->output, o->json); });
}

void add_seed(CLI::App* kind, std::uint64_t& seed,
              const char* what = "seed of the division into train, valid and test") {
  kind->add_option("--seed", seed, what)->check(CLI::Range(0, 2147483647))->capture_default_str();
}

// input: what --input takes.
void add_files(CLI::App* kind, PrepareFilesConfig& config, const char* input, const char* split) {
  kind->add_option("--input", config.inputs, input);
  kind->add_option("--valid-input", config.valid_inputs, "the same for valid; then --input is not divided");
  kind->add_option("--test-input", config.test_inputs, "the same for test");
  kind->add_option("--split", config.split, split);
  kind->add_flag("--skip-others", config.skip_others,
                 "leave out files that cannot be used, and files of other kinds even if they are the majority");
  add_duplicates(kind, config.duplicates);
}

void add_cifar10(CLI::App& prepare, Session& session) {
  auto o = std::make_shared<Options<PrepareCifar10Config>>();
  CLI::App* kind =
      add_kind(prepare, "cifar10", "CIFAR-10's original binary batches, as 32 x 32 x 3 bytes", o->output, o->json);
  kind->add_option("--input", o->config.inputs, "cifar-10-binary.tar.gz, the folder that it unpacks to, or its files")
      ->required();
  add_seed(kind, o->config.seed);
  kind->callback([o, &session] { run_prepare(session, prepare_cifar10, o->config, o->output, o->json); });
}

void add_examples(CLI::App& prepare, const Task& task, Session& session) {
  auto o = std::make_shared<Options<PrepareExamplesConfig>>();
  o->config.task = &task;
  CLI::App* kind = add_kind(prepare, task.name, task.what, o->output, o->json);
  kind->add_option("--split", o->config.split, fmt::format("numbers of examples; default: {}", task.split));
  add_seed(kind, o->config.seed, "seed of the examples");
  kind->callback([o, &session] { run_prepare(session, prepare_examples, o->config, o->output, o->json); });
}

struct ImagesOptions : Options<PrepareImagesConfig> {
  std::string grey = "refuse", fit, alpha = "refuse";
};

void add_images(CLI::App& prepare, Session& session) {
  auto o = std::make_shared<ImagesOptions>();
  CLI::App* kind =
      add_kind(prepare, "images", "RGB pictures: PNG, JPEG and WebP in folders or archives, .npy or .npz arrays",
               o->output, o->json);
  add_files(kind, o->config, "folders, archives (tar, zip), PNG, JPEG, WebP, .npy or .npz files",
            "train,valid,test at random: pictures (380,10,10) or fractions (0.9,0.05,0.05, the default)");
  kind->get_option("--input")->required();
  kind->add_option("--size", o->config.side, "rows and columns of every picture")->capture_default_str();
  kind->add_option("--grey", o->grey, "grey pictures: convert them to RGB or refuse them")
      ->check(CLI::IsMember({"convert", "refuse"}))
      ->capture_default_str();
  kind->add_option("--fit", o->fit,
                   "scale pictures of any size to --size: crop cuts what is too long, pad leaves it and fills with "
                   "black; without it, other sizes are refused")
      ->check(CLI::IsMember({"crop", "pad"}));
  kind->add_option("--alpha", o->alpha,
                   "transparent pictures: refuse them, drop the transparency, or put them on black or white")
      ->check(CLI::IsMember({"refuse", "drop", "black", "white"}))
      ->capture_default_str();
  add_seed(kind, o->config.seed);
  kind->callback([o, &session] {
    o->config.convert_grey = o->grey == "convert";
    if (!o->fit.empty()) o->config.fit = o->fit == "crop" ? PictureFit::crop : PictureFit::pad;
    if (o->alpha == "drop") o->config.alpha = PictureAlpha::drop;
    if (o->alpha == "black") o->config.alpha = PictureAlpha::black;
    if (o->alpha == "white") o->config.alpha = PictureAlpha::white;
    run_prepare(session, prepare_images, o->config, o->output, o->json);
  });
}

struct AudioOptions : Options<PrepareAudioConfig> {
  DecodeAudioConfig decode;
};

// --decode x.h5 --split test --index 0 --output y.wav
void run_decode(const CLI::App* kind, AudioOptions& o, const Session& session) {
  for (const char* other :
       {"--input", "--valid-input", "--test-input", "--rate", "--seed", "--skip-others", "--duplicates", "--cut"})
    if (kind->count(other) > 0)
      throw user_error("{} cannot be used with --decode, which takes --split, --index, --output and --force", other);
  if (!o.config.split.empty()) o.decode.split = o.config.split;
  check_ending(o.output.path, ".wav", "--decode writes a WAV file");
  if (session.comm->rank() != 0) return;
  within_memory("--decode holds one file of the dataset whole: choose a shorter one by --index, or free memory",
                [&] { decode_audio(o.decode, o.output); });
  if (o.json)
    return print_json({{"output", o.output.path},
                       {"dataset", o.decode.dataset},
                       {"split", o.decode.split},
                       {"index", o.decode.index}});
  if (progress_is_shown())
    fmt::print("{}: file {} of '{}' of {}\n", o.output.path, o.decode.index, o.decode.split, o.decode.dataset);
}

void add_audio(CLI::App& prepare, Session& session) {
  auto o = std::make_shared<AudioOptions>();
  CLI::App* kind = add_kind(prepare, "audio", "Sound files, as mono mu-law bytes", o->output, o->json);
  add_files(
      kind, o->config, "folders, or sound files that libsndfile reads (WAV, FLAC, Ogg, Opus, AIFF, MP3 ..)",
      "train,valid,test by file: fractions of the duration (0.8,0.1,0.1, the default); with --decode, the name of "
      "the split (train, the default)");
  kind->add_option("--rate", o->config.rate, "samples per second")->capture_default_str();
  kind->add_option(
          "--cut", o->config.cut,
          "files may be divided between splits, in the order of time, at multiples of so many seconds; default: "
          "they stay whole")
      ->check(above_zero());
  add_seed(kind, o->config.seed);
  kind->add_option("--decode", o->decode.dataset, "instead, turn a file in this dataset back into a WAV file");
  kind->add_option("--index", o->decode.index, "with --decode: which file of the split, from 0")->capture_default_str();
  kind->callback([o, kind, &session] {
    if (!o->decode.dataset.empty()) return run_decode(kind, *o, session);
    if (kind->count("--index") > 0) throw user_error("--index is for --decode only; leave it out");
    run_prepare(session, prepare_audio, o->config, o->output, o->json);
  });
}

}  // namespace

void add_prepare(CLI::App& app, Session& session) {
  CLI::App* prepare = app.add_subcommand("prepare", "Turn raw data into a dataset file");
  prepare->require_subcommand(0, 1);
  prepare->callback([prepare] {
    if (prepare->get_subcommands().empty())
      throw user_error(
          "prepare needs a kind of data: bytes, tokens, cifar10, images, audio, listops or pathfinder; see longstride "
          "prepare "
          "--help");
  });
  add_bytes(*prepare, session);
  add_tokens(*prepare, session);
  add_cifar10(*prepare, session);
  add_images(*prepare, session);
  add_audio(*prepare, session);
  for (const Task& task : tasks()) add_examples(*prepare, task, session);
}

}  // namespace longstride
