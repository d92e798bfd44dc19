#include "framework/core/parameters.h"

#include <map>

#include "framework/core/errors.h"
#include "kernels/base/philox.h"

namespace longstride {

Parameter& ParameterSet::add(std::string name, const Shape& shape, Init init) {
  for (const Parameter& p : parameters_) LONGSTRIDE_CHECK(p.name != name, "parameter '{}' is declared twice", name);
  parameters_.push_back({std::move(name), shape, init, 0, {}, {}, {}});
  count_ += shape.count();
  return parameters_.back();
}

void ParameterSet::lay_out(int ranks, std::int64_t bucket) {
  const auto rounded = [](std::int64_t count, std::int64_t unit) { return (count + unit - 1) / unit * unit; };
  flat_size_ = 0;
  buckets_.clear();
  for (bool decays : {true, false}) {
    std::vector<Parameter*> group;
    for (Parameter& p : parameters_)
      if (p.decays() == decays) group.push_back(&p);
    std::vector<bool> ends(group.size());  // where a bucket ends
    std::int64_t filled = bucket;
    for (std::size_t i = group.size(); i-- > 0; filled += rounded(group[i]->shape.count(), alignment)) {
      ends[i] = filled >= bucket;
      if (ends[i]) filled = 0;
    }
    std::int64_t begin = flat_size_;
    for (std::size_t i = 0; i < group.size(); ++i) {
      group[i]->offset = flat_size_;
      flat_size_ += rounded(group[i]->shape.count(), alignment);
      if (!ends[i]) continue;
      flat_size_ = begin + rounded(flat_size_ - begin, alignment * ranks);
      buckets_.push_back({begin, flat_size_ - begin, decays});
      begin = flat_size_;
    }
    if (decays) decayed_ = flat_size_;
  }
}

std::vector<FlatRange> ParameterSet::pieces(int rank, int ranks) const {
  std::vector<FlatRange> pieces;
  for (const FlatRange& b : buckets_) {
    LONGSTRIDE_CHECK(b.count % ranks == 0, "a bucket of {} elements for {} ranks", b.count, ranks);
    pieces.push_back({b.begin + rank * (b.count / ranks), b.count / ranks, b.decays});
  }
  return pieces;
}

void ParameterSet::bind(const Tensor& master, const Tensor& gradient, const Tensor& low_precision) {
  const auto slice = [](const Tensor& flat, const Parameter& p) {
    return flat.slice(0, p.offset, p.offset + p.shape.count()).reshape(p.shape);
  };
  for (Parameter& p : parameters_) {
    p.master = slice(master, p);
    p.gradient = slice(gradient, p);
    p.value = low_precision.given() ? slice(low_precision, p) : p.master;
  }
}

void ParameterSet::initialise(std::uint64_t seed) {
  std::map<std::string, std::uint32_t> numbers;
  for (Parameter& p : parameters_) {
    const std::uint32_t own = numbers.emplace(p.name, static_cast<std::uint32_t>(numbers.size())).first->second;
    const std::uint32_t index = p.init.like.empty() ? own : numbers.at(p.init.like);
    const std::uint32_t domain = kernels::domain_of(kernels::Purpose::initialise, index);
    const std::int64_t first = p.init.like_from;
    const std::int64_t n = p.shape.count();
    kernels::with_float_type(p.master.dtype(), [&](auto zero) {
      using T = decltype(zero);
      T* out = p.master.as<T>();
#pragma omp parallel for
      for (std::int64_t i = 0; i < n; ++i) {
        const double value =
            p.init.deviation > 0
                ? p.init.deviation *
                      kernels::normal_of(kernels::philox(seed, static_cast<std::uint64_t>(first + i), 0, domain))
            : p.init.repeat.empty() ? p.init.constant
                                    : p.init.repeat[static_cast<std::size_t>(i) % p.init.repeat.size()];
        out[i] = static_cast<T>(static_cast<float>(value));  // rounded to fp32 in every precision: equal starts
      }
    });
  }
}

}  // namespace longstride
