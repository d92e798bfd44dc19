#include "framework/train/step/precision.h"

#include <gtest/gtest.h>

#include "framework/core/errors.h"

namespace longstride {
namespace {

TEST(Precision, AutomaticIsBf16OnAGpuAndFp32OnTheCpu) {
  EXPECT_EQ(compute_type(Precision::automatic, Device::cuda), Dtype::bf16);
  EXPECT_EQ(compute_type(Precision::automatic, Device::cpu), Dtype::f32);
  EXPECT_EQ(compute_type(Precision::fp32, Device::cuda), Dtype::f32);
  EXPECT_EQ(compute_type(Precision::fp16, Device::cuda), Dtype::f16);
  EXPECT_THROW(compute_type(Precision::bf16, Device::cpu), UserError);
  EXPECT_THROW(compute_type(Precision::fp16, Device::cpu), UserError);
}

TEST(Precision, TheResidualStreamIsBf16WithBf16UnlessSetToFp32) {
  const auto narrow = [](Precision precision, Precision residual, Device device = Device::cuda) {
    TrainConfig config;
    config.precision = precision;
    config.residual = residual;
    return low_precision_residual(config, device);
  };
  EXPECT_TRUE(narrow(Precision::automatic, Precision::automatic));
  EXPECT_TRUE(narrow(Precision::bf16, Precision::bf16));
  EXPECT_FALSE(narrow(Precision::bf16, Precision::fp32));
  EXPECT_FALSE(narrow(Precision::fp16, Precision::automatic));
  EXPECT_FALSE(narrow(Precision::fp32, Precision::automatic));
  EXPECT_FALSE(narrow(Precision::automatic, Precision::automatic, Device::cpu));
}

TEST(Precision, Fp8IsAMatterOfProductsInBf16) {
  EXPECT_EQ(compute_type(Precision::fp8, Device::cuda), Dtype::bf16);
  EXPECT_TRUE(fp8_products(Precision::fp8, Device::cuda));
  EXPECT_FALSE(fp8_products(Precision::automatic, Device::cuda));
  EXPECT_EQ(without_fp8(Precision::fp8), Precision::bf16);
  EXPECT_EQ(without_fp8(Precision::fp16), Precision::fp16);
  EXPECT_STREQ(name_of(resolved(Precision::fp8, Device::cuda)), "fp8");
  EXPECT_THROW(compute_type(Precision::fp8, Device::cpu), UserError);
  EXPECT_THROW(check_precision(Precision::fp8, Device::cpu), UserError);
  EXPECT_NO_THROW(check_precision(Precision::automatic, Device::cpu));
  TrainConfig config;
  config.precision = Precision::fp8;
  EXPECT_EQ(gradient_type(config, Device::cuda), Dtype::bf16);
  EXPECT_TRUE(low_precision_residual(config, Device::cuda));
  config.residual = Precision::fp32;
  EXPECT_FALSE(low_precision_residual(config, Device::cuda));
}

TEST(Precision, AGpuWithoutFp8IsRefusedByItsName) {
  EXPECT_NO_THROW(check_fp8("NVIDIA H200", 9, 0));
  EXPECT_NO_THROW(check_fp8("NVIDIA L40S", 8, 9));
  EXPECT_NO_THROW(check_fp8("NVIDIA B200", 10, 0));
  try {
    check_fp8("NVIDIA A100-SXM4-80GB", 8, 0);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(),
                 "train.precision is fp8, which needs a GPU of compute capability 8.9 (Ada, Hopper) or later, and "
                 "NVIDIA A100-SXM4-80GB has 8.0; use --set train.precision=bf16");
  }
}

TEST(Precision, ThePeakIsThatOfTheGpuNamedAndUnknownOtherwise) {
  EXPECT_EQ(peak_flops("NVIDIA H200", Precision::automatic), 989e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 80GB HBM3", Precision::fp16), 989e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 PCIe", Precision::bf16), 756e12);
  EXPECT_EQ(peak_flops("NVIDIA L40S", Precision::bf16), 362e12);
  EXPECT_EQ(peak_flops("NVIDIA H200", Precision::fp32), 67e12);
  EXPECT_EQ(peak_flops("NVIDIA H200", Precision::fp8), 2 * 989e12);
  EXPECT_EQ(peak_flops("NVIDIA A10G", Precision::bf16), 125e12);
  for (const char* unknown : {"NVIDIA GeForce GTX 1080", "NVIDIA RTX A4000", "Quadro RTX A3000", "NVIDIA A1000"})
    EXPECT_FALSE(peak_flops(unknown, Precision::bf16).has_value()) << unknown;
}

}  // namespace
}  // namespace longstride
