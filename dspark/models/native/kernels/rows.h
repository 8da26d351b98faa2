// What a decoder layer does to each token alone: normalise, rotate, gate.
#pragma once

#include "simd.h"

namespace dspark {
// out = x / sqrt(mean(x^2) + eps) * weight
inline void rms_norm(const float* x, const float* weight, float* out, long size, float eps) {
    vec squares = zero();
    long i = 0;
    for (; i + WIDTH <= size; i += WIDTH) {
        const vec v = load(x + i);
        squares = fma(v, v, squares);
    }
    if (const int rest = (int)(size - i)) {
        const vec v = load_part(x + i, rest);
        squares = fma(v, v, squares);
    }
    const float factor = 1.0f / std::sqrt(sum(squares) / (float)size + eps);
    for (long j = 0; j < size; j++) out[j] = weight[j] * (x[j] * factor);
}

// Rotary positions on one head, halves paired: (a, b) -> (a cos - b sin, b cos + a sin).
inline void rotate(const float* x, const float* cos, const float* sin, float* out, long size) {
    const long half = size / 2;
    for (long i = 0; i < half; i++) {
        const float a = x[i], b = x[i + half];
        out[i] = a * cos[i] - b * sin[i];
        out[i + half] = b * cos[i + half] + a * sin[i + half];
    }
}

// gate = silu(gate) * up
inline void silu_times(float* gate, const float* up, long size) {
    const vec one = set1(1.0f);
    for (long i = 0; i < size; i += WIDTH) {
        const int n = (int)(size - i < WIDTH ? size - i : WIDTH);
        const vec x = n == WIDTH ? load(gate + i) : load_part(gate + i, n);
        const vec u = n == WIDTH ? load(up + i) : load_part(up + i, n);
        // with t = exp(-|x|): x / (1 + t) where x >= 0, and x t / (1 + t) where it is negative
        const vec t = exponential(sub(zero(), maximum(x, sub(zero(), x))));
        const vec above = div(maximum(x, zero()), add(one, t));
        const vec below = div(mul(sub(x, maximum(x, zero())), t), add(one, t));
        const vec y = mul(add(above, below), u);
        if (n == WIDTH)
            store(gate + i, y);
        else
            store_part(gate + i, y, n);
    }
}
}  // namespace dspark
