// Writes the initial inputs of this folder's fuzzers: make_corpus FOLDER makes FOLDER/<name>/*.
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/datasets/formats/archive/archives.h"
#include "tests/datasets/formats/npy_writer.h"
#include "tests/datasets/formats/pictures/jpeg_encoder.h"
#include "tests/datasets/formats/pictures/webp_encoder.h"
#include "tests/datasets/formats/png_encoder.h"

namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes counting(std::size_t count) {
  Bytes out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<std::uint8_t>(i * 7);
  return out;
}

// A WAV file of `frames` whole frames; `format` is the number of the format, `more` the rest of its chunk.
Bytes make_wav(int format, int channels, int bits, std::size_t block, const Bytes& frames, const Bytes& more = {}) {
  using longstride::put_number;
  Bytes out = {'R', 'I', 'F', 'F'};
  put_number(out, 4 + 8 + 16 + more.size() + 8 + frames.size(), 4);
  for (const char c : std::string("WAVEfmt ")) out.push_back(static_cast<std::uint8_t>(c));
  put_number(out, 16 + more.size(), 4);
  put_number(out, static_cast<std::uint64_t>(format), 2);
  put_number(out, static_cast<std::uint64_t>(channels), 2);
  put_number(out, 8000, 4);
  put_number(out, 8000 * block, 4);
  put_number(out, block, 2);
  put_number(out, static_cast<std::uint64_t>(bits), 2);
  out.insert(out.end(), more.begin(), more.end());
  for (const char c : std::string("data")) out.push_back(static_cast<std::uint8_t>(c));
  put_number(out, frames.size(), 4);
  out.insert(out.end(), frames.begin(), frames.end());
  return out;
}

struct Text {
  const char *fuzzer, *name;
  std::string text;
};
const Text texts[] = {
    {"fasta", "plain.fa", ">one words\nACGT\nacgtn\n\n;comment\n>two\n>three\nN"},
    {"fasta", "windows.fa", ">one\r\nACGT\r\nRYK\r\n"},
    {"labels", "classes.tsv", "a\t10\r\nb\t9\r\n"},
    {"labels", "labels.tsv", "a\tx,y\nb\t\n"},
    {"labels", "spans.tsv", "a\t3-17\nb\t0-0\n"},
};

}  // namespace

int main(int count, char** arguments) {
  using namespace longstride;
  if (count != 2) return 2;
  const std::filesystem::path folder = arguments[1];
  const auto write = [&](const char* fuzzer, const char* name, const Bytes& bytes) {
    std::filesystem::create_directories(folder / fuzzer);
    std::ofstream out(folder / fuzzer / name, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (!out) std::exit(1);
  };
  const Bytes interleaved = make_npy("(2, 4, 4, 3)", counting(96));
  write("npy", "interleaved.npy", interleaved);
  write("npy", "planar.npy", make_npy("(2, 48)", counting(96)));
  write("npy", "grey.npy", make_npy("(2, 4, 4)", counting(32)));
  write("npy", "floats.npy", make_npy("(1, 4, 4, 3)", counting(192), "<f4"));
  write("npy", "fortran.npy", make_npy("(2, 4, 4, 3)", counting(96), "|u1", "True"));
  write("npy", "stored.npz", make_archive({{"data.npy", interleaved}}, "zip", "", "zip:compression=store"));
  write("npy", "deflated.npz", make_archive({{"data.npy", interleaved}}, "zip"));

  const Bytes rgb = encode_png(4, 4, counting(48), {});
  write("png", "rgb.png", rgb);
  write("png", "grey4.png", encode_png(2, 4, counting(4), {PNG_COLOR_TYPE_GRAY, 4, false, 0}));
  write("png", "palette.png", encode_png(1, 4, {0, 1, 2, 3}, {PNG_COLOR_TYPE_PALETTE, 8, false, 0}));
  write("png", "deep.png", encode_png(1, 1, counting(6), {PNG_COLOR_TYPE_RGB, 16, false, 0}));

  const Bytes exif = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0};
  write("picture", "grey.jpg", encode_jpeg(9, 7, counting(63), {1, 50, false, {}}));
  write("picture", "rgb.jpg", encode_jpeg(9, 7, counting(189), {3, 50, false, exif}));
  write("picture", "progressive.jpg", encode_jpeg(9, 7, counting(189), {3, 50, true, {}}));
  write("picture", "cmyk.jpg", encode_jpeg(9, 7, counting(252), {4, 50, false, {}}));
  const Bytes lossless = encode_webp(9, 7, counting(252), 4);
  write("picture", "lossless.webp", lossless);
  write("picture", "lossy.webp", encode_webp(9, 7, counting(189), 3, 50));
  write("picture", "lossy_alpha.webp", encode_webp(9, 7, counting(252), 4, 50));
  write("picture", "exif.webp", extended_webp(lossless, 9, 7, false, exif));
  write("picture", "animated.webp", extended_webp(lossless, 9, 7, true, {}));

  const NamedFiles files = {{"a.png", rgb}, {"folder/b.txt", counting(600)}, {std::string(120, 'x'), counting(10)}};
  for (const char* format : {"ustar", "gnutar", "pax", "zip"}) write("archive", format, make_archive(files, format));
  for (const char* filter : {"gzip", "xz"}) write("archive", filter, make_archive(files, "gnutar", filter));
  for (const char* filter : {"gzip", "xz", "bzip2", "zstd"}) {
    write("content", filter, make_archive({{"x", counting(600)}}, "raw", filter));
    write("content", (std::string("tar.") + filter).c_str(), make_archive({{"x", counting(600)}}, "gnutar", filter));
  }
  for (const char* format : {"ustar", "pax", "zip"})
    write("content", format, make_archive({{"x", counting(600)}, {"y/.z", counting(9)}, {"w", {}}}, format));
  const std::string records =
      "{\"id\": 1, \"text\": \"one\\ntwo\", \"meta\": {\"text\": [1]}}\n\n{\"text\": \"\\u00e4\"}";
  write("field", "records.jsonl", Bytes(records.begin(), records.end()));
  write("wav", "pcm8.wav", make_wav(1, 1, 8, 1, counting(64)));
  write("wav", "pcm16.wav", make_wav(1, 2, 16, 4, counting(64)));
  write("wav", "pcm24.wav", make_wav(1, 1, 24, 3, counting(66)));
  write("wav", "float.wav", make_wav(3, 1, 32, 4, counting(64)));
  write("wav", "mu_law.wav", make_wav(7, 1, 8, 1, counting(64), {0, 0}));
  write("wav", "adpcm.wav", make_wav(0x11, 1, 4, 64, counting(128), {2, 0, 121, 0}));
  write("wav", "extensible.wav",
        make_wav(0xFFFE, 2, 16, 4, counting(64),
                 {22, 0, 16, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 16, 0, 128, 0, 0, 170, 0, 56, 155, 113}));
  // hdf5: which file, flags, and records of kind, extent, offset (2) and value (4)
  for (const std::uint8_t seed : {0, 1, 2, 3})
    write("hdf5", std::string("seed" + std::to_string(seed)).c_str(),
          {seed, 1, 0x11, 3, 20, 0, 2, 0, 0, 0, 0x22, 5, 40, 0, 1, 0, 0, 0});
  for (const auto& [fuzzer, name, text] : texts) write(fuzzer, name, {text.begin(), text.end()});
  write("npy", "wide.npz", make_archive({{"data.npy", interleaved}}, "zip", "", "zip:zip64"));
}
