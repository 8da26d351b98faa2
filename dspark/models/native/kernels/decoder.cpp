// One pass of Llama-type layers over a flattened, ragged batch: one call, one parallel region.
//
// The structures are mirrored in ../binding.py; every field is 8 bytes, so both sides agree.
#include "attention.h"
#include "linear.h"
#include "rows.h"

using namespace dspark;

struct Layer {
    const float *input_norm, *q, *k, *v, *q_bias, *k_bias, *v_bias, *q_norm, *k_norm, *o, *o_bias;
    const float *post_norm, *gate, *up, *down;
    float *keys, *values;  // [pages, page_size, kv_heads, head_size]
    int64_t window;
};

struct Model {
    int64_t layers, hidden, heads, kv_heads, head_size, intermediate, vocab;
    double eps, scale;
    const float *embedding, *final_norm, *head;  // no head: the last norm is what comes out
    const Layer* layer;
};

struct Pass {
    int64_t tokens, rows, logits, page_size, threads, feature_stride;
    int64_t blocks;  // 1: new tokens of a row see each other, the later ones too
    const int64_t *ids, *positions, *write, *logits_index;
    const Row* row;
    const int64_t* pages;  // the rows' page tables, one after another
    const float *cos, *sin;  // [positions, head_size]
    float *stream, *normed, *qkv, *mixed, *gate_up, *out;
    float* const* features;  // [layers]: null, or where the residual stream after the layer goes
};

namespace {
constexpr int MAX_HEAD_SIZE = 1024;  // those who call refuse larger ones: family.py

// q, k, v of a token lie side by side in `qkv`; k and v go to the cache, q stays and is turned.
void place_heads(const Model& m, const Layer& layer, const Pass& p, long token, long first_head = 0) {
    const long size = m.head_size, heads = m.heads + m.kv_heads;
    float* q = p.qkv + token * (m.heads + 2 * m.kv_heads) * size;
    const float *cos = p.cos + p.positions[token] * size, *sin = p.sin + p.positions[token] * size;
    float* key = layer.keys + p.write[token] * m.kv_heads * size;
    float turned[MAX_HEAD_SIZE];
    for (long h = first_head; h < heads; h++) {
        float* x = q + h * size;
        const bool is_key = h >= m.heads;
        const float* norm = is_key ? layer.k_norm : layer.q_norm;
        if (norm) rms_norm(x, norm, x, size, (float)m.eps);
        rotate(x, cos, sin, turned, size);
        std::memcpy(is_key ? key + (h - m.heads) * size : x, turned, size * sizeof(float));
    }
    std::memcpy(layer.values + p.write[token] * m.kv_heads * size, q + heads * size, m.kv_heads * size * sizeof(float));
}

struct Task {  // `count` tokens of a row from its `token`-th, and the heads of `kv_heads` key/value heads
    int64_t row, token, count, first_head, kv_heads;
};

struct Scratch {
    std::vector<float> gathered, result, scores;
};

void run_task(const Model& m, const Layer& layer, const Pass& p, const Heads& heads, const Task& task, Scratch& scratch) {
    const long size = m.head_size, group = m.heads / m.kv_heads, width = (m.heads + 2 * m.kv_heads) * size;
    const Row& row = p.row[task.row];
    const long total = task.count * group;
    scratch.gathered.resize(task.kv_heads * TILE_TOKENS * size);
    scratch.result.resize(task.kv_heads * TILE_TOKENS * size);
    for (long from = 0; from < total; from += TILE_TOKENS) {
        Queries queries{scratch.gathered.data(), scratch.result.data(), task.first_head, task.kv_heads, {}, (int)std::min<long>(TILE_TOKENS, total - from)};
        float* gathered = scratch.gathered.data();
        const auto each = [&](auto&& visit) {
            for (long h = 0; h < task.kv_heads; h++)
                for (int q = 0; q < queries.count; q++)
                    visit((h * queries.count + q) * size, q, task.token + (from + q) / group, (task.first_head + h) * group + (from + q) % group);
        };
        each([&](long place, int q, long token, long head) {
            queries.position[q] = row.start + (p.blocks ? row.tokens - 1 : token);
            std::memcpy(gathered + place, p.qkv + (row.first + token) * width + head * size, size * sizeof(float));
        });
        attend(queries, p.pages + row.table, heads, layer.keys, layer.values, scratch.scores);
        each([&](long place, int, long token, long head) {
            std::memcpy(p.mixed + ((row.first + token) * m.heads + head) * size, queries.out + place, size * sizeof(float));
        });
    }
}

// A task takes all heads, which reads the cache in order; where that leaves threads idle, one head.
std::vector<Task> tasks_of(const Model& m, const Pass& p, const Heads& heads) {
    std::vector<Task> tasks;
    const long step = task_tokens(heads);
    long blocks = 0;
    for (long r = 0; r < p.rows; r++) blocks += (p.row[r].tokens + step - 1) / step;
    const long at_once = blocks >= 4 * p.threads ? m.kv_heads : 1;
    for (long r = 0; r < p.rows; r++)
        for (long token = p.row[r].tokens; token > 0; token -= step)  // the longest first
            for (long h = 0; h < m.kv_heads; h += at_once) {
                const long first = std::max<long>(0, token - step);
                tasks.push_back({r, first, token - first, h, at_once});
            }
    return tasks;
}
}  // namespace

extern "C" void dspark_decoder_pass(const Model* model, const Pass* pass) {
    const Model& m = *model;
    const Pass& p = *pass;
    const long n = p.tokens, hidden = m.hidden, q_width = m.heads * m.head_size, kv_width = m.kv_heads * m.head_size;
    const long qkv_width = q_width + 2 * kv_width, inner = m.intermediate;
    const int threads = (int)p.threads;
    const float eps = (float)m.eps;
    Heads heads{m.heads, m.kv_heads, m.head_size, p.page_size, 0, (float)m.scale};
    const std::vector<Task> tasks = tasks_of(m, p, heads);
#pragma omp parallel num_threads(threads) firstprivate(heads)
    {
        Scratch scratch;
#pragma omp for
        for (long t = 0; t < n; t++) {
            std::memcpy(p.stream + t * hidden, m.embedding + p.ids[t] * hidden, hidden * sizeof(float));
            rms_norm(p.stream + t * hidden, m.layer[0].input_norm, p.normed + t * hidden, hidden, eps);
        }
        for (long l = 0; l < m.layers; l++) {
            const Layer& layer = m.layer[l];
            heads.window = layer.window;
            const Product qkv[] = {{layer.q, layer.q_bias, q_width, p.qkv, qkv_width},
                                   {layer.k, layer.k_bias, kv_width, p.qkv + q_width, qkv_width},
                                   {layer.v, layer.v_bias, kv_width, p.qkv + q_width + kv_width, qkv_width}};
            products<Store::SET>(qkv, p.normed, n, hidden, threads);
#pragma omp for
            for (long t = 0; t < n; t++) place_heads(m, layer, p, t);
#pragma omp for schedule(dynamic, 1)
            for (long i = 0; i < (long)tasks.size(); i++) run_task(m, layer, p, heads, tasks[i], scratch);
            const Product o[] = {{layer.o, layer.o_bias, hidden, p.stream, hidden}};
            products<Store::ADD>(o, p.mixed, n, q_width, threads);
#pragma omp for
            for (long t = 0; t < n; t++)
                rms_norm(p.stream + t * hidden, layer.post_norm, p.normed + t * hidden, hidden, eps);
            const Product gate_up[] = {{layer.gate, nullptr, inner, p.gate_up, 2 * inner},
                                       {layer.up, nullptr, inner, p.gate_up + inner, 2 * inner}};
            products<Store::SET>(gate_up, p.normed, n, hidden, threads);
#pragma omp for
            for (long t = 0; t < n; t++) {  // the gated values move to the front, one after another
                float* gate = p.gate_up + t * 2 * inner;
                silu_times(gate, gate + inner, inner);
                std::memcpy(p.mixed + t * inner, gate, inner * sizeof(float));
            }
            const Product down[] = {{layer.down, nullptr, hidden, p.stream, hidden}};
            products<Store::ADD>(down, p.mixed, n, inner, threads);
            const float* next = l + 1 < m.layers ? m.layer[l + 1].input_norm : nullptr;
#pragma omp for
            for (long t = 0; t < n; t++) {
                const float* x = p.stream + t * hidden;
                if (p.features[l]) std::memcpy(p.features[l] + t * p.feature_stride, x, hidden * sizeof(float));
                if (next) rms_norm(x, next, p.normed + t * hidden, hidden, eps);
            }
        }
#pragma omp for
        for (long i = 0; i < p.logits; i++)
            rms_norm(p.stream + p.logits_index[i] * hidden, m.final_norm, (m.head ? p.normed : p.out) + i * hidden, hidden, eps);
        const Product head[] = {{m.head, nullptr, m.vocab, p.out, m.vocab}};
        if (p.logits && m.head) products<Store::SET>(head, p.normed, p.logits, hidden, threads);
    }
}

// Keys and values of context tokens, in every layer, from the features [tokens, width] that `fc` mixes.
extern "C" void dspark_context(const Model* model, const Pass* pass, const float* features, const float* fc, const float* norm, int64_t width) {
    const Model& m = *model;
    const Pass& p = *pass;
    const long n = p.tokens, hidden = m.hidden, q_width = m.heads * m.head_size, kv_width = m.kv_heads * m.head_size;
    const long qkv_width = q_width + 2 * kv_width;
    const int threads = (int)p.threads;
#pragma omp parallel num_threads(threads)
    {
        const Product mix[] = {{fc, nullptr, hidden, p.stream, hidden}};
        products<Store::SET>(mix, features, n, width, threads);
#pragma omp for
        for (long t = 0; t < n; t++)
            rms_norm(p.stream + t * hidden, norm, p.normed + t * hidden, hidden, (float)m.eps);
        for (long l = 0; l < m.layers; l++) {
            const Layer& layer = m.layer[l];
            const Product kv[] = {{layer.k, layer.k_bias, kv_width, p.qkv + q_width, qkv_width},
                                  {layer.v, layer.v_bias, kv_width, p.qkv + q_width + kv_width, qkv_width}};
            products<Store::SET>(kv, p.normed, n, hidden, threads);
#pragma omp for
            for (long t = 0; t < n; t++) place_heads(m, layer, p, t, m.heads);
        }
    }
}

extern "C" void dspark_linear(const float* weight, const float* bias, const float* x, float* out, int64_t rows, int64_t tokens, int64_t inner, int64_t threads) {
    const Product one[] = {{weight, bias, rows, out, rows}};
#pragma omp parallel num_threads((int)threads)
    products<Store::SET>(one, x, tokens, inner, (int)threads);
}

extern "C" int64_t dspark_vector_width() { return WIDTH; }
