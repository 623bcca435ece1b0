// Attention of float32: out = softmax(scale * q k^T + bias) v, tile by tile, without the scores in memory
// (FlashAttention-2, Dao 2023, arXiv:2307.08691; online softmax, Milakov and Gimelshein 2018, arXiv:1805.02867).
//
// A block has ROWS queries of one head. It goes over the keys that any of them may attend to, KEYS at a time. Its 128
// threads are 16 x 8: a thread has ROWS / 16 queries, of the scores of each every 8th key and of the results every 8th
// group of 4 features, in registers. The weights pass through shared memory to the threads that need them, which are
// lanes of one warp. A query that has no key, or only scores of -inf, gets the mean of all values.
//
// q [batch, queries, heads, size], k and v [batch, keys, kv_heads, ...], out as q, all by strides of `p`; mask [batch,
// keys]; bias over [batch, heads, queries, keys]. RAGGED 1: one parameter more, starts [batch + 1]: sequence b is the
// rows starts[b] .. starts[b + 1] of q, k, v and out, and p.queries the longest.
//
// Macros: ELEMENT float; HEAD, VALUE_HEAD: size and value_size, rounded up to multiples of 16; CAUSAL, WINDOW, MASK,
// BIAS, SOFTCAP, RAGGED 0/1; BIAS_T float; ROWS 32 or 64; KEYS 32 or 64.
//
// Launch: 128 threads; grid (ceil(p.queries / ROWS), heads, batch); dynamic shared memory, bytes, with V = VALUE_HEAD
// rounded up to a multiple of 32: 4 * (ROWS * (HEAD + 4) + KEYS * (HEAD + 4) + KEYS * V + ROWS * (KEYS + 8)).
#ifndef ROWS
#define ROWS 32
#endif
#ifndef KEYS
#define KEYS 32
#endif
#ifndef RAGGED
#define RAGGED 0
#endif
#ifndef BIAS_T
#define BIAS_T float
#endif

constexpr int THREADS = 128, COLUMN_THREADS = 8, ROW_THREADS = THREADS / COLUMN_THREADS;
constexpr int ROWS_EACH = ROWS / ROW_THREADS, KEYS_EACH = KEYS / COLUMN_THREADS;
constexpr int VALUE_COLUMNS = (VALUE_HEAD + 31) / 32 * 32, GROUPS_EACH = VALUE_COLUMNS / 32;
constexpr int STRIDE = HEAD + 4, WEIGHT_STRIDE = KEYS + 8; // Of rows in shared memory, against conflicts of banks.

struct alignas(16) Four {
    float items[4];
};

// A tile of rows in shared memory: 0 after the last row and after the last feature.
template <int TILE_ROWS, int COLUMNS, int TILE_STRIDE>
DEVICE void read_tile(float* tile, const float* from, long long stride, int rows, int size, bool vectors) {
    constexpr int GROUPS = COLUMNS / 4;
    for (int i = static_cast<int>(threadIdx.x); i < TILE_ROWS * GROUPS; i += THREADS) {
        const int row = i / GROUPS, column = i % GROUPS * 4;
        Four four = {};
        if (row < rows && column < size) {
            const float* const source = from + row * stride + column;
            if (vectors) {
                four = *reinterpret_cast<const Four*>(source);
            } else {
                UNROLL
                for (int e = 0; e < 4; e++) four.items[e] = column + e < size ? source[e] : 0.0f;
            }
        }
        *reinterpret_cast<Four*>(tile + row * TILE_STRIDE + column) = four;
    }
}

// The mean of the values of all keys, which queries without keys get, in shared memory.
DEVICE void mean_value(float* mean, const float* v, long long stride, int keys, int size) {
    for (int column = static_cast<int>(threadIdx.x); column < VALUE_COLUMNS; column += THREADS) {
        float sum = 0.0f;
        for (int key = 0; column < size && key < keys; key++) sum += v[key * stride + column];
        mean[column] = keys > 0 ? sum / static_cast<float>(keys) : 0.0f;
    }
}

// The largest or the sum over the threads of a row.
template <typename Operation> DEVICE float over_row(float x) {
    UNROLL
    for (int bits = COLUMN_THREADS / 2; bits > 0; bits /= 2) x = Operation::of(x, __shfl_xor_sync(ALL_LANES, x, bits));
    return x;
}

KERNEL __launch_bounds__(THREADS)
flash(float* out, const float* q, const float* k, const float* v, const bool* mask, const BIAS_T* bias, Attention p
#if RAGGED
      , const int* starts
#endif
) {
#if !RAGGED
    const int* const starts = nullptr;
#endif
    const int batch = static_cast<int>(blockIdx.z), head = static_cast<int>(blockIdx.y);
    // Causal blocks of the last queries have the most keys and come first.
    const int tile = static_cast<int>(CAUSAL ? gridDim.x - 1 - blockIdx.x : blockIdx.x), first_row = tile * ROWS;
    const Operands<float> own = operands_of<RAGGED>(out, q, k, v, p, starts, batch, head);
    if (first_row >= own.queries) return;
    p.keys = own.keys;
    const int rows = own.queries - first_row < ROWS ? own.queries - first_row : ROWS;
    if (MASK) mask += batch * p.mask_batch;
    if (BIAS) bias += batch * p.bias[0] + head * p.bias[1] + first_row * p.bias[2];

    DYNAMIC_SHARED(shared);
    float* const q_tile = reinterpret_cast<float*>(shared);
    float* const k_tile = q_tile + ROWS * STRIDE;
    float* const v_tile = k_tile + KEYS * STRIDE;
    float* const weights = v_tile + KEYS * VALUE_COLUMNS;
    const bool q_vectors = is_aligned(own.q, 16) && p.q_row % 4 == 0 && p.size % 4 == 0;
    const bool k_vectors = is_aligned(own.k, 16) && p.k_row % 4 == 0 && p.size % 4 == 0;
    const bool v_vectors = is_aligned(own.v, 16) && p.v_row % 4 == 0 && p.value_size % 4 == 0;
    read_tile<ROWS, HEAD, STRIDE>(q_tile, own.q + first_row * p.q_row, p.q_row, rows, p.size, q_vectors);

    const int thread = static_cast<int>(threadIdx.x), x = thread % COLUMN_THREADS, y = thread / COLUMN_THREADS;
    float largest[ROWS_EACH], sums[ROWS_EACH], result[ROWS_EACH][GROUPS_EACH][4];
    UNROLL
    for (int i = 0; i < ROWS_EACH; i++) {
        largest[i] = -infinity();
        sums[i] = 0.0f;
        UNROLL
        for (int g = 0; g < GROUPS_EACH; g++) {
            UNROLL
            for (int e = 0; e < 4; e++) result[i][g][e] = 0.0f;
        }
    }

    const KeyRange range = key_range<CAUSAL, WINDOW>(p, first_row, first_row + rows - 1);
    for (int first = range.begin / KEYS * KEYS; first < range.end; first += KEYS) {
        unsigned bits[KEYS / LANES], any = 0;
        UNROLL
        for (int i = 0; i < KEYS / LANES; i++) {
            bits[i] = key_bits<MASK>(mask, first + i * LANES, range);
            any |= bits[i];
        }
        if (any == 0) continue; // In all threads alike.
        __syncthreads();
        read_tile<KEYS, HEAD, STRIDE>(k_tile, own.k + first * p.k_row, p.k_row, p.keys - first, p.size, k_vectors);
        read_tile<KEYS, VALUE_COLUMNS, VALUE_COLUMNS>(v_tile, own.v + first * p.v_row, p.v_row, p.keys - first,
                                                      p.value_size, v_vectors);
        __syncthreads();

        float scores[ROWS_EACH][KEYS_EACH] = {};
        for (int column = 0; column < HEAD; column += 4) {
            Four queries[ROWS_EACH];
            UNROLL
            for (int i = 0; i < ROWS_EACH; i++) {
                queries[i] = *reinterpret_cast<const Four*>(q_tile + (y + i * ROW_THREADS) * STRIDE + column);
            }
            UNROLL
            for (int j = 0; j < KEYS_EACH; j++) {
                const Four key = *reinterpret_cast<const Four*>(k_tile + (x + j * COLUMN_THREADS) * STRIDE + column);
                UNROLL
                for (int i = 0; i < ROWS_EACH; i++) {
                    UNROLL
                    for (int e = 0; e < 4; e++) scores[i][j] += queries[i].items[e] * key.items[e];
                }
            }
        }

        UNROLL
        for (int i = 0; i < ROWS_EACH; i++) {
            const int row = y + i * ROW_THREADS;
            float tile_largest = largest[i];
            UNROLL
            for (int j = 0; j < KEYS_EACH; j++) {
                const int in_tile = x + j * COLUMN_THREADS, key = first + in_tile;
                float score = scores[i][j] * p.scale;
                if (SOFTCAP) score = p.softcap * tanhf(score / p.softcap);
                const bool takes_part = (bits[in_tile / LANES] >> in_tile % LANES & 1) != 0 &&
                                        attends<CAUSAL, WINDOW>(p, first_row + row, key);
                if (BIAS && takes_part && row < rows) score += to_float(bias[row * p.bias[2] + key * p.bias[3]]);
                scores[i][j] = takes_part ? score * LOG2_E : -infinity();
                tile_largest = fmaxf(tile_largest, scores[i][j]);
            }
            tile_largest = over_row<Larger>(tile_largest);
            const Rescale now = rescale(largest[i], tile_largest);
            largest[i] = tile_largest;
            sums[i] *= now.factor;
            UNROLL
            for (int j = 0; j < KEYS_EACH; j++) {
                const float weight = exp2_fast(scores[i][j] - now.base);
                sums[i] += weight;
                weights[row * WEIGHT_STRIDE + x + j * COLUMN_THREADS] = weight;
            }
            UNROLL
            for (int g = 0; g < GROUPS_EACH; g++) {
                UNROLL
                for (int e = 0; e < 4; e++) result[i][g][e] *= now.factor;
            }
        }
        __syncwarp();

        for (int key = 0; key < KEYS; key += 4) {
            Four of_rows[ROWS_EACH];
            UNROLL
            for (int i = 0; i < ROWS_EACH; i++) {
                of_rows[i] = *reinterpret_cast<const Four*>(weights + (y + i * ROW_THREADS) * WEIGHT_STRIDE + key);
            }
            UNROLL
            for (int n = 0; n < 4; n++) {
                UNROLL
                for (int g = 0; g < GROUPS_EACH; g++) {
                    const Four value =
                        *reinterpret_cast<const Four*>(v_tile + (key + n) * VALUE_COLUMNS + g * 32 + x * 4);
                    UNROLL
                    for (int i = 0; i < ROWS_EACH; i++) {
                        UNROLL
                        for (int e = 0; e < 4; e++) result[i][g][e] += of_rows[i].items[n] * value.items[e];
                    }
                }
            }
        }
        __syncwarp();
    }

    bool none = false;
    UNROLL
    for (int i = 0; i < ROWS_EACH; i++) {
        sums[i] = over_row<Sum>(sums[i]);
        none = none || (sums[i] == 0.0f && y + i * ROW_THREADS < rows);
    }
    float* const mean = q_tile;
    if (__syncthreads_or(none)) {
        mean_value(mean, own.v, p.v_row, p.keys, p.value_size);
        __syncthreads();
    }
    const bool out_vectors = is_aligned(own.out, 16) && p.o_row % 4 == 0 && p.value_size % 4 == 0;
    UNROLL
    for (int i = 0; i < ROWS_EACH; i++) {
        const int row = y + i * ROW_THREADS;
        if (row >= rows) continue;
        const float factor = 1.0f / sums[i];
        float* const to = own.out + (first_row + row) * p.o_row;
        UNROLL
        for (int g = 0; g < GROUPS_EACH; g++) {
            const int column = g * 32 + x * 4;
            Four four;
            UNROLL
            for (int e = 0; e < 4; e++) four.items[e] = sums[i] == 0.0f ? mean[column + e] : result[i][g][e] * factor;
            if (out_vectors && column < p.value_size) {
                *reinterpret_cast<Four*>(to + column) = four;
            } else {
                UNROLL
                for (int e = 0; e < 4; e++) {
                    if (column + e < p.value_size) to[column + e] = four.items[e];
                }
            }
        }
    }
}
EXPORT(flash)
