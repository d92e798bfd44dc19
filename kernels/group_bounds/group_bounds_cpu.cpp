#include "kernels/base/tensor_checks.h"
#include "kernels/group_bounds/group_bounds.h"

namespace longstride::kernels {

void GroupBoundsArgs::check(Device) const {
  LONGSTRIDE_CHECK(groups.rank() == 2, "groups are {}", groups.shape().text());
  check_vector(groups, groups.count(), Dtype::i32, "groups");
  const Shape bounds = {groups.size(0), 1, groups.size(1)};
  for (const auto& [t, name] : {std::pair{&begin, "begin"}, {&end, "end"}}) {
    LONGSTRIDE_CHECK(t->shape() == bounds, "{} is {} for groups {}", name, t->shape().text(), groups.shape().text());
    check_vector(*t, groups.count(), Dtype::i32, name);
  }
}

namespace cpu {

void group_bounds(const GroupBoundsArgs& args, const Launch&) {
  const std::int64_t rows = args.groups.size(0), n = args.groups.size(1);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto* group = args.groups.as<const std::int32_t>() + row * n;
    std::int32_t *begin = args.begin.as<std::int32_t>() + row * n, *end = args.end.as<std::int32_t>() + row * n;
    for (std::int64_t i = 0; i < n; ++i) {
      LONGSTRIDE_CHECK(i == 0 || group[i - 1] <= group[i], "group {} after {} in row {}", group[i], group[i - 1], row);
      begin[i] = i > 0 && group[i - 1] == group[i] ? begin[i - 1] : static_cast<std::int32_t>(i);
    }
    for (std::int64_t i = n; i-- > 0;)
      end[i] = i + 1 < n && group[i + 1] == group[i] ? end[i + 1] : static_cast<std::int32_t>(i + 1);
  }
}

}  // namespace cpu
}  // namespace longstride::kernels
