/* Counts and prints what does not hold. */
#ifndef TESTS_C_API_EXPECT_H
#define TESTS_C_API_EXPECT_H
#include <stdio.h>

static int failures = 0;
#define EXPECT(condition, ...)                               \
  do {                                                       \
    if (!(condition)) {                                      \
      ++failures;                                            \
      printf("%s:%d: %s: ", __FILE__, __LINE__, #condition); \
      printf(__VA_ARGS__);                                   \
      printf("\n");                                          \
    }                                                        \
  } while (0)

#endif
