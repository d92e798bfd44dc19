#include "kernels/layer_norm/layer_norm.h"

#include <optional>

#include "tests/gpu/against_cpu.h"

namespace longstride::test {
namespace {

struct Types {
  Dtype compute, residual;
};
constexpr Types all_types[] = {
    {Dtype::f32, Dtype::f32}, {Dtype::bf16, Dtype::f32}, {Dtype::f16, Dtype::f32}, {Dtype::bf16, Dtype::bf16}};
constexpr std::int64_t widths[] = {1,   3,   64,   100,  128,  130,  192,  256, 384,
                                   512, 768, 1000, 1024, 2048, 3000, 4096, 5000};

// Many rows, of which each block sums some, where they are short.
std::int64_t rows_for(std::int64_t width) { return width > 1000 ? 67 : width == 64 || width == 256 ? 1501 : 131; }

// Everything one block of the stream needs, forward and backward.
struct Stream {
  Types types;
  std::int64_t rows, width, step = 11;
  float p;
  Array branch, residual, sum, y, gain, bias, mean, rstd;
  Array dy, dx, dbranch, dgain, dbias, branch_sums;
  DeviceArray<std::int64_t> gpu_step;
  DeviceArray<float> partials;
  std::vector<double> host_partials;

  Stream(Types t, std::int64_t r, std::int64_t w, float dropout)
      : types(t),
        rows(r),
        width(w),
        p(dropout),
        branch(Array::normal({r, w}, t.compute, 1)),
        residual(Array::normal({r, w}, t.residual, 2, 2, 0.5)),
        sum({r, w}, t.residual),
        y({r, w}, t.compute),
        gain(Array::normal({w}, Dtype::f32, 3)),
        bias(Array::normal({w}, Dtype::f32, 4)),
        mean({r}, Dtype::f32),
        rstd({r}, Dtype::f32),
        dy(Array::normal({r, w}, t.compute, 5)),
        dx(Array::normal({r, w}, t.residual, 6)),
        dbranch({r, w}, t.compute),
        dgain(Array::normal({w}, Dtype::f32, 7)),
        dbias(Array::normal({w}, Dtype::f32, 8)),
        branch_sums(Array::normal({w}, Dtype::f32, 9)),
        gpu_step(std::vector<std::int64_t>{step}),
        partials(static_cast<std::size_t>(3 * w * kernels::cuda::row_chunks(r).chunks)),
        host_partials(static_cast<std::size_t>(2 * w * kernels::row_chunks(r).chunks)) {}

  std::string text() const {
    return std::to_string(rows) + " x " + std::to_string(width) + ' ' + kernels::name_of(types.compute) + " beside " +
           kernels::name_of(types.residual);
  }
  kernels::DropoutArgs dropout(Side side, Array& from, Array* add, Array& to) {
    kernels::DropoutArgs args;
    args.branch = from.view(side);
    if (add != nullptr) args.residual = add->view(side);
    args.y = to.view(side);
    args.p = p;
    args.seed = 0x123456789ABCDEFull;
    args.layer = 5;
    args.step = side == Side::gpu ? gpu_step.data() : &step;
    args.first_element = 3 * rows * width;
    return args;
  }
  kernels::LayerNormArgs norm(Side side, Array& x) {
    return {x.view(side), gain.view(side), bias.view(side), y.view(side), mean.view(side), rstd.view(side), 1e-5f};
  }
  kernels::LayerNormBackwardArgs backward(Side side, bool add) {
    View workspace;
    workspace.rank = 1;
    workspace.data = side == Side::gpu ? static_cast<void*>(partials.data()) : host_partials.data();
    return {dy.view(side), residual.view(side), gain.view(side),  mean.view(side), rstd.view(side), dx.view(side),
            add,           dgain.view(side),    dbias.view(side), workspace};
  }
  // mean and rstd of the residual, the same numbers on all sides.
  void save_statistics() {
    kernels::cpu::layer_norm(norm(Side::exact, residual), {});
    const auto keep = [](Array& a) {
      std::vector<float> f(a.exact().begin(), a.exact().end());
      kernels::cuda::check(cudaMemcpy(a.view(Side::gpu).data, f.data(), 4 * f.size(), cudaMemcpyHostToDevice),
                           "cudaMemcpy");
      std::copy(f.begin(), f.end(), a.view(Side::exact).as<double>());
      std::copy(f.begin(), f.end(), a.view(Side::single).as<float>());
    };
    keep(mean);
    keep(rstd);
  }
};

TEST(LayerNormCuda, EqualsTheCpuForEveryWidthAndType) {
  LONGSTRIDE_NEEDS_GPU();
  for (const Types& types : all_types)
    for (const std::int64_t width : widths) {
      Stream s(types, rows_for(width), width, 0);
      compare("layer_norm " + s.text(), kernels::cpu::layer_norm, kernels::cuda::layer_norm,
              [&](Side side) { return s.norm(side, s.residual); }, {{"y", &s.y}, {"mean", &s.mean}, {"rstd", &s.rstd}});
    }
}

TEST(LayerNormCuda, BackwardEqualsTheCpuForEveryWidthAndType) {
  LONGSTRIDE_NEEDS_GPU();
  for (const Types& types : all_types)
    for (const std::int64_t width : widths)
      for (const bool add : {false, true}) {
        Stream s(types, rows_for(width), width, 0);
        s.save_statistics();
        compare("layer_norm_backward " + s.text() + (add ? " adding" : ""), kernels::cpu::layer_norm_backward,
                kernels::cuda::layer_norm_backward, [&](Side side) { return s.backward(side, add); },
                {{"dx", &s.dx}, {"dgain", &s.dgain}, {"dbias", &s.dbias}});
      }
}

TEST(LayerNormCuda, FusedWithDropoutEqualsTheCpu) {
  LONGSTRIDE_NEEDS_GPU();
  for (const Types& types : all_types)
    for (const std::int64_t width : widths) {
      Stream s(types, rows_for(width), width, 0.4f);
      compare(
          "dropout_add_layer_norm " + s.text(), kernels::cpu::dropout_add_layer_norm,
          kernels::cuda::dropout_add_layer_norm,
          [&](Side side) {
            return kernels::DropoutAddLayerNormArgs{s.dropout(side, s.branch, &s.residual, s.sum), s.norm(side, s.sum)};
          },
          {{"sum", &s.sum}, {"y", &s.y}, {"mean", &s.mean}, {"rstd", &s.rstd}},
          [&] {  // the norm of the sum as it is stored
            s.sum.store_naive();
            kernels::cpu::layer_norm(s.norm(Side::single, s.sum), {});
          });
      s.save_statistics();
      compare(
          "layer_norm_backward_dropout " + s.text(), kernels::cpu::layer_norm_backward_dropout,
          kernels::cuda::layer_norm_backward_dropout,
          [&](Side side) {
            return kernels::LayerNormBackwardDropoutArgs{
                s.backward(side, true), s.dropout(side, s.dx, nullptr, s.dbranch), s.branch_sums.view(side)};
          },
          {{"dx", &s.dx},
           {"dbranch", &s.dbranch},
           {"dgain", &s.dgain},
           {"dbias", &s.dbias},
           {"branch_sums", &s.branch_sums}},
          [&] { s.branch_sums.sums_columns_of(s.dbranch); });
    }
}

// Recomputing runs the fused kernels where the first pass may have run the plain ones.
TEST(LayerNormCuda, FusedKernelsGiveTheBitsOfThePlainOnes) {
  LONGSTRIDE_NEEDS_GPU();
  for (const Types& types : all_types)
    for (const std::int64_t width : widths) {
      Stream plain(types, rows_for(width), width, 0.4f), fused(types, rows_for(width), width, 0.4f);
      const Side gpu = Side::gpu;
      kernels::cuda::dropout(plain.dropout(gpu, plain.branch, &plain.residual, plain.sum), {});
      kernels::cuda::layer_norm(plain.norm(gpu, plain.sum), {});
      kernels::cuda::dropout_add_layer_norm(
          {fused.dropout(gpu, fused.branch, &fused.residual, fused.sum), fused.norm(gpu, fused.sum)}, {});
      EXPECT_EQ(plain.sum.raw(), fused.sum.raw()) << plain.text();
      EXPECT_EQ(plain.y.raw(), fused.y.raw()) << plain.text();
      kernels::cuda::layer_norm_backward(plain.backward(gpu, true), {});
      kernels::cuda::dropout(plain.dropout(gpu, plain.dx, nullptr, plain.dbranch), {});
      kernels::cuda::layer_norm_backward_dropout(
          {fused.backward(gpu, true), fused.dropout(gpu, fused.dx, nullptr, fused.dbranch), {}}, {});
      EXPECT_EQ(plain.dx.raw(), fused.dx.raw()) << plain.text();
      EXPECT_EQ(plain.dbranch.raw(), fused.dbranch.raw()) << plain.text();
      EXPECT_EQ(plain.dgain.raw(), fused.dgain.raw()) << plain.text();
    }
}

// Rows that fill their lanes take other instructions, copies of 16 bytes among them, than rows in memory that allows
// only 8 bytes at once: not other numbers.
TEST(LayerNormCuda, GivesTheSameBitsWhereRowsAreNotAlignedTo16Bytes) {
  LONGSTRIDE_NEEDS_GPU();
  const Side gpu = Side::gpu;
  for (const Types& types : {Types{Dtype::bf16, Dtype::bf16}, Types{Dtype::bf16, Dtype::f32}})
    for (const std::int64_t width : {128, 256, 512, 1024, 4096})
      for (const std::int64_t rows : {1, 7, 300}) {
        Stream s(types, rows, width, 0.4f), apart(types, rows, width, 0.4f);
        Array wide({rows, width + 4}, types.compute);  // rows of dy, 4 elements further apart than they are long
        const auto run = [&](Stream& stream, const View& dy) {
          kernels::cuda::layer_norm(stream.norm(gpu, stream.residual), {});
          kernels::LayerNormBackwardArgs norm = stream.backward(gpu, true);
          norm.dy = dy;
          kernels::cuda::layer_norm_backward_dropout(
              {norm, stream.dropout(gpu, stream.dx, nullptr, stream.dbranch), stream.branch_sums.view(gpu)}, {});
        };
        const View from = s.dy.view(gpu), to = columns_of(wide.view(gpu), 0, width);
        const std::size_t row_bytes = static_cast<std::size_t>(width) * bytes_of(types.compute);
        kernels::cuda::check(cudaMemcpy2D(to.data, row_bytes + 4 * bytes_of(types.compute), from.data, row_bytes,
                                          row_bytes, static_cast<std::size_t>(rows), cudaMemcpyDeviceToDevice),
                             "cudaMemcpy2D");
        run(s, from);
        run(apart, to);
        for (Array Stream::*output :
             {&Stream::y, &Stream::dx, &Stream::dbranch, &Stream::dgain, &Stream::dbias, &Stream::branch_sums})
          EXPECT_EQ((s.*output).raw(), (apart.*output).raw()) << s.text();
      }
}

TEST(LayerNormCuda, ReadsAndWritesStridedRows) {
  LONGSTRIDE_NEEDS_GPU();
  Array x = Array::normal({100, 640}, Dtype::f32, 1), y({100, 640}, Dtype::bf16);
  Array gain = Array::normal({512}, Dtype::f32, 2), bias = Array::normal({512}, Dtype::f32, 3);
  for (const std::int64_t begin : {0, 64, 1}) {
    y = Array({100, 640}, Dtype::bf16);
    Array dense({100, 512}, Dtype::bf16);
    kernels::LayerNormArgs args;
    args.x = columns_of(x.view(Side::gpu), begin, 512);
    args.gain = gain.view(Side::gpu);
    args.bias = bias.view(Side::gpu);
    args.y = columns_of(y.view(Side::gpu), begin, 512);
    kernels::cuda::layer_norm(args, {});
    const std::vector<double> found = y.found();
    args.x = columns_of(x.view(Side::exact), begin, 512);
    args.gain = gain.view(Side::exact);
    args.bias = bias.view(Side::exact);
    args.y = columns_of(y.view(Side::exact), begin, 512);
    kernels::cpu::layer_norm(args, {});
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double expected = y.exact()[i];
      if (std::isnan(expected))
        EXPECT_TRUE(std::isnan(found[i])) << begin << ", element " << i;
      else
        EXPECT_NEAR(found[i], expected, 1e-5 + std::abs(expected) * 0x1p-8) << begin << ", element " << i;
    }
  }
}

}  // namespace
}  // namespace longstride::test
