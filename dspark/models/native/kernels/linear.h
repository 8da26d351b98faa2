// Products of few rows with a weight matrix: y = x W^T, near the time that reading W once takes.
//
// A tile keeps 3 weight rows x up to TILE_TOKENS inputs in registers and runs down the inner
// dimension, so each output is one dot product in one fixed order: the same bits for any number of
// rows in the pass. While a tile computes, it prefetches the weight rows of the next, which turns
// short strided reads into one stream from memory.
#pragma once

#include <algorithm>

#include "simd.h"

namespace dspark {
constexpr int TILE_ROWS = 3;
constexpr long BLOCK_TOKENS = 64;         // inputs that stay in the second-level cache beside the weights
constexpr long BLOCK_WEIGHTS = 56 * 1024;  // floats of weights that stay there

enum class Store { SET, ADD };  // overwrite the output, or add to it (a residual stream)

struct Product {
    const float* weight;  // [rows, inner]
    const float* bias;    // [rows] or null
    long rows;
    float* out;  // [tokens, stride], columns 0 ... rows-1 are written
    long stride;
};

// PREFETCHED lines of weights are fetched a step: from one stream at `next`, or, if negative, from as
// many rows that lie `w_stride` apart there.
template <int R, int T, int PREFETCHED>
void tile(const float* w, long w_stride, const float* x, long x_stride, long inner, const float* next, float (*dots)[TILE_ROWS]) {
    vec acc[T][R];
#pragma GCC unroll 8
    for (int t = 0; t < T; t++)
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) acc[t][r] = zero();
    long k = 0;
    for (; k + WIDTH <= inner; k += WIDTH) {
        if constexpr (PREFETCHED > 0) {
#pragma GCC unroll 8
            for (int i = 0; i < PREFETCHED; i++) prefetch(next + k * PREFETCHED + i * WIDTH);
        } else {
#pragma GCC unroll 8
            for (int i = 0; i < -PREFETCHED; i++) prefetch(next + i * w_stride + k);
        }
        vec weights[R];
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) weights[r] = load(w + r * w_stride + k);
#pragma GCC unroll 8
        for (int t = 0; t < T; t++) {
            const vec input = load(x + t * x_stride + k);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) acc[t][r] = fma(weights[r], input, acc[t][r]);
        }
    }
    if (const int rest = (int)(inner - k)) {
        vec weights[R];
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) weights[r] = load_part(w + r * w_stride + k, rest);
#pragma GCC unroll 8
        for (int t = 0; t < T; t++) {
            const vec input = load_part(x + t * x_stride + k, rest);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) acc[t][r] = fma(weights[r], input, acc[t][r]);
        }
    }
#pragma GCC unroll 8
    for (int t = 0; t < T; t++)
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) dots[t][r] = sum(acc[t][r]);
}

using Tile = void (*)(const float*, long, const float*, long, long, const float*, float (*)[TILE_ROWS]);

template <int T>
constexpr Tile tile_of(int rows, int prefetched) {
    if (rows == 1) return tile<1, T, 0>;
    constexpr Tile by_prefetch[] = {tile<TILE_ROWS, T, -TILE_ROWS>, tile<TILE_ROWS, T, 0>, tile<TILE_ROWS, T, 1>,
                                    tile<TILE_ROWS, T, 2>, tile<TILE_ROWS, T, 3>};
    return by_prefetch[prefetched < 0 ? 0 : prefetched + 1];
}

inline Tile tile_for(int rows, long tokens, int prefetched) {
    switch (tokens) {
        case 1: return tile_of<1>(rows, prefetched);
        case 2: return tile_of<2>(rows, prefetched);
        case 3: return tile_of<3>(rows, prefetched);
        case 4: return tile_of<4>(rows, prefetched);
#if defined(__AVX512F__)
        case 5: return tile_of<5>(rows, prefetched);
        case 6: return tile_of<6>(rows, prefetched);
        case 7: return tile_of<7>(rows, prefetched);
        case 8: return tile_of<8>(rows, prefetched);
#endif
    }
    __builtin_unreachable();
}

// Outputs [first, last) of `product` for x [tokens, inner].
template <Store MODE>
void rows_of_product(const Product& product, const float* x, long tokens, long inner, long first, long last) {
    float dots[TILE_TOKENS][TILE_ROWS];
    for (long from = 0; from < tokens; from += BLOCK_TOKENS) {
        const long to = std::min(tokens, from + BLOCK_TOKENS);
        const long tiles = (to - from + TILE_TOKENS - 1) / TILE_TOKENS;
        for (long row = first; row < last;) {
            const int rows = last - row >= TILE_ROWS ? TILE_ROWS : 1;
            const float* w = product.weight + row * inner;
            const float* next = w + rows * inner;
            long number = 0;
            for (long token = from; token < to; token += TILE_TOKENS, number++) {
                // the next weight rows are spread over the tiles that use these
                const int prefetched = tiles == 1 ? 3 : tiles == 2 ? 2 - (int)number : number < 3;
                const long count = std::min<long>(TILE_TOKENS, to - token);
                tile_for(rows, count, prefetched)(w, inner, x + token * inner, inner, inner, next, dots);
                next += prefetched * inner;
                for (long t = 0; t < count; t++) {
                    float* out = product.out + (token + t) * product.stride + row;
                    for (int r = 0; r < rows; r++) {
                        const float y = product.bias ? dots[t][r] + product.bias[row + r] : dots[t][r];
                        out[r] = MODE == Store::ADD ? out[r] + y : y;
                    }
                }
            }
            row += rows;
        }
    }
}

inline long chunk_rows(long rows, long inner, int threads) {
    const long by_cache = BLOCK_WEIGHTS / inner;
    const long by_threads = (rows + 4 * threads - 1) / (4 * threads);
    return std::max<long>(1, std::min(by_cache, by_threads) / TILE_ROWS) * TILE_ROWS;
}

// All products of one input, inside a parallel region; returns once every thread is done.
template <Store MODE, int COUNT>
void products(const Product (&all)[COUNT], const float* x, long tokens, long inner, int threads) {
    long rows = 0;
    for (const Product& product : all) rows += product.rows;
    const long size = chunk_rows(rows, inner, threads);
    long first_chunk[COUNT + 1] = {0};
    for (int i = 0; i < COUNT; i++) first_chunk[i + 1] = first_chunk[i] + (all[i].rows + size - 1) / size;
#pragma omp for schedule(dynamic, 1)
    for (long chunk = 0; chunk < first_chunk[COUNT]; chunk++) {
        int i = 0;
        while (chunk >= first_chunk[i + 1]) i++;
        const long first = (chunk - first_chunk[i]) * size;
        rows_of_product<MODE>(all[i], x, tokens, inner, first, std::min(all[i].rows, first + size));
    }
}
}  // namespace dspark
