/* Includes NAIVE once for each type in which it computes: its functions get the endings _long, _f64 and _f32. */
#define NAME(x) x##_long
#define REAL long double
#define exponential_long expl
#define logarithm_long logl
#include NAIVE
#undef REAL
#undef NAME
#define REAL double
#define NAME(x) x##_f64
#define exponential_f64 exp
#define logarithm_f64 log
#include NAIVE
#undef REAL
#undef NAME
#define REAL float
#define NAME(x) x##_f32
#define exponential_f32 expf
#define logarithm_f32 logf
#include NAIVE
