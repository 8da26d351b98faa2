// Attention of new tokens over a paged cache, up to a position each; each query sums its keys in cache order.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "linear.h"

namespace dspark {
struct Row {
    int64_t first;        // its first token in the pass
    int64_t tokens;       // new tokens
    int64_t start;        // cached tokens before them
    int64_t table;        // where its page table begins
};

struct Heads {
    int64_t query, kv, size;  // numbers of heads, and their size
    int64_t page_size;
    int64_t window;  // 0: all earlier tokens are seen
    float scale;
};

constexpr long VALUES_AHEAD = 8;     // keys between a value's prefetch and its use
constexpr long VALUES_AT_ONCE = 32;  // keys whose values are mixed for one head before the next

// Tokens of a row that one task serves: all query heads of a key/value head fill a tile together.
inline long task_tokens(const Heads& heads) {
    return std::max<long>(1, TILE_TOKENS / (heads.query / heads.kv));
}

// Softmax in place over scores[0, count), unscaled scores in, weights that sum to 1 out.
inline void softmax(float* scores, long count, float scale) {
    const vec factor = set1(scale);
    vec tops = mul(set1(scores[0]), factor);
    long j = 0;
    for (; j + WIDTH <= count; j += WIDTH) tops = maximum(tops, mul(load(scores + j), factor));
    float top = largest(tops);
    for (; j < count; j++) top = std::max(top, scores[j] * scale);
    const vec shift = set1(top);
    vec sums = zero();
    j = 0;
    for (; j + WIDTH <= count; j += WIDTH) {
        const vec e = exponential(sub(mul(load(scores + j), factor), shift));
        store(scores + j, e);
        sums = add(sums, e);
    }
    float total = sum(sums);
    if (const int rest = (int)(count - j)) {
        store_part(scores + j, exponential(sub(mul(load_part(scores + j, rest), factor), shift)), rest);
        for (; j < count; j++) total += scores[j];
    }
    const float inverse = 1.0f / total;
    for (j = 0; j < count; j++) scores[j] *= inverse;
}

// out[t][0, size) += sum over keys of weights[t] * values, keys in order.
template <int T>
void mix(const float* weights, long stride, const float* values, long value_stride, long first, long last, float* out, long size) {
    constexpr int VECS = T <= 6 ? 4 : 2;  // accumulators that fit the registers
    for (long d = 0; d < size; d += VECS * WIDTH) {
        int width[VECS];
        for (int i = 0; i < VECS; i++) width[i] = (int)std::clamp<long>(size - d - i * WIDTH, 0, WIDTH);
        const bool whole = width[VECS - 1] == WIDTH;
        vec acc[T][VECS];
#pragma GCC unroll 8
        for (int t = 0; t < T; t++)
#pragma GCC unroll 8
            for (int i = 0; i < VECS; i++) acc[t][i] = load_part(out + t * size + d + i * WIDTH, width[i]);
        for (long j = first; j < last; j++) {
            const float* value = values + (j - first) * value_stride + d;
            vec v[VECS];
#pragma GCC unroll 8
            for (int i = 0; i < VECS; i++) {
                prefetch(value + VALUES_AHEAD * value_stride + i * WIDTH);
                v[i] = whole ? load(value + i * WIDTH) : load_part(value + i * WIDTH, width[i]);
            }
#pragma GCC unroll 8
            for (int t = 0; t < T; t++) {
                const vec weight = set1(weights[t * stride + j]);
#pragma GCC unroll 8
                for (int i = 0; i < VECS; i++) acc[t][i] = fma(weight, v[i], acc[t][i]);
            }
        }
#pragma GCC unroll 8
        for (int t = 0; t < T; t++)
#pragma GCC unroll 8
            for (int i = 0; i < VECS; i++) store_part(out + t * size + d + i * WIDTH, acc[t][i], width[i]);
    }
}

using Mix = void (*)(const float*, long, const float*, long, long, long, float*, long);

inline Mix mix_for(int queries) {
    constexpr Mix by_count[] = {nullptr, mix<1>, mix<2>, mix<3>, mix<4>, mix<5>, mix<6>, mix<7>, mix<8>};
    return by_count[queries];
}

// Queries of some key/value heads in turn: up to TILE_TOKENS (token, head) pairs each, tokens outer.
struct Queries {
    const float* at;  // [kv_heads, count, size], gathered
    float* out;       // [kv_heads, count, size]
    long first_head, kv_heads;
    long position[TILE_TOKENS];  // the same for every key/value head
    int count;
};

// Heads are the inner loop, so that keys, and then values, stream from memory in the order they lie there.
inline void attend(const Queries& queries, const int64_t* pages, const Heads& heads, const float* keys, const float* values, std::vector<float>& scratch) {
    long last = 0, first = std::numeric_limits<long>::max();
    for (int q = 0; q < queries.count; q++) {
        last = std::max<long>(last, queries.position[q] + 1);
        first = std::min<long>(first, heads.window ? std::max<long>(0, queries.position[q] + 1 - heads.window) : 0);
    }
    const long span = last - first, stride = heads.kv * heads.size, page_size = heads.page_size;
    const long block = queries.count * heads.size;
    scratch.resize(queries.kv_heads * queries.count * span);
    float* scores = scratch.data();
    float dots[TILE_TOKENS][TILE_ROWS];
    for (long from = first; from < last;) {  // page by page
        const long page = from / page_size, to = std::min(last, (page + 1) * page_size);
        const float* base = keys + (pages[page] - page) * page_size * stride + queries.first_head * heads.size;
        for (long j = from; j < to;) {
            const int rows = to - j >= TILE_ROWS ? TILE_ROWS : 1;
            const Tile dot = tile_for(rows, queries.count, -1);
            for (long h = 0; h < queries.kv_heads; h++) {
                const float* key = base + j * stride + h * heads.size;
                dot(key, stride, queries.at + h * block, heads.size, heads.size, key + TILE_ROWS * stride, dots);
                float* own = scores + h * queries.count * span + j - first;
                for (int q = 0; q < queries.count; q++)
                    for (int r = 0; r < rows; r++) own[q * span + r] = dots[q][r];
            }
            j += rows;
        }
        from = to;
    }
    for (long h = 0; h < queries.kv_heads; h++) {
        for (int q = 0; q < queries.count; q++) {
            float* own = scores + (h * queries.count + q) * span;
            const long end = queries.position[q] + 1, begin = heads.window ? std::max<long>(0, end - heads.window) : 0;
            softmax(own + (begin - first), end - begin, heads.scale);
            // unseen keys weigh 0, which adds nothing to a sum that began at +0 (unless their value is not finite)
            std::fill(own, own + (begin - first), 0.0f);
            std::fill(own + (end - first), own + span, 0.0f);
        }
    }
    std::fill(queries.out, queries.out + queries.kv_heads * block, 0.0f);
    const Mix mixer = mix_for(queries.count);
    for (long from = first; from < last;) {
        const long page = from / page_size, to = std::min({last, (page + 1) * page_size, from + VALUES_AT_ONCE});
        const float* base = values + (pages[page] * page_size + from % page_size) * stride + queries.first_head * heads.size;
        for (long h = 0; h < queries.kv_heads; h++)
            mixer(scores + h * queries.count * span - first, span, base + h * heads.size, stride, from, to, queries.out + h * block, heads.size);
        from = to;
    }
}
}  // namespace dspark
