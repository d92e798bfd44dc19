#include "framework/mixers/attention/config.h"
#include "framework/mixers/distance/settings.h"
#include "framework/mixers/mixer_config.h"
#include "framework/mixers/scan/config.h"

namespace longstride {
namespace {

template <class Config>
std::unique_ptr<MixerConfig> default_of() {
  return std::make_unique<Config>();
}

}  // namespace

const std::vector<MixerKind>& mixer_kinds() {
  static const std::vector<MixerKind> kinds = {
      default_of<AttentionConfig>,
      default_of<DistanceSettings>,
      default_of<ScanConfig>,
  };
  return kinds;
}

std::string MixerConfig::problem_of_windows(const std::vector<std::int64_t>&, std::int64_t) const {
  return "is given, but only attention with model.distance has windows that a stage can set";
}

}  // namespace longstride
