// One vector type over the instruction sets that compilers report: AVX-512, AVX2 with FMA, or plain floats.
//
// Every sum below has one order that depends on the length of the vector alone, so that a result is
// the same bits whichever rows are computed beside it.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
#include <immintrin.h>

namespace dspark {
using vec = __m512;
constexpr int WIDTH = 16;
constexpr int TILE_TOKENS = 8;  // 3 x 8 accumulators, 3 weights and one input fill 28 of 32 registers
inline vec zero() { return _mm512_setzero_ps(); }
inline vec set1(float x) { return _mm512_set1_ps(x); }
inline vec load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, vec a) { _mm512_storeu_ps(p, a); }
inline vec add(vec a, vec b) { return _mm512_add_ps(a, b); }
inline vec sub(vec a, vec b) { return _mm512_sub_ps(a, b); }
inline vec mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
inline vec div(vec a, vec b) { return _mm512_div_ps(a, b); }
inline vec fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
inline vec maximum(vec a, vec b) { return _mm512_max_ps(a, b); }
inline vec round_nearest(vec a) { return _mm512_roundscale_ps(a, 8); }
inline vec power_of_two(vec n) {  // 2**n for whole n in [-126, 127]
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}
inline vec unless_below(vec a, vec least, vec value) {  // 0 where a < least; NaN is not below
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, least, _CMP_NLT_UQ), value);
}
inline float sum(vec a) {  // written out: the library's reduction has the compiler's order
    const __m256 upper = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1));
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a), upper);
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}
inline vec load_part(const float* p, int n) { return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p); }
}  // namespace dspark

#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

namespace dspark {
using vec = __m256;
constexpr int WIDTH = 8;
constexpr int TILE_TOKENS = 4;  // 3 x 4 accumulators of 16 registers
inline vec zero() { return _mm256_setzero_ps(); }
inline vec set1(float x) { return _mm256_set1_ps(x); }
inline vec load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, vec a) { _mm256_storeu_ps(p, a); }
inline vec add(vec a, vec b) { return _mm256_add_ps(a, b); }
inline vec sub(vec a, vec b) { return _mm256_sub_ps(a, b); }
inline vec mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
inline vec div(vec a, vec b) { return _mm256_div_ps(a, b); }
inline vec fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
inline vec maximum(vec a, vec b) { return _mm256_max_ps(a, b); }
inline vec round_nearest(vec a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline vec power_of_two(vec n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
inline vec unless_below(vec a, vec least, vec value) {
    return _mm256_and_ps(_mm256_cmp_ps(a, least, _CMP_NLT_UQ), value);
}
inline float sum(vec a) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}
inline vec load_part(const float* p, int n) {
    float all[WIDTH] = {};
    std::memcpy(all, p, n * sizeof(float));
    return load(all);
}
}  // namespace dspark

#else

namespace dspark {
constexpr int WIDTH = 4;
constexpr int TILE_TOKENS = 4;
struct vec {
    float at[WIDTH];
};
template <class F>
inline vec each(F f) {
    vec r;
    for (int i = 0; i < WIDTH; i++) r.at[i] = f(i);
    return r;
}
inline vec zero() { return vec{}; }
inline vec set1(float x) { return each([&](int) { return x; }); }
inline vec load(const float* p) { return each([&](int i) { return p[i]; }); }
inline void store(float* p, vec a) { std::memcpy(p, a.at, sizeof a.at); }
inline vec add(vec a, vec b) { return each([&](int i) { return a.at[i] + b.at[i]; }); }
inline vec sub(vec a, vec b) { return each([&](int i) { return a.at[i] - b.at[i]; }); }
inline vec mul(vec a, vec b) { return each([&](int i) { return a.at[i] * b.at[i]; }); }
inline vec div(vec a, vec b) { return each([&](int i) { return a.at[i] / b.at[i]; }); }
inline vec fma(vec a, vec b, vec c) { return add(mul(a, b), c); }
inline vec maximum(vec a, vec b) {  // like the instruction, b where one is NaN
    return each([&](int i) { return a.at[i] > b.at[i] ? a.at[i] : b.at[i]; });
}
inline vec round_nearest(vec a) { return each([&](int i) { return std::nearbyintf(a.at[i]); }); }
inline vec power_of_two(vec n) { return each([&](int i) { return std::ldexp(1.0f, (int)n.at[i]); }); }
inline vec unless_below(vec a, vec least, vec value) {
    return each([&](int i) { return a.at[i] < least.at[i] ? 0.0f : value.at[i]; });
}
inline float sum(vec a) { return (a.at[0] + a.at[2]) + (a.at[1] + a.at[3]); }
inline vec load_part(const float* p, int n) {
    return each([&](int i) { return i < n ? p[i] : 0.0f; });
}
}  // namespace dspark
#endif

namespace dspark {
inline void prefetch(const float* p) { __builtin_prefetch(p, 0, 3); }

inline float largest(vec a) {
    float all[WIDTH];
    store(all, a);
    float top = all[0];
    for (int i = 1; i < WIDTH; i++) top = all[i] > top ? all[i] : top;
    return top;
}

inline void store_part(float* p, vec a, int n) {
    float all[WIDTH];
    store(all, a);
    std::memcpy(p, all, n * sizeof(float));
}

// e**x for x <= 0 to about one unit in the last place; 0 below e**-87, NaN for NaN.
inline vec exponential(vec x) {
    const vec least = set1(-87.0f);
    const vec y = maximum(least, x);  // in this order NaN stays
    const vec n = round_nearest(mul(y, set1(1.44269504088896341f)));
    vec r = fma(n, set1(-0.693359375f), y);  // ln 2 in two parts, so that the difference stays exact
    r = fma(n, set1(2.12194440e-4f), r);
    vec p = set1(1.9841269841e-4f);  // Taylor terms 1/7! ... 1/0!; |r| <= ln(2)/2
    p = fma(p, r, set1(1.3888888889e-3f));
    p = fma(p, r, set1(8.3333333333e-3f));
    p = fma(p, r, set1(4.1666666667e-2f));
    p = fma(p, r, set1(1.6666666667e-1f));
    p = fma(p, r, set1(0.5f));
    p = fma(p, r, set1(1.0f));
    p = fma(p, r, set1(1.0f));
    return unless_below(x, least, mul(p, power_of_two(n)));
}
}  // namespace dspark
