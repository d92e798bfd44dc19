#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"

#include "tests/gpu/against_cpu.h"

namespace longstride::test {
namespace {

TEST(SoftmaxCrossEntropyCuda, EqualsTheCpuForEveryVocabularyAndType) {
  LONGSTRIDE_NEEDS_GPU();
  const float scale = 65536;
  const DeviceArray<float> gpu_scale(std::vector<float>{scale});
  for (const std::int64_t vocabulary : {1, 2, 17, 100, 128, 255, 256, 300, 1024})
    for (const std::int64_t rows : {1, 1003})
      for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16})
        for (const bool scaled : {false, true}) {
          Array logits = Array::normal({rows, vocabulary}, Dtype::f32, 1, 6);
          Array targets =
              Array::bytes_below({rows}, static_cast<std::uint32_t>(std::min<std::int64_t>(vocabulary, 256)), 1);
          Array losses({rows}, Dtype::f32), gradient({rows, vocabulary}, dtype);
          compare("softmax_cross_entropy over " + std::to_string(vocabulary), kernels::cpu::softmax_cross_entropy,
                  kernels::cuda::softmax_cross_entropy,
                  [&](Side side) {
                    kernels::SoftmaxCrossEntropyArgs args;
                    args.logits = logits.view(side);
                    args.targets = targets.view(side);
                    args.losses = losses.view(side);
                    args.gradient = gradient.view(side);
                    args.scale = scaled ? 1.0 / 1024 : 0.5;
                    args.loss_scale = !scaled ? nullptr : side == Side::gpu ? gpu_scale.data() : &scale;
                    return args;
                  },
                  {{"losses", &losses}, {"gradient", &gradient}});
        }
}

TEST(SoftmaxCrossEntropyCuda, WorksInPlaceAndWithoutGradient) {
  LONGSTRIDE_NEEDS_GPU();
  for (const std::int64_t vocabulary : {17, 256, 1024}) {
    Array logits = Array::normal({500, vocabulary}, Dtype::f32, 1, 3), losses({500}, Dtype::f32);
    Array targets = Array::bytes_below({500}, 17, 1);
    for (const bool in_place : {false, true})
      compare("softmax_cross_entropy", kernels::cpu::softmax_cross_entropy, kernels::cuda::softmax_cross_entropy,
              [&](Side side) {
                kernels::SoftmaxCrossEntropyArgs args;
                args.logits = logits.view(side);
                args.targets = targets.view(side);
                args.losses = losses.view(side);
                if (in_place) args.gradient = args.logits;
                return args;
              },
              {{"losses", &losses}, {"logits", &logits}});
  }
}

}  // namespace
}  // namespace longstride::test
