// Attention of a few queries to many keys, as in generation: the keys are divided among blocks, and another kernel
// combines their results (Flash-Decoding, Dao et al. 2023; the queries of heads that share keys go together).
//
// decode: partial[b][h][i][s] = (largest score, sum of weights, sums of weighted values [value_size]) in float32, of
// part s of the keys that any query attends to; scores are exponents of 2. A part without any key has -inf and zeros.
//
// decode_combine: out = the weighted values of all parts over the sum of weights. A query that has no key, or only
// scores of -inf, gets the mean of all values.
//
// q [batch, queries, heads, size], k and v [batch, keys, kv_heads, ...], out as q, all by strides of `p`; mask [batch,
// keys]; bias over [batch, heads, queries, keys]. Row r of a block is query r / (heads / kv_heads) of one of the heads
// that share its keys. A warp reads several keys at once, each with as many lanes as its features fill by accesses of
// 16 bytes; every such group of lanes has an online softmax of its own (Milakov and Gimelshein 2018, arXiv:1805.02867).
//
// Macros: ELEMENT float, half_t or bf16_t; HEAD, VALUE_HEAD: size and value_size, rounded up to multiples of 16;
// CAUSAL, WINDOW, MASK, BIAS, SOFTCAP 0/1; BIAS_T float or ELEMENT; ROWS: queries * heads / kv_heads, rounded up to 1,
// 2, 4, 8 or 16.
//
// Launch: decode 128 threads, grid (p.splits, kv_heads, batch); decode_combine 128 threads, grid (queries, heads,
// batch).
#ifndef BIAS_T
#define BIAS_T float
#endif

constexpr int WARPS = 4, THREADS = WARPS * LANES, WIDTH = PER_ACCESS<ELEMENT>;
// Each warp has ROWS_EACH rows; of the warps with the same rows, each has every KEY_WARPS-th group of keys.
constexpr int ROWS_EACH = ROWS < 4 ? ROWS : 4, ROW_GROUPS = ROWS / ROWS_EACH, KEY_WARPS = WARPS / ROW_GROUPS;
constexpr int ACCESSES = ((HEAD > VALUE_HEAD ? HEAD : VALUE_HEAD) + WIDTH - 1) / WIDTH;
constexpr int KEY_LANES = ACCESSES > 16 ? 32 : ACCESSES > 8 ? 16 : ACCESSES > 4 ? 8 : ACCESSES > 2 ? 4 : 2;
constexpr int ACCESSES_EACH = (ACCESSES + KEY_LANES - 1) / KEY_LANES, FEATURES = ACCESSES_EACH * WIDTH;
constexpr int KEY_GROUPS = LANES / KEY_LANES;
// Keys whose accesses are under way together.
constexpr int AT_ONCE = ROWS_EACH * FEATURES > 16 ? 2 : 4;

// A lane's features of a row, as they are in memory: WIDTH from (WIDTH * lane) on, and so on every KEY_LANES * WIDTH.
struct Features {
    Pack<ELEMENT, WIDTH> packs[ACCESSES_EACH];
};
DEVICE int feature(int access, int part) { return (access * KEY_LANES + part) * WIDTH; }
DEVICE Features read_features(const ELEMENT* row, int part, int size, bool vectors, bool inside) {
    Features features = {};
    UNROLL
    for (int a = 0; a < ACCESSES_EACH; a++) {
        const int first = feature(a, part);
        if (!inside || first >= size) continue;
        if (vectors) {
            features.packs[a] = load<WIDTH>(row + first);
        } else {
            UNROLL
            for (int e = 0; e < WIDTH; e++) {
                if (first + e < size) features.packs[a].items[e] = row[first + e];
            }
        }
    }
    return features;
}

// The softmax so far of one row: over the keys that a group of lanes has seen.
struct Partial {
    float largest, sum, values[FEATURES];

    // Adds what another one has.
    __device__ __forceinline__ void merge(float other_largest, float other_sum, const float (&other_values)[FEATURES]) {
        const float both = fmaxf(largest, other_largest);
        const Rescale own = rescale(largest, both), other = rescale(other_largest, both);
        largest = both;
        sum = sum * own.factor + other_sum * other.factor;
        UNROLL
        for (int e = 0; e < FEATURES; e++) values[e] = values[e] * own.factor + other_values[e] * other.factor;
    }
};

KERNEL __launch_bounds__(THREADS)
decode(float* partial, const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, const bool* mask, const BIAS_T* bias,
       Attention p) {
    constexpr int STORED = KEY_LANES * FEATURES;
    __shared__ float sums[KEY_WARPS][ROWS][2];
    __shared__ float values[KEY_WARPS][ROWS][STORED];
    const int split = static_cast<int>(blockIdx.x), kv_head = static_cast<int>(blockIdx.y);
    const int batch = static_cast<int>(blockIdx.z);
    const int sharing = p.heads / p.kv_heads, rows = p.queries * sharing;
    const int warp = warp_index(), lane = lane_index(), part = lane % KEY_LANES, group = lane / KEY_LANES;
    const int first_row = warp % ROW_GROUPS * ROWS_EACH, key_warp = warp / ROW_GROUPS;

    k += batch * p.k_batch + kv_head * p.k_head;
    v += batch * p.v_batch + kv_head * p.v_head;
    if (MASK) mask += batch * p.mask_batch;
    const bool q_vectors = ((p.q_batch | p.q_row | p.q_head | p.size) % WIDTH) == 0 && is_aligned(q, 16);
    const bool k_vectors = ((p.k_row | p.size) % WIDTH) == 0 && is_aligned(k, 16);
    const bool v_vectors = ((p.v_row | p.value_size) % WIDTH) == 0 && is_aligned(v, 16);

    float queries[ROWS_EACH][FEATURES];
    const BIAS_T* biases[ROWS_EACH];
    Partial own[ROWS_EACH];
    UNROLL
    for (int i = 0; i < ROWS_EACH; i++) {
        const int row = first_row + i, query = row / sharing, head = kv_head * sharing + row % sharing;
        const ELEMENT* const from = q + batch * p.q_batch + query * p.q_row + head * p.q_head;
        const Features features = read_features(from, part, p.size, q_vectors, row < rows);
        UNROLL
        for (int e = 0; e < FEATURES; e++) queries[i][e] = to_float(features.packs[e / WIDTH].items[e % WIDTH]);
        biases[i] = BIAS ? bias + batch * p.bias[0] + head * p.bias[1] + query * p.bias[2] : nullptr;
        own[i].largest = -infinity();
        own[i].sum = 0.0f;
        UNROLL
        for (int e = 0; e < FEATURES; e++) own[i].values[e] = 0.0f;
    }

    const KeyRange range = key_range<CAUSAL, WINDOW>(p, 0, p.queries - 1);
    const int share = (range.end - range.begin + p.splits - 1) / p.splits;
    const int begin = range.begin + split * share, end = range.end - begin < share ? range.end : begin + share;
    // All lanes of a warp take as many steps, as they exchange sums.
    for (int first = begin + key_warp * KEY_GROUPS; first < end; first += AT_ONCE * KEY_WARPS * KEY_GROUPS) {
        Features key_features[AT_ONCE], value_features[AT_ONCE];
        bool takes_part[AT_ONCE];
        UNROLL
        for (int u = 0; u < AT_ONCE; u++) {
            const int key = first + u * KEY_WARPS * KEY_GROUPS + group;
            takes_part[u] = key < end && (!MASK || mask[key]);
            key_features[u] = read_features(k + key * p.k_row, part, p.size, k_vectors, takes_part[u]);
            value_features[u] = read_features(v + key * p.v_row, part, p.value_size, v_vectors, takes_part[u]);
        }
        float scores[ROWS_EACH][AT_ONCE];
        UNROLL
        for (int u = 0; u < AT_ONCE; u++) {
            UNROLL
            for (int i = 0; i < ROWS_EACH; i++) scores[i][u] = 0.0f;
            UNROLL
            for (int e = 0; e < FEATURES; e++) {
                const float feature = to_float(key_features[u].packs[e / WIDTH].items[e % WIDTH]);
                UNROLL
                for (int i = 0; i < ROWS_EACH; i++) scores[i][u] += queries[i][e] * feature;
            }
        }
        UNROLL
        for (int i = 0; i < ROWS_EACH; i++) {
            const int row = first_row + i, query = row / sharing;
            float largest = own[i].largest;
            UNROLL
            for (int u = 0; u < AT_ONCE; u++) {
                const int key = first + u * KEY_WARPS * KEY_GROUPS + group;
                UNROLL
                for (int bits = KEY_LANES / 2; bits > 0; bits /= 2) {
                    scores[i][u] += __shfl_xor_sync(ALL_LANES, scores[i][u], bits);
                }
                float score = scores[i][u] * p.scale;
                if (SOFTCAP) score = p.softcap * tanh_fast(score / p.softcap);
                const bool counts = takes_part[u] && row < rows && attends<CAUSAL, WINDOW>(p, query, key);
                if (BIAS && counts) score += to_float(biases[i][key * p.bias[3]]);
                scores[i][u] = counts ? score * LOG2_E : -infinity();
                largest = fmaxf(largest, scores[i][u]);
            }
            const Rescale by = rescale(own[i].largest, largest);
            own[i].largest = largest;
            own[i].sum *= by.factor;
            UNROLL
            for (int e = 0; e < FEATURES; e++) own[i].values[e] *= by.factor;
            UNROLL
            for (int u = 0; u < AT_ONCE; u++) {
                scores[i][u] = exp2_fast(scores[i][u] - by.base);
                own[i].sum += scores[i][u];
            }
        }
        UNROLL
        for (int u = 0; u < AT_ONCE; u++) {
            UNROLL
            for (int e = 0; e < FEATURES; e++) {
                const float feature = to_float(value_features[u].packs[e / WIDTH].items[e % WIDTH]);
                UNROLL
                for (int i = 0; i < ROWS_EACH; i++) own[i].values[e] += scores[i][u] * feature;
            }
        }
    }

    UNROLL
    for (int i = 0; i < ROWS_EACH; i++) {
        UNROLL
        for (int bits = KEY_LANES; bits < LANES; bits *= 2) {
            float other[FEATURES];
            UNROLL
            for (int e = 0; e < FEATURES; e++) other[e] = __shfl_xor_sync(ALL_LANES, own[i].values[e], bits);
            const float other_largest = __shfl_xor_sync(ALL_LANES, own[i].largest, bits);
            const float other_sum = __shfl_xor_sync(ALL_LANES, own[i].sum, bits);
            own[i].merge(other_largest, other_sum, other);
        }
        if (group == 0) {
            UNROLL
            for (int e = 0; e < FEATURES; e++) {
                values[key_warp][first_row + i][feature(e / WIDTH, part) + e % WIDTH] = own[i].values[e];
            }
            if (part == 0) {
                sums[key_warp][first_row + i][0] = own[i].largest;
                sums[key_warp][first_row + i][1] = own[i].sum;
            }
        }
    }
    __syncthreads();

    // Each warp writes every WARPS-th row, put together from the warps that had it.
    for (int row = warp; row < rows; row += WARPS) {
        float largest = -infinity(), sum = 0.0f, factors[KEY_WARPS];
        UNROLL
        for (int w = 0; w < KEY_WARPS; w++) largest = fmaxf(largest, sums[w][row][0]);
        UNROLL
        for (int w = 0; w < KEY_WARPS; w++) {
            factors[w] = rescale(sums[w][row][0], largest).factor;
            sum += sums[w][row][1] * factors[w];
        }
        const int query = row / sharing, head = kv_head * sharing + row % sharing;
        const long long index = (static_cast<long long>(batch) * p.heads + head) * p.queries + query;
        float* const to = partial + (index * p.splits + split) * (p.value_size + 2);
        if (lane == 0) {
            to[0] = largest;
            to[1] = sum;
        }
        for (int column = lane; column < p.value_size; column += LANES) {
            float value = 0.0f;
            UNROLL
            for (int w = 0; w < KEY_WARPS; w++) value += values[w][row][column] * factors[w];
            to[2 + column] = value;
        }
    }
}
EXPORT(decode)

KERNEL __launch_bounds__(THREADS) decode_combine(ELEMENT* out, const float* partial, const ELEMENT* v, Attention p) {
    const int query = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
    const int batch = static_cast<int>(blockIdx.z), stride = p.value_size + 2;
    const long long index = (static_cast<long long>(batch) * p.heads + head) * p.queries + query;
    const float* const parts = partial + index * p.splits * stride;
    float largest = -infinity(), sum = 0.0f;
    for (int s = 0; s < p.splits; s++) largest = fmaxf(largest, parts[s * stride]);
    for (int s = 0; s < p.splits; s++) sum += parts[s * stride + 1] * rescale(parts[s * stride], largest).factor;
    out += batch * p.o_batch + query * p.o_row + head * p.o_head;
    v += batch * p.v_batch + head / (p.heads / p.kv_heads) * p.v_head;
    for (int column = static_cast<int>(threadIdx.x); column < p.value_size; column += THREADS) {
        float value = 0.0f;
        if (sum != 0.0f) {
            for (int s = 0; s < p.splits; s++) {
                value += parts[s * stride + 2 + column] * rescale(parts[s * stride], largest).factor;
            }
            value /= sum;
        } else if (p.keys > 0) {
            for (int key = 0; key < p.keys; key++) value += to_float(v[key * p.v_row + column]);
            value /= static_cast<float>(p.keys);
        }
        out[column] = to<ELEMENT>(value);
    }
}
EXPORT(decode_combine)
