#include "launch/report/spans.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "framework/core/errors.h"
#include "framework/core/files/safetensors.h"
#include "framework/models/mixes_positions.h"
#include "framework/train/checkpoint/checkpoint_files.h"
#include "launch/report/html.h"

namespace longstride {
namespace {

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double largest_of(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

std::size_t most_heads(const RunSpans& spans) {
  std::size_t most = 0;
  for (const auto& heads : spans.layers) most = std::max(most, heads.size());
  return most;
}

// Marks over layers. The vertical axis is logarithmic from one position on, because most spans stay short.
std::string chart(const RunSpans& spans) {
  constexpr double width = 560, height = 260, left = 56, right = 12, top = 30, low = 36;
  const double last = std::max<double>(1, static_cast<double>(spans.layers.size()) - 1);
  const double decades = std::log10(std::max(10.0, spans.longest + 1));
  const auto x = [&](double layer) { return left + (width - left - right) * (0.5 + layer) / (last + 1); };
  const auto y = [&](double positions) {
    return height - low - (height - low - top) * std::log10(positions + 1) / decades;
  };
  std::string out = fmt::format(
      "<figure class=\"plot\">\n<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"spans of heads by layer\">\n"
      "<text x=\"{}\" y=\"18\" class=\"title\">spans of heads by layer, positions</text>\n",
      width, height, left);
  for (double tick = 1; tick <= spans.longest; tick *= 10)
    out += fmt::format(
        "<path class=\"grid\" d=\"M{} {:.1f}H{}\"/><text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.0f}</text>\n",
        left, y(tick), width - right, left - 6, y(tick) + 4, tick);
  const std::size_t every = spans.layers.size() / 12 + 1;
  for (std::size_t k = 0; k < spans.layers.size(); ++k) {
    const auto layer = static_cast<double>(k);
    if (k % every == 0)
      out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", x(layer), height - 10,
                         spans.numbers[k]);
    for (std::size_t h = 0; h < spans.layers[k].size(); ++h) {
      const double span = spans.layers[k][h];
      out += fmt::format(
          "<circle class=\"a\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\"><title>layer {}, head {}: "
          "{:.0f}</title></circle>\n",
          x(layer), y(span), spans.numbers[k], h, span);
    }
  }
  return out + "</svg>\n</figure>\n";
}

}  // namespace

double RunSpans::mean() const {
  std::vector<double> of_layers;
  for (const auto& heads : layers) of_layers.push_back(mean_of(heads));
  return mean_of(of_layers);
}

double RunSpans::largest() const {
  double largest = 0;
  for (const auto& heads : layers) largest = std::max(largest, largest_of(heads));
  return largest;
}

const std::vector<double>& RunSpans::of_layer(std::int64_t number) const {
  const auto found = std::find(numbers.begin(), numbers.end(), number);
  LONGSTRIDE_CHECK(found != numbers.end(), "heads of layer {} learn no spans", number);
  return layers[static_cast<std::size_t>(found - numbers.begin())];
}

bool learns_spans(const Model& model) {
  const auto* mixes = capability<MixesPositions>(model);
  for (std::int64_t layer = 0; mixes != nullptr && layer < mixes->layers(); ++layer)
    if (mixes->mixer(layer).spans().learned()) return true;
  return false;
}

namespace {

// `shares_of`: the values of a parameter.
RunSpans collect_spans(const Model& model, const std::function<std::vector<float>(const std::string&)>& shares_of) {
  RunSpans out;
  const auto& mixes = required<MixesPositions>(model, "show spans");
  for (std::int64_t layer = 0; layer < mixes.layers(); ++layer) {
    const HeadSpans spans = mixes.mixer(layer).spans();
    if (!spans.learned()) continue;
    out.longest = std::max(out.longest, spans.longest);
    out.ramp = std::max(out.ramp, spans.ramp);
    out.numbers.push_back(layer);
    std::vector<double>& heads = out.layers.emplace_back();
    for (const float share : shares_of(spans.parameter)) heads.push_back(static_cast<double>(share) * spans.longest);
  }
  return out;
}

}  // namespace

RunSpans read_spans(const std::string& run, std::int64_t step, const Model& model) {
  if (!learns_spans(model)) return {};
  const SafetensorsReader file(checkpoint_directory(run, step) + "/" + checkpoint_names::model);
  return collect_spans(model, [&](const std::string& parameter) {
    constexpr std::int64_t most_shares = 1 << 16;
    const TensorEntry* entry = file.find(parameter);
    const std::int64_t count = entry != nullptr ? std::min(entry->shape.count(), most_shares) : 1;
    std::vector<float> shares(static_cast<std::size_t>(count));
    file.read(parameter, Tensor(shares.data(), Dtype::f32, {std::ssize(shares)}));
    return shares;
  });
}

RunSpans spans_of(Model& model) {
  if (!learns_spans(model)) return {};
  return collect_spans(model, [&](const std::string& parameter) {
    const auto& all = model.parameters().all();
    const auto found = std::ranges::find(all, parameter, &Parameter::name);
    LONGSTRIDE_CHECK(found != all.end(), "no parameter {}", parameter);
    const auto* shares = found->master.as<const float>();
    return std::vector<float>(shares, shares + found->shape.count());
  });
}

nlohmann::ordered_json spans_as_json(const RunSpans& spans) {
  return {{"longest", spans.longest},
          {"ramp", spans.ramp},
          {"mean", spans.mean()},
          {"largest", spans.largest()},
          {"layers", spans.layers}};
}

std::string spans_as_text(const RunSpans& spans) {
  std::string out =
      fmt::format("spans in positions, of at most {:.0f}, which a ramp of {:.0f} follows\n", spans.longest, spans.ramp);
  for (std::size_t k = 0; k < spans.layers.size(); ++k) {
    out += fmt::format("layer {:>3}: ", spans.numbers[k]);
    for (const double span : spans.layers[k]) out += fmt::format(" {:>6.0f}", span);
    out += fmt::format("   mean {:.1f}\n", mean_of(spans.layers[k]));
  }
  return out + fmt::format("mean {:.1f}, largest {:.0f}\n", spans.mean(), spans.largest());
}

std::string spans_as_html(const RunSpans& spans) {
  if (spans.layers.empty()) return "";
  std::string head = "<tr><th>layer</th>";
  for (std::size_t h = 0; h < most_heads(spans); ++h) head += fmt::format("<th>head {}</th>", h);
  std::string rows = head + "<th>mean</th></tr>\n";
  for (std::size_t k = 0; k < spans.layers.size(); ++k) {
    rows += fmt::format("<tr><td>{}</td>", spans.numbers[k]);
    for (const double span : spans.layers[k]) rows += fmt::format("<td>{:.0f}</td>", span);
    rows += fmt::format("<td>{:.1f}</td></tr>\n", mean_of(spans.layers[k]));
  }
  return fmt::format(
             "<p>How many positions every head looks back, of at most {:.0f}: {:.1f} on average, {:.0f} at most; a "
             "ramp "
             "of {:.0f} follows.</p>\n",
             spans.longest, spans.mean(), spans.largest(), spans.ramp) +
         "<div class=\"plots\">\n" + chart(spans) + "</div>\n<div class=\"wide\"><table>\n" + rows + "</table></div>\n";
}

}  // namespace longstride
