# Linear layers that multiply 8-bit operands, alone and in models; tests/ops/quantise_test.cpp has the rounding.
longstride_tests(fp8 USES models ON_DEVICES IN_ONE_PROCESS SLOW On/*Exact*/cpu_f64)
