#include "datasets/objectives/masked_bytes.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "datasets/objectives/row_tokens.h"
#include "datasets/objectives/scored_choice.h"
#include "kernels/base/philox.h"

namespace longstride {
namespace {

// The draws: for a unit, for the byte in place of one, and once for a row.
enum class Draw : std::uint8_t { unit, byte, row };

kernels::Philox4 drawn(const RowKey& key, std::int64_t position, Draw which) {
  return kernels::philox(key.seed, static_cast<std::uint64_t>(key.row), static_cast<std::uint32_t>(position),
                         kernels::domain_of(kernels::Purpose::masks, static_cast<std::uint32_t>(which)));
}

// True with this probability.
bool below(std::uint32_t word, double share) { return word < 0x1p32 * share; }

bool in_word(std::uint8_t byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') || byte >= 128;
}

}  // namespace

void Masked::visit(SettingsVisitor& v) {
  constexpr Range share{0, 1, true, true, "a number above 0 and below 1"};
  constexpr Range part{0, 1, false, false, "a number from 0 to 1"};
  v.choice("unit", s_.unit, Need::optional,
           Choices<MaskedUnit>{{"byte", MaskedUnit::byte},
                               {"word", MaskedUnit::word},
                               {"span", MaskedUnit::span},
                               {"group", MaskedUnit::group}});
  v.field("share", s_.share, Need::optional, share);
  v.field("mask", s_.mask, Need::optional, part);
  v.field("random", s_.random, Need::optional, part);
  v.field("keep", s_.keep, Need::optional, part);
  v.field("length", s_.length, Need::optional, ranges::positions);
}

void Masked::check(SettingsChecker& check) const {
  if (check.none_in({"objective.mask", "objective.random", "objective.keep"}) &&
      std::abs(s_.mask + s_.random + s_.keep - 1) > 1e-6)
    check.refuse(
        "objective.mask",
        "objective.mask, random and keep are {}, {} and {}, but must add up to 1: of what is asked, the shares "
        "that are hidden, replaced and shown",
        s_.mask, s_.random, s_.keep);
  if (check.none_in({"objective.unit", "objective.length"}) && s_.unit != MaskedUnit::span &&
      s_.length != MaskedSettings().length)
    check.refuse("objective.length", "objective.length is {}, but only unit span has a length; remove it", s_.length);
}

void Masked::add_units(const std::uint8_t* bytes, Unit part, std::int64_t phase, std::vector<Unit>& units) const {
  if (s_.unit == MaskedUnit::group) return units.push_back(part);
  for (std::int64_t begin = part.begin; begin < part.end;) {
    std::int64_t end = begin + 1;
    if (s_.unit == MaskedUnit::span) {
      while (end < part.end && (end + phase) % s_.length != 0) ++end;
    } else if (s_.unit == MaskedUnit::word) {
      if (in_word(bytes[begin]))
        while (end < part.end && end - begin < longest_word && in_word(bytes[end])) ++end;
      else
        begin = end;  // stands between words
    }
    if (begin < end) units.push_back({begin, end});
    begin = end;
  }
}

std::vector<Masked::Unit> Masked::units(const RowBytes& of, std::int64_t count, const RowKey& key) const {
  std::vector<Unit> units;
  const std::int64_t phase =
      s_.unit == MaskedUnit::span ? drawn(key, 0, Draw::row).word[0] % static_cast<std::uint32_t>(s_.length) : 0;
  of.each_group(count, [&](std::int64_t begin, std::int64_t end) { add_units(of.bytes, {begin, end}, phase, units); });
  return units;
}

void Masked::write(const Batch& batch, std::int64_t row, const RowBytes& of, const RowKey& key) const {
  const std::int64_t seq = batch.tokens.size(1), count = write_tokens(batch, row, of, 0);
  auto* tokens = batch.tokens.as<std::uint16_t>() + row * seq;
  if (!batch.targets.given()) return;
  std::copy_n(tokens, seq, batch.targets.as<std::uint16_t>() + row * seq);
  float* weights = batch.weights.as<float>() + row * seq;
  std::fill_n(weights, seq, 0.0f);

  if (of.hidden) {
    for (const std::int64_t p : *of.hidden) weights[p] = 1, tokens[p] = static_cast<std::uint16_t>(ids::mask);
    return;
  }
  const std::vector<Unit> all = units(of, count, key);
  const auto draw_of = [&](const Unit& unit) { return drawn(key, unit.begin, Draw::unit); };
  std::uint32_t least = 0xFFFFFFFF;
  for (const Unit& unit : all) least = std::min(least, draw_of(unit).word[0]);
  for (const Unit& unit : all) {
    const kernels::Philox4 draw = draw_of(unit);
    if (!below(draw.word[0], s_.share) && draw.word[0] != least) continue;
    for (std::int64_t p = unit.begin; p < unit.end; ++p) {
      weights[p] = 1;
      if (below(draw.word[1], s_.mask))
        tokens[p] = static_cast<std::uint16_t>(ids::mask);
      else if (below(draw.word[1], s_.mask + s_.random))
        tokens[p] = static_cast<std::uint16_t>(drawn(key, p, Draw::byte).word[0] % ids::bytes);
    }
  }
}

// The next byte that is in words if this one is, and not if it is not.
std::uint8_t Masked::replaced(std::uint8_t byte) const {
  std::uint8_t next = byte;
  do {
    ++next;
  } while (in_word(next) != in_word(byte));
  return next;
}

nlohmann::ordered_json Masked::answers_of(const AnsweredRow& row) const {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  const auto* tokens = row.batch.tokens.as<const std::uint16_t>();
  const auto* targets = row.batch.targets.as<const std::uint16_t>();
  const auto* weights = row.batch.weights.as<const float>();
  for (std::int64_t p = 0; p < row.batch.tokens.size(1); ++p) {
    if (weights[p] == 0) continue;
    const Choice choice = choice_of(row.scores + p * row.answers, row.answers, targets[p]);
    const char* const shown = tokens[p] == ids::mask ? "mask" : tokens[p] == targets[p] ? "kept" : "random";
    out.push_back({{"position", row.first + p},
                   {"shown", shown},
                   {"byte", targets[p]},
                   {"predicted", choice.best},
                   {"probability", choice.probability},
                   {"bits", choice.bits}});
  }
  return out;
}

void Masked::add(const Answered& one, double* sums) const {
  sums[0] += one.loss;
  sums[1] += one.right * one.weight;
}

std::vector<Figure> Masked::figures(const Scored& scored) const {
  const double loss = scored.loss();
  Figure nats{"loss", loss, true, scored.error, "nats"}, bits{"bits per masked byte", loss / std::numbers::ln2};
  if (scored.error) bits.error = *scored.error / std::numbers::ln2;
  if (scored.sums.size() == 1) return {nats, bits};
  return {nats, bits, {"accuracy", scored.sums[1] / scored.weight, false}};
}

}  // namespace longstride
