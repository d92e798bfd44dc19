// Attention on the GPU, and its error compared with the definition (tests/support/dense_attention.h).
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernels/attention/choice.h"
#include "kernels/base/cuda_types.cuh"
#include "tests/gpu/gpu.h"
#include "tests/kernels/attention_patterns.h"
#include "tests/kernels/attention_reference.h"
#include "tests/support/as_good_as_naive.h"
#include "tests/support/dense_attention.h"

namespace longstride::kernels {

// All that a call wrote, as it is in memory.
template <class T>
struct WrittenArrays {
  std::vector<T> o, gradients;
  std::vector<float> lse;
};

// Lists in the GPU's memory.
class DeviceLists {
 public:
  explicit DeviceLists(const BlockLists& host)
      : host_(host),
        key_begin_(numbers_of(host.key_begin)),
        keys_(numbers_of(host.keys)),
        query_begin_(numbers_of(host.query_begin)),
        queries_(numbers_of(host.queries)) {}

  BlockLists view() const {
    if (!host_.given()) return {};
    const auto at = [](const test::DeviceArray<std::int32_t>& x, const Tensor& like) {
      return Tensor(x.data(), Dtype::i32, like.shape());
    };
    return {host_.block, at(key_begin_, host_.key_begin), at(keys_, host_.keys), at(query_begin_, host_.query_begin),
            at(queries_, host_.queries)};
  }

 private:
  static std::vector<std::int32_t> numbers_of(const Tensor& t) {
    if (!t.given()) return {};
    return {t.as<const std::int32_t>(), t.as<const std::int32_t>() + t.count()};
  }

  BlockLists host_;
  test::DeviceArray<std::int32_t> key_begin_, keys_, query_begin_, queries_;
};

// Row bounds of every head of one sequence or more; empty: none.
struct HostBounds {
  std::vector<std::int32_t> begin, end;
  bool documents = false;
};

// Documents of each head without their last keys, so that some queries may see none; removes what they hide from
// `masks`.
inline HostBounds documents_of(std::vector<Mask>& masks, std::int64_t batch, std::int32_t hidden = 2) {
  HostBounds bounds;
  bounds.documents = hidden == 0;
  for (std::size_t h = 0; h < masks.size(); ++h) {
    const auto length = static_cast<std::int32_t>(23 + 18 * h);
    for (std::size_t i = 0; i < masks[h].size(); ++i) {
      const std::int32_t begin = static_cast<std::int32_t>(i) / length * length, end = begin + length - hidden;
      bounds.begin.push_back(begin);
      bounds.end.push_back(end);
      std::erase_if(masks[h][i], [&](std::int32_t j) { return j < begin || j >= end; });
    }
  }
  for (auto* ends : {&bounds.begin, &bounds.end}) {
    const std::vector<std::int32_t> sequence = *ends;
    for (std::int64_t b = 1; b < batch; ++b) ends->insert(ends->end(), sequence.begin(), sequence.end());
  }
  return bounds;
}

// The call on the GPU. `packed`: q, k and v are slices of one (batch, n, heads (2 key_size + value_size)) tensor and so
// are their gradients, as in the model, k and v with the heads of keys; otherwise each is a separate tensor.
template <class T>
class DeviceAttention {
 public:
  DeviceAttention(const AttentionPlan& plan, const AttentionInput& in, AttentionPath path, bool packed,
                  const HostBounds& bounds = {}, const BlockLists& lists = {}, const std::vector<float>& sink = {})
      : shape_(in.shape),
        packed_(packed),
        inputs_(pack(in)),
        gradients_(inputs_.count()),
        dout_(converted(in.dout)),
        o_(in.dout.size()),
        lse_(static_cast<std::size_t>(shape_.rows())),
        begin_(bounds.begin),
        end_(bounds.end),
        by_documents_(bounds.documents),
        lists_(lists),
        sink_(sink),
        dsink_(std::vector<float>(sink.size())),
        forward_{&plan,   slice(inputs_, 0), slice(inputs_, 1), slice(inputs_, 2),
                 own(o_), lse_of_shape(),    shape_.scale(),    {},
                 path,    bounds_of_shape(), lists_.view()},
        backward_{
            &plan,      forward_.q,           forward_.k,           forward_.v,           forward_.o,     forward_.lse,
            own(dout_), slice(gradients_, 0), slice(gradients_, 1), slice(gradients_, 2), shape_.scale(), {},
            path,       bounds_of_shape(),    lists_.view()},
        scratch_(std::max(backward_.scratch_on(Device::cuda).bytes(), bytes_of_forward())) {
    forward_.sink = backward_.sink = logits(sink_);
    backward_.dsink = logits(dsink_);
    backward_.scratch = Tensor(scratch_.data(), Dtype::u8, {static_cast<std::int64_t>(scratch_.bytes())});
    forward_.scratch = backward_.scratch;
  }

  // True if the backward kernel is one of sm90/long_band.
  bool is_long_band() const {
    const AttentionFamily family = choose(backward_).family;
    return family == AttentionFamily::classes || family == AttentionFamily::turns || family == AttentionFamily::joined;
  }
  // Sets everything that will be written to NaN.
  void poison() {
    cuda::check(cudaMemset(o_.data(), 0xFF, o_.bytes()), "cudaMemset");
    cuda::check(cudaMemset(lse_.data(), 0xFF, lse_.bytes()), "cudaMemset");
    cuda::check(cudaMemset(gradients_.data(), 0xFF, gradients_.bytes()), "cudaMemset");
    cuda::check(cudaMemset(scratch_.data(), 0xFF, scratch_.bytes()), "cudaMemset");
  }
  void run(const Launch& launch = {}) {
    cuda::attention(forward_, launch);
    if (sink_.count() > 0) cuda::check(cudaMemset(dsink_.data(), 0, dsink_.bytes()), "cudaMemset");
    cuda::attention_backward(backward_, launch);
  }
  WrittenArrays<T> written() const {
    cuda::check(cudaDeviceSynchronize(), "attention");
    return {o_.host(), gradients_.host(), lse_.host()};
  }
  AttentionResult result() const {
    cuda::check(cudaDeviceSynchronize(), "attention");
    const std::vector<T> g = gradients_.host(), o = o_.host();
    const std::vector<float> lse = lse_.host();
    AttentionResult r;
    r.o = plain(o);
    r.lse.assign(lse.begin(), lse.end());
    r.dq = unpacked(g, 0);
    r.dk = unpacked(g, 1);
    r.dv = unpacked(g, 2);
    const std::vector<float> dsink = dsink_.host();
    r.dsink.assign(dsink.begin(), dsink.end());
    return r;
  }

 private:
  std::size_t bytes_of_forward() const {
    const Tensor needed = forward_.scratch_on(Device::cuda);
    return needed.given() ? needed.bytes() : 0;
  }
  std::int64_t size_of(int which) const { return which < 2 ? shape_.key_size : shape_.value_size; }
  std::int64_t heads_of(int which) const { return which == 0 ? shape_.heads : shape_.heads_of_keys(); }
  std::int64_t width_of(int which) const { return heads_of(which) * size_of(which); }
  std::int64_t n_of(int which) const { return which == 0 ? shape_.n_q() : shape_.n; }
  std::int64_t row_of(int which) const {  // elements from one position to the next
    return packed_ ? width_of(0) + width_of(1) + width_of(2) : width_of(which);
  }
  std::int64_t begin_of(int which) const {
    if (which == 0) return 0;
    const std::int64_t before = packed_ ? width_of(which - 1) : shape_.batch * n_of(which - 1) * width_of(which - 1);
    return begin_of(which - 1) + before;
  }
  template <class F>
  void each_element(int which, F&& f) const {
    const std::int64_t width = width_of(which);
#pragma omp parallel for
    for (std::int64_t r = 0; r < shape_.batch * n_of(which); ++r)
      for (std::int64_t x = 0; x < width; ++x)
        f(static_cast<std::size_t>(r * width + x), static_cast<std::size_t>(begin_of(which) + r * row_of(which) + x));
  }
  static std::vector<T> converted(const std::vector<double>& x) {
    std::vector<T> out(x.size());
#pragma omp parallel for
    for (std::size_t i = 0; i < x.size(); ++i) out[i] = cuda::from_float<T>(static_cast<float>(x[i]));
    return out;
  }
  static std::vector<double> plain(const std::vector<T>& x) {
    std::vector<double> out(x.size());
#pragma omp parallel for
    for (std::size_t i = 0; i < x.size(); ++i) out[i] = static_cast<double>(cuda::to_float(x[i]));
    return out;
  }
  std::vector<T> pack(const AttentionInput& in) const {
    std::vector<T> out(in.q.size() + in.k.size() + in.v.size());
    const std::vector<double>* from[] = {&in.q, &in.k, &in.v};
    for (int which = 0; which < 3; ++which)
      each_element(which, [&](std::size_t x, std::size_t at) {
        out[at] = cuda::from_float<T>(static_cast<float>((*from[which])[x]));
      });
    return out;
  }
  std::vector<double> unpacked(const std::vector<T>& all, int which) const {
    std::vector<double> out(static_cast<std::size_t>(shape_.batch * n_of(which) * width_of(which)));
    each_element(which, [&](std::size_t x, std::size_t at) { out[x] = static_cast<double>(cuda::to_float(all[at])); });
    return out;
  }
  Tensor rows(T* data, std::int64_t n, std::int64_t row, std::int64_t heads, std::int64_t size) const {
    return {data, DtypeOf<T>::value, {shape_.batch, n, heads, size}, {n * row, row, size, 1}};
  }
  Tensor slice(const test::DeviceArray<T>& x, int which) const {
    return rows(x.data() + begin_of(which), n_of(which), row_of(which), heads_of(which), size_of(which));
  }
  Tensor own(const test::DeviceArray<T>& x) const {
    return rows(x.data(), shape_.n_q(), shape_.heads * shape_.value_size, shape_.heads, shape_.value_size);
  }
  Shape statistics() const { return {shape_.batch, shape_.heads, shape_.n_q()}; }
  static Tensor logits(const test::DeviceArray<float>& of) {
    return of.count() == 0 ? Tensor() : Tensor(of.data(), Dtype::f32, {static_cast<std::int64_t>(of.count())});
  }
  Tensor lse_of_shape() const { return {lse_.data(), Dtype::f32, statistics()}; }
  RowBounds bounds_of_shape() const {
    if (begin_.count() == 0) return {};
    const Tensor begin(begin_.data(), Dtype::i32, statistics()), end(end_.data(), Dtype::i32, statistics());
    return by_documents_ ? RowBounds::of_documents(begin, end) : RowBounds{begin, end};
  }

  AttentionShape shape_;
  bool packed_;
  test::DeviceArray<T> inputs_, gradients_, dout_, o_;
  test::DeviceArray<float> lse_;
  test::DeviceArray<std::int32_t> begin_, end_;
  bool by_documents_;
  DeviceLists lists_;
  test::DeviceArray<float> sink_, dsink_;
  AttentionArgs forward_;
  AttentionBackwardArgs backward_;
  test::DeviceArray<unsigned char> scratch_;
};

}  // namespace longstride::kernels
