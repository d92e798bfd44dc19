#include "framework/models/decoder/decoder.h"

#include "framework/core/errors.h"

namespace longstride {

Decoder::Decoder(const DecoderConfig& config)
    : StackModel(std::make_shared<DecoderConfig>(config), {}), config_(config) {
  TableForm table = config.table();
  table.deviation = config.init_deviation;
  table.has_clusters = true;
  auto head = std::make_unique<NextByteHead>(declared(), "output",
                                             NextByteConfig{table, config.output_bias, config.output_dropout},
                                             config.tied_output ? &input().embedding().tokens() : nullptr);
  head_ = head.get();
  finish(std::move(head));
}

void Decoder::check_group(int ranks) const {
  for (std::int64_t layer = 0; layer < layers(); ++layer)
    if (const std::string problem = mixer(layer).problem_of_ranks(ranks); !problem.empty())
      throw user_error("{}", problem);
  if (config_.context % ranks != 0)
    throw user_error("parallel.sequence_ranks is {}, which does not divide data.context, {}; choose a divisor", ranks,
                     config_.context);
}

void Decoder::predict(Context& ctx, const Batch& batch, const Tensor& scores) const {
  with_hidden(ctx, batch, [&](Context& quiet, const Tensor& hidden) { head().scores(quiet, hidden, scores); });
}

}  // namespace longstride
