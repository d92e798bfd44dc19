// main() of tests that multiply: the processes of the command set up OpenBLAS in the same way (launch/main.cpp).
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "kernels/gemm/blas.h"

int main(int argc, char** argv) {
  if (const char* const core = longstride::kernels::cpu::better_blas_core(); core != nullptr) {
    setenv("OPENBLAS_CORETYPE", core, 1);
    execv("/proc/self/exe", argv);  // OpenBLAS has read it before main
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
