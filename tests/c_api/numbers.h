/* Numbers for tests, and how far results are from the right ones. */
#ifndef TESTS_C_API_NUMBERS_H
#define TESTS_C_API_NUMBERS_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* The next number, from -1 to 1, of a sequence that `state` numbers; an f32. */
static double next_number(uint64_t* state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (double)(float)((double)(*state >> 40) / 8388608.0 - 1.0);
}

static double largest_error(const double* x, const double* right, size_t count) {
  double most = 0;
  for (size_t i = 0; i < count; ++i) {
    if (x[i] == right[i]) continue; /* also -infinity */
    const double error = fabs(x[i] - right[i]);
    if (!(error <= most)) most = isnan(error) ? INFINITY : error;
  }
  return most;
}

#endif
