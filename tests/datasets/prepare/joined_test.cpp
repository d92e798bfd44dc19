// `prepare bytes` with the inputs that users have: several files, folders, gzip, standard input.
#include <zlib.h>

#include <algorithm>

#include "framework/core/files/sha256.h"
#include "tests/datasets/command.h"
#include "tests/datasets/support.h"

namespace longstride {
namespace {

Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Bytes words(std::size_t count, int seed) {
  Bytes out(count);
  for (std::size_t i = 0; i < count; ++i)
    out[i] = static_cast<std::uint8_t>('a' + (i * i + static_cast<std::size_t>(seed)) % 23);
  return out;
}

// One member of a .gz file.
Bytes gzip(const Bytes& content) {
  z_stream state = {};
  deflateInit2(&state, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  Bytes out(deflateBound(&state, content.size()) + 64);
  state.next_in = const_cast<Bytef*>(content.data());
  state.avail_in = static_cast<uInt>(content.size());
  state.next_out = out.data();
  state.avail_out = static_cast<uInt>(out.size());
  deflate(&state, Z_FINISH);
  out.resize(state.total_out);
  deflateEnd(&state);
  return out;
}

Bytes all_bytes(const std::string& path) {
  const auto dataset = Dataset::open(path);
  return whole_split(*dataset, "train") + whole_split(*dataset, "valid") + whole_split(*dataset, "test");
}

Bytes prepared(const Folder& folder, const std::vector<std::string>& inputs) {
  prepare_bytes({inputs}, to(folder / "x.h5", true));
  return all_bytes(folder / "x.h5");
}

TEST(JoinedInputs, MakeTheSameFileHoweverTheTextIsDivided) {
  const Folder folder;
  const Bytes text = random_bytes(5'000'000, 1);
  const auto part = [&](std::ptrdiff_t from, std::ptrdiff_t end) {
    return Bytes(text.begin() + from, text.begin() + end);
  };
  put_file(folder / "whole", text);
  put_file(folder / "b", part(0, 1));
  put_file(folder / "a", part(1, 3'000'000));
  put_file(folder / "c", part(3'000'000, 5'000'000));
  prepare_bytes({{folder / "whole"}}, to(folder / "x.h5"));
  prepare_bytes({{folder / "b", folder / "a", folder / "c"}}, to(folder / "y.h5"));
  const auto x = Dataset::open(folder / "x.h5"), y = Dataset::open(folder / "y.h5");
  for (const char* split : split_names) {
    EXPECT_EQ(x->stored_sha256(split), y->stored_sha256(split)) << split;
    EXPECT_EQ(y->split(split)->sequences(), 1) << split;
  }
  EXPECT_EQ(x->info().split, y->info().split);
  const auto sources = y->sources();
  ASSERT_EQ(sources.size(), 3u);
  EXPECT_EQ(sources[0].name, folder / "b");
  EXPECT_EQ(sources[1].name, folder / "a");
  EXPECT_EQ(sources[1].bytes, 2'999'999);
  for (const SourceFile& source : sources) EXPECT_EQ(source.sha256, sha256_of_file(source.name));
}

TEST(JoinedInputs, TakeTheFilesOfAFolderInTheOrderOfTheirPaths) {
  const Folder folder;
  put_file(folder / "in/b.txt", words(700, 1));
  put_file(folder / "in/B.txt", words(800, 2));
  put_file(folder / "in/a/z.md", words(900, 3));
  put_file(folder / "in/empty", {});
  put_file(folder / "in/z/empty", {});
  put_file(folder / "in/packed", gzip(words(950, 4)));
  put_file(folder / "in/.hidden", words(100, 5));
  put_file(folder / "in/.git/config", words(100, 6));
  put_file(folder / "first", words(300, 7));
  EXPECT_EQ(prepared(folder, {folder / "first", folder / "in"}),
            words(300, 7) + words(800, 2) + words(900, 3) + words(700, 1) + words(950, 4));
  const auto sources = Dataset::open(folder / "x.h5")->sources();
  ASSERT_EQ(sources.size(), 7u);
  EXPECT_EQ(sources[4].name, folder / "in/empty");
  EXPECT_EQ(sources[4].bytes, 0);
  EXPECT_EQ(sources[6].name, folder / "in/z/empty");
}

TEST(JoinedInputs, UnpackGzipOfOneOrSeveralMembers) {
  const Folder folder;
  const Bytes first = words(3'000'000, 1), second = random_bytes(200'000, 2);
  put_file(folder / "a", gzip(first));
  put_file(folder / "b", gzip(first) + gzip(second));
  put_file(folder / "c", gzip(second) + gzip({}) + Bytes(1000, 0));  // padded, as on tape
  EXPECT_EQ(prepared(folder, {folder / "a"}), first);
  EXPECT_EQ(prepared(folder, {folder / "b"}), first + second);
  EXPECT_EQ(prepared(folder, {folder / "c"}), second);
  const auto sources = Dataset::open(folder / "x.h5")->sources();
  EXPECT_EQ(sources[0].bytes, static_cast<std::int64_t>(std::filesystem::file_size(folder / "c")));
  EXPECT_EQ(sources[0].sha256, sha256_of_file(folder / "c"));
}

// libarchive's reader of gzip does not compare the checksum, so its file may be wrong without an error.
TEST(JoinedInputs, RefuseDamagedGzip) {
  const Folder folder;
  const Bytes whole = gzip(random_bytes(100'000, 1));
  const auto refuse = [&](const Bytes& file, const std::string& message) {
    put_file(folder / "a.gz", file);
    expect_user_error([&] { prepare_bytes({{folder / "a.gz"}}, to(folder / "x.h5")); }, message);
  };
  for (std::size_t part = 1; part < 16; ++part) refuse(cut_short(whole, part), "(it is cut short)");
  for (const std::ptrdiff_t less : {1, 4, 8}) refuse(Bytes(whole.begin(), whole.end() - less), "(it is cut short)");
  refuse(Bytes(whole.begin(), whole.begin() + 3), "(it is cut short)");
  Bytes flipped = whole;
  flipped[50'000] ^= 1;  // random bytes are stored, so the stream stays valid
  refuse(flipped, "(incorrect data check)");
  refuse(whole + Bytes{'x', 'y'}, "a.gz: 2 bytes follow the end of its gzip content; cut them off");
  refuse(gzip(gzip(words(1000, 1))), "is packed twice (gzip in gzip)");
  refuse(gzip({}), "is empty");
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
  EXPECT_FALSE(folder.holds_temporaries());
}

TEST(JoinedInputs, KeepPackedBytesWhenAsked) {
  const Folder folder;
  const Bytes packed = gzip(words(100'000, 1));
  put_file(folder / "a.gz", packed);
  const Outcome outcome = call(fmt::format("prepare bytes --input {0}/a.gz --raw --output {0}/x.h5", folder.path()));
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_EQ(all_bytes(folder / "x.h5"), packed);
}

TEST(PrepareCommand, JoinsItsInputsAndSaysWhereTheyAreFrom) {
  const Folder folder;
  put_file(folder / "a", words(3000, 1));
  put_file(folder / "b.gz", gzip(words(4000, 2)));
  put_file(folder / "c/d", words(500, 3));
  for (const char* inputs : {"--input {0}/a {0}/b.gz --input {0}/c", "--input {0}/a --input {0}/b.gz --input {0}/c"}) {
    const Outcome outcome = call(fmt::format("prepare bytes --force --split 7000,250,250 --output {0}/x.h5 {1}",
                                             folder.path(), fmt::format(fmt::runtime(inputs), folder.path())));
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    EXPECT_NE(outcome.text.find("b.gz: "), std::string::npos) << outcome.text;
    EXPECT_NE(outcome.text.find(" bytes, which unpack to 4,000\n"), std::string::npos) << outcome.text;
    EXPECT_EQ(all_bytes(folder / "x.h5"), words(3000, 1) + words(4000, 2) + words(500, 3));
  }
  const Outcome info = call(fmt::format("info {}/x.h5", folder.path()));
  for (const char* source : {"/a, 3,000 bytes, sha256 ", "/b.gz, ", "/c/d, 500 bytes, sha256 "})
    EXPECT_NE(info.text.find(source), std::string::npos) << info.text;
}

TEST(PrepareCommand, MakesTheFoldersOfItsOutput) {
  const Folder folder;
  put_file(folder / "a", words(3000, 1));
  for (const char* input : {"a", "-"}) {
    const Outcome outcome =
        shell(fmt::format("cd {1}; '{0}' prepare bytes --input {2} --split 2800,100,100 --output new/data/x.h5 < a",
                          LONGSTRIDE_COMMAND, folder.path(), input));
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    EXPECT_EQ(all_bytes(folder / "new/data/x.h5"), words(3000, 1));
    std::filesystem::remove_all(folder / "new");
  }
}

// Two commands that began at the same time: neither has --force, so the second must not replace what the first wrote.
TEST(JoinedInputs, KeepADatasetThatAppearsWhileTheyAreRead) {
  const Folder folder;
  put_file(folder / "a", words(3000, 1));
  PrepareOutput output = to(folder / "x.h5");
  output.progress = [&](std::int64_t, std::int64_t) { put_file(folder / "x.h5", {1}); };
  expect_user_error([&] { prepare_bytes({{folder / "a"}}, output); }, "x.h5: was written by another program");
  EXPECT_EQ(get_file(folder / "x.h5"), Bytes{1});
  EXPECT_FALSE(folder.holds_temporaries());
  output.replace = true;
  prepare_bytes({{folder / "a"}}, output);
  EXPECT_EQ(all_bytes(folder / "x.h5"), words(3000, 1));
}

TEST(PrepareCommand, SaysWhichFilesOnlyHaveNamesOfPackedOnes) {
  const Folder folder;
  put_file(folder / "p/a.ZIP", words(3000, 1));  // as a page that says that there is no such file
  put_file(folder / "p/b.tar.gz", words(3000, 2));
  put_file(folder / "p/empty.xz", {});
  put_file(folder / "p/raw.txt", words(3000, 3));
  const std::string prepare = fmt::format("prepare bytes --force --input {0}/p --output {0}/x.h5", folder.path());
  const std::string note = folder / "p/a.ZIP and 1 more input: named like a packed file, but does not begin like one";
  const Outcome noted = call(prepare), raw = call(prepare + " --raw");
  EXPECT_EQ(noted.code, 0) << noted.text;
  EXPECT_NE(noted.text.find(note), std::string::npos) << noted.text;
  EXPECT_EQ(raw.text.find("named like"), std::string::npos) << raw.text;
}

TEST(PrepareCommand, LeavesNoFoldersWhenItFails) {
  const Folder folder;
  put_file(folder / "a", words(3000, 1));
  std::filesystem::create_directory(folder / "old");
  for (const char* made : {"new", "old/new"}) {
    const Outcome outcome = shell(
        fmt::format("ulimit -f 1; '{0}' prepare bytes --input {1}/a --split 2800,100,100 --output {1}/{2}/data//x.h5",
                    LONGSTRIDE_COMMAND, folder.path(), made));
    EXPECT_EQ(outcome.code, 2) << outcome.text;
    EXPECT_NE(outcome.text.find("cannot be written"), std::string::npos) << outcome.text;
    EXPECT_FALSE(std::filesystem::exists(folder / made));
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "old"));
}

TEST(PrepareCommand, ReadsStandardInput) {
  const Folder folder;
  const Bytes text = random_bytes(2'500'000, 1);
  put_file(folder / "a", text);
  put_file(folder / "a.gz", gzip(text));
  put_file(folder / "b", words(1000, 2));
  const std::string prepare =
      fmt::format("'{}' prepare bytes --force --output {}/x.h5 --input", LONGSTRIDE_COMMAND, folder.path());
  const Bytes both = text + words(1000, 2);
  for (const std::string& command :
       {fmt::format("cat {0}/a {0}/b | {1} -", folder.path(), prepare),
        fmt::format("{1} - {0}/b < {0}/a", folder.path(), prepare),
        fmt::format("(cat {0}/a.gz; sleep 0.5; gzip < {0}/b) | {1} -", folder.path(), prepare)}) {
    const Outcome outcome = shell(command);
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    EXPECT_NE(outcome.text.find("  from    standard input, "), std::string::npos) << outcome.text;
    EXPECT_EQ(all_bytes(folder / "x.h5"), both) << command;
  }
  EXPECT_FALSE(folder.holds_temporaries());
  const Outcome full = shell(fmt::format("cat {0}/a | (ulimit -f 1000; {1} -)", folder.path(), prepare));
  EXPECT_EQ(full.code, 2) << full.text;
  EXPECT_NE(full.text.find("File too large"), std::string::npos) << full.text;
  EXPECT_EQ(all_bytes(folder / "x.h5"), both);
  EXPECT_FALSE(folder.holds_temporaries());
}

// A signal ends the wait for a pipe that gives nothing.
TEST(PrepareCommand, StopsWhileItWaitsForStandardInput) {
  const Folder folder;
  const Outcome outcome =
      shell(fmt::format("cd {1}; mkfifo pipe; sleep 60 > pipe & '{0}' prepare bytes --input - --output x.h5 < pipe & "
                        "for i in \\$(seq 300); do ls -A | grep -q tmp && break; sleep 0.1; done; "
                        "kill -TERM \\$!; wait \\$!; code=\\$?; kill %1; exit \\$code",
                        LONGSTRIDE_COMMAND, folder.path()));
  EXPECT_EQ(outcome.code, 2) << outcome.text;
  EXPECT_NE(outcome.text.find("stopped by a signal; nothing was written"), std::string::npos) << outcome.text;
  EXPECT_FALSE(folder.holds_temporaries());
}

TEST(PrepareCommand, RefusesInputsThatItCannotJoin) {
  const Folder folder;
  const Bytes old = words(4000, 1);
  put_file(folder / "a", old);
  put_file(folder / "in/b", words(4000, 2));
  put_file(folder / "nothing/.hidden", words(10, 1));
  put_file(folder / "zero/empty", {});
  put_file(folder / "linked/b", words(4000, 3));
  std::filesystem::create_symlink("b", folder / "linked/c");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{0}/a {0}/in/../a", "/a: is given twice (also as "},
      {"{0}/a {0}/a", "/a: is given twice; name every input once"},
      {"{0}/in {0}/in/b", "/in/b: is given twice"},
      {"{0}/linked", "/linked/c: is given twice (also as {0}/linked/b); remove the link"},
      {"- -", "--input - is given twice"},
      {"-", "standard input: is empty; there is nothing to prepare"},
      {"{0}/a {0}/zero/empty", "/zero/empty: is empty"},
      {"{0}/zero", "/zero: is empty"},
      {"{0}/nothing", "/nothing: holds no files"},
      {"{0}/absent {0}/a", "/absent: cannot be found"},
      {"{0}/a {0}/in --split 1,2,3", "/a and 1 more input: has 8,000 bytes, but --split 1,2,3 adds up to 6"},
      {"{0}/a {0}/in/b --output {0}/in/b --force", "/in/b: is also the input"},
      {"{0}/in --output {0}/in/b --force", "/in/b: is also the input"},
      {"- --output {0}/a --force < {0}/a", "/a: is also the input"},
      {"{0}/a --output {0}/a/x.h5", "/a is not a folder; choose another --output"},
  };
  for (const auto& [arguments, message] : cases) {
    SCOPED_TRACE(arguments);
    const std::string all = fmt::format(fmt::runtime(arguments), folder.path());
    const bool has_output = all.find("--output") != std::string::npos;
    const Outcome outcome =
        call("prepare bytes" + (has_output ? "" : " --output " + (folder / "x.h5")) + " --input " + all);
    EXPECT_EQ(outcome.code, 2) << outcome.text;
    EXPECT_NE(outcome.text.find(fmt::format(fmt::runtime(message), folder.path())), std::string::npos) << outcome.text;
    EXPECT_EQ(std::count(outcome.text.begin(), outcome.text.end(), '\n'), 1) << outcome.text;
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
  EXPECT_EQ(get_file(folder / "a"), old);
  EXPECT_EQ(get_file(folder / "in/b"), words(4000, 2));
  EXPECT_FALSE(folder.holds_temporaries());
}

}  // namespace
}  // namespace longstride
