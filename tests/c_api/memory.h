/* Memory of calls: arrays in their types, tensors without gaps, and scratch. */
#ifndef TESTS_C_API_MEMORY_H
#define TESTS_C_API_MEMORY_H
#include <stdint.h>
#include <stdlib.h>

#include "kernels/c_api/attention.h"

/* A copy in the type of a call; back again into numbers. */
static void* as_type(const double* x, size_t count, int32_t dtype) {
  void* made = malloc((count + 1) * sizeof(double));
  for (size_t i = 0; i < count; ++i) {
    if (dtype == LONGSTRIDE_F64)
      ((double*)made)[i] = x[i];
    else
      ((float*)made)[i] = (float)x[i];
  }
  return made;
}
static void back(double* x, void* typed, size_t count, int32_t dtype) {
  for (size_t i = 0; i < count; ++i) x[i] = dtype == LONGSTRIDE_F64 ? ((double*)typed)[i] : (double)((float*)typed)[i];
  free(typed);
}

/* (batch, rows, heads, size) without gaps. */
static struct longstride_input input_of(const void* data, int64_t rows, int64_t heads, int64_t size) {
  struct longstride_input view = {data, rows * heads * size, heads * size, size};
  return view;
}
static struct longstride_output output_of(void* data, int64_t rows, int64_t heads, int64_t size) {
  struct longstride_output view = {data, rows * heads * size, heads * size, size};
  return view;
}
/* Aligned to 64 bytes, within `memory`, which the caller frees. */
static void* scratch_of(size_t bytes, unsigned char** memory) {
  *memory = malloc(bytes + 64);
  return *memory + (64 - (uintptr_t)*memory % 64);
}

#endif
