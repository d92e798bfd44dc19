#include "kernels/c_api/scan_settings.h"

#include "kernels/c_api/mistakes.h"

namespace longstride::kernels::c_api {
namespace {

void check_form(const longstride_scan_config& c) {
  check_range("form", c.form, LONGSTRIDE_SUM, LONGSTRIDE_DELTA);
  check_range("decay", c.decay, LONGSTRIDE_NO_DECAY, LONGSTRIDE_DECAY_PER_CHANNEL);
  check_flag("normalised", c.normalised);
  check_flag("both", c.both);
  check_flag("groups", c.groups);
  check_flag("forward_only", c.forward_only);
  if (c.form == LONGSTRIDE_SUM && c.decay != LONGSTRIDE_NO_DECAY)
    throw Mistake("decay is {}, but the form sum takes none: the form gated does", c.decay);
  if (c.form == LONGSTRIDE_GATED && c.decay == LONGSTRIDE_NO_DECAY)
    throw Mistake("decay is 0, but the form gated needs one, 1 per head or 2 per channel");
  if (c.form == LONGSTRIDE_DELTA && c.normalised != 0)
    throw Mistake("normalised is 1, but must be 0 with the form delta");
  if (c.form != LONGSTRIDE_SUM && c.both != 0)
    throw Mistake("both is 1, but only the form sum has both directions: set form to 0");
}

}  // namespace

ScanSettings scan_settings_of(const longstride_scan_config* config) {
  const auto c = complete(config, "the config");
  // The kernels say what sizes GPUs take.
  const Settings rows =
      checked({.batch = c.batch, .n = c.n, .heads = c.heads, .key_size = c.key_size, .value_size = c.value_size},
              c.dtype, c.device, "n", most_size);
  check_form(c);
  return {.rows = rows,
          .form = static_cast<ScanForm>(c.form),
          .decay = static_cast<longstride_scan_decay>(c.decay),
          .normalised = c.normalised != 0,
          .groups = c.groups != 0,
          .forward_only = c.forward_only != 0,
          .direction = c.both != 0 ? Direction::both : Direction::past};
}

}  // namespace longstride::kernels::c_api
