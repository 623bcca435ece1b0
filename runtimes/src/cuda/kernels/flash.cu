// Attention of half types: out = softmax(scale * q k^T + bias) v, tile by tile, without the scores in memory
// (FlashAttention-2, Dao 2023, arXiv:2307.08691; online softmax, Milakov and Gimelshein 2018, arXiv:1805.02867).
//
// A block has ROWS queries of one head, and each of its 4 warps has ROWS / 64 fragments of 16 of them. It goes over the
// keys that any of its queries may attend to, KEYS at a time, and skips tiles that the mask leaves out. While one tile
// is multiplied, the next one is on its way to the other half of shared memory (cp.async). Both products are
// mma.m16n8k16 with float32 sums; the softmax is in float32, with weights rounded to ELEMENT for the second product. A
// query that has no key, or only scores of -inf, gets the mean of all values.
//
// q [batch, queries, heads, size], k and v [batch, keys, kv_heads, ...], out as q, all by strides of `p`; mask [batch,
// keys]; bias over [batch, heads, queries, keys]. RAGGED 1: one parameter more, starts [batch + 1]: sequence b is the
// rows starts[b] .. starts[b + 1] of q, k, v and out, and p.queries the longest. Rows that are 16-byte aligned are
// copied asynchronously, others element by element.
//
// Macros: ELEMENT half_t or bf16_t; HEAD, VALUE_HEAD: size and value_size, rounded up to multiples of 16; CAUSAL,
// WINDOW, MASK, BIAS, SOFTCAP, RAGGED 0/1; BIAS_T float or ELEMENT; ROWS 64 or 128; KEYS 32 or 64.
//
// Launch: 128 threads; grid (ceil(p.queries / ROWS), heads, batch); dynamic shared memory, bytes:
//   stage = 2 * KEYS * (HEAD + VALUE_HEAD), queries = 2 * ROWS * HEAD,
//   max(ROWS / 64 * HEAD <= 128 ? stage + max(stage, queries) : 2 * stage + queries, 2 * ROWS * VALUE_HEAD).
#ifndef ROWS
#define ROWS 64
#endif
#ifndef KEYS
#define KEYS 64
#endif
#ifndef RAGGED
#define RAGGED 0
#endif
#ifndef BIAS_T
#define BIAS_T float
#endif

constexpr int THREADS = 128, WARPS = THREADS / LANES, FRAGMENTS = ROWS / (WARPS * 16);
constexpr int KEY_TILES = KEYS / 8, VALUE_TILES = VALUE_HEAD / 8;
constexpr int STAGE = KEYS * (HEAD + VALUE_HEAD); // Elements of a tile of keys and values.
// Queries stay in registers where there is space for them, and pass through the second stage then.
constexpr bool QUERIES_STAY = FRAGMENTS * HEAD <= 128;

// Where 8 elements of a row are in a tile of shared memory, in bytes: exchanged within the row so that the same ones of
// 8 rows that follow each other are in different banks. The exchange repeats after 8 rows.
template <int COLUMNS> constexpr unsigned EXCHANGED = COLUMNS % 64 == 0 ? 8 : COLUMNS % 32 == 0 ? 4 : 2;
template <int COLUMNS> DEVICE unsigned place(unsigned row, unsigned chunk) {
    const unsigned exchange = row % 8 / (8 / EXCHANGED<COLUMNS>);
    return row * COLUMNS * 2 + (chunk ^ exchange) * 16;
}
// The same for chunk + more, where `chunk` is 0 or 1 and `more` even, from the place of `chunk`: mostly known
// beforehand, as rows begin at multiples of 16 * EXCHANGED.
template <int COLUMNS> DEVICE Shared further(Shared place, unsigned more) {
    constexpr unsigned MODULUS = EXCHANGED<COLUMNS>;
    return (place ^ more % MODULUS * 16) + more / MODULUS * MODULUS * 16;
}

// Starts to copy a tile of rows; it is 0 after the last row and after the last feature.
template <int TILE_ROWS, int COLUMNS>
DEVICE void read_tile(ELEMENT* tile, const ELEMENT* from, long long stride, int rows, int size, bool vectors) {
    constexpr unsigned CHUNKS = COLUMNS / 8, AT_ONCE = THREADS / CHUNKS; // Rows that the block copies at once.
    const unsigned first = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
    if (AT_ONCE * CHUNKS < THREADS && first == AT_ONCE) return;
    const ELEMENT* source = from + first * stride + chunk * 8;
    const int column = static_cast<int>(chunk) * 8, left = column < size ? rows - static_cast<int>(first) : 0;
    if (vectors) {
        const Shared to = shared_address(tile), start = to + place<COLUMNS>(first, chunk);
        UNROLL
        for (int i = 0; i < TILE_ROWS; i += AT_ONCE) {
            if (TILE_ROWS % AT_ONCE != 0 && first + i >= TILE_ROWS) break;
            // A multiple of 8 rows on, places are the same in each row.
            const Shared at = AT_ONCE % 8 == 0 ? start + i * COLUMNS * 2 : to + place<COLUMNS>(first + i, chunk);
            copy_async(at, i < left ? source : from, i >= left);
            source += AT_ONCE * stride;
        }
    } else {
        UNROLL_NOT
        for (int i = 0; first + i < TILE_ROWS; i += AT_ONCE) {
            Pack<ELEMENT, 8> pack;
            UNROLL
            for (int e = 0; e < 8; e++) pack.items[e] = i < left && column + e < size ? source[e] : ELEMENT{0};
            store(tile + place<COLUMNS>(first + i, chunk) / 2, pack);
            source += AT_ONCE * stride;
        }
    }
}

// The mean of the values of all keys, which queries without keys get, in shared memory.
DEVICE void mean_value(float* mean, const ELEMENT* v, long long stride, int keys, int size) {
    for (int column = static_cast<int>(threadIdx.x); column < VALUE_HEAD; column += THREADS) {
        float sum = 0.0f;
        for (int key = 0; column < size && key < keys; key++) sum += to_float(v[key * stride + column]);
        mean[column] = keys > 0 ? sum / static_cast<float>(keys) : 0.0f;
    }
}

// The largest or the sum over the 4 lanes that have a row of a fragment.
template <typename Operation> DEVICE float over_quad(float x) {
    x = Operation::of(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return Operation::of(x, __shfl_xor_sync(ALL_LANES, x, 2));
}

// Some of KEYS keys, and which of them take part.
struct Tile {
    int first;
    unsigned bits[KEYS / LANES];
};
// The next tile from `first` on that has a key that takes part; or one after the last tile.
DEVICE Tile next_tile(int first, const bool* mask, KeyRange range) {
    Tile tile = {first, {}};
    for (; tile.first < range.end; tile.first += KEYS) {
        unsigned any = 0;
        UNROLL
        for (int i = 0; i < KEYS / LANES; i++) {
            tile.bits[i] = key_bits<MASK>(mask, tile.first + i * LANES, range);
            any |= tile.bits[i];
        }
        if (any != 0) break;
    }
    return tile;
}

// Large heads need more registers than three blocks leave, and two are enough of them. Tiles of more rows have all registers.
#if HEAD > 64 && ROWS <= 64
#define BLOCKS_OF_MULTIPROCESSOR , 2
#else
#define BLOCKS_OF_MULTIPROCESSOR
#endif
KERNEL __launch_bounds__(THREADS BLOCKS_OF_MULTIPROCESSOR)
flash(ELEMENT* out, const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, const bool* mask, const BIAS_T* bias,
      Attention p
#if RAGGED
      , const int* starts
#endif
) {
#if !RAGGED
    const int* const starts = nullptr;
#endif
    const int batch = static_cast<int>(blockIdx.z), head = static_cast<int>(blockIdx.y);
    // Causal blocks of the last queries have the most keys and come first.
    const int block = static_cast<int>(CAUSAL ? gridDim.x - 1 - blockIdx.x : blockIdx.x), first_row = block * ROWS;
    const Operands<ELEMENT> own = operands_of<RAGGED>(out, q, k, v, p, starts, batch, head);
    if (first_row >= own.queries) return;
    p.keys = own.keys;
    const int rows = own.queries - first_row < ROWS ? own.queries - first_row : ROWS;
    if (MASK) mask += batch * p.mask_batch;
    if (BIAS) bias += batch * p.bias[0] + head * p.bias[1] + first_row * p.bias[2];

    DYNAMIC_SHARED(shared);
    ELEMENT* const stages = reinterpret_cast<ELEMENT*>(shared);
    ELEMENT* const queries = stages + (QUERIES_STAY ? STAGE : 2 * STAGE);
    const bool q_vectors = is_aligned(own.q, 16) && p.q_row % 8 == 0 && p.size % 8 == 0;
    const bool k_vectors = is_aligned(own.k, 16) && p.k_row % 8 == 0 && p.size % 8 == 0;
    const bool v_vectors = is_aligned(own.v, 16) && p.v_row % 8 == 0 && p.value_size % 8 == 0;
    const auto read_keys = [&](const Tile& tile, int stage) {
        ELEMENT* const to = stages + stage * STAGE;
        read_tile<KEYS, HEAD>(to, own.k + tile.first * p.k_row, p.k_row, p.keys - tile.first, p.size, k_vectors);
        read_tile<KEYS, VALUE_HEAD>(to + KEYS * HEAD, own.v + tile.first * p.v_row, p.v_row, p.keys - tile.first,
                                    p.value_size, v_vectors);
    };

    const KeyRange range = key_range<CAUSAL, WINDOW>(p, first_row, first_row + rows - 1);
    Tile tile = next_tile(range.begin / KEYS * KEYS, mask, range);
    read_tile<ROWS, HEAD>(queries, own.q + first_row * p.q_row, p.q_row, rows, p.size, q_vectors);
    copies_commit();
    if (tile.first < range.end) read_keys(tile, 0);
    copies_commit();

    // What of a fragment of 16 rows a lane has: rows `in_fragment` and 8 more, columns `pair` and the next one of each
    // 8.
    const int lane = lane_index(), in_fragment = lane / 4, pair = lane % 4 * 2;
    const int warp_row = warp_index() * FRAGMENTS * 16;
    // The row of the matrices of 8 x 8 that a lane names for ldmatrix: of queries and values, the second matrix has the
    // next rows and the third one the next columns; of keys, the other way round.
    const unsigned in_matrix = lane % 8, second = lane / 8 % 2, third = lane / 16;
    const Shared q_lane = shared_address(queries) + place<HEAD>(warp_row + second * 8 + in_matrix, third);
    const Shared k_first = shared_address(stages) + place<HEAD>(third * 8 + in_matrix, second);
    const Shared v_first = shared_address(stages) + KEYS * HEAD * 2 + place<VALUE_HEAD>(second * 8 + in_matrix, third);
    const auto load_queries = [&](unsigned (&to)[4], int f, int step) {
        load_matrices(to, further<HEAD>(q_lane, step * 2) + f * 16 * HEAD * 2);
    };
    unsigned kept[QUERIES_STAY ? FRAGMENTS : 1][QUERIES_STAY ? HEAD / 16 : 1][4];
    if (QUERIES_STAY) {
        copies_wait<1>();
        __syncthreads();
        UNROLL
        for (int f = 0; f < (QUERIES_STAY ? FRAGMENTS : 0); f++) {
            UNROLL
            for (int step = 0; step < HEAD / 16; step++) load_queries(kept[f][step], f, step);
        }
    }

    // Scores are kept without the factor that makes them exponents of 2, where nothing but the scale comes in between.
    const bool scaled_late = !SOFTCAP && !BIAS && p.scale > 0.0f;
    const float exponent = scaled_late ? p.scale * LOG2_E : LOG2_E;
    float result[FRAGMENTS][VALUE_TILES][4] = {}, largest[FRAGMENTS][2], sums[FRAGMENTS][2] = {};
    UNROLL
    for (int f = 0; f < FRAGMENTS; f++) largest[f][0] = largest[f][1] = -infinity();

    for (int stage = 0; tile.first < range.end; stage ^= 1) {
        const Tile next = next_tile(tile.first + KEYS, mask, range);
        copies_wait<0>();
        __syncthreads(); // The tile is there, and nobody reads the one before it any more.
        if (next.first < range.end) read_keys(next, stage ^ 1);
        copies_commit();
        const Shared k_lane = k_first + stage * STAGE * 2, v_lane = v_first + stage * STAGE * 2;

        float scores[FRAGMENTS][KEY_TILES][4] = {};
        UNROLL
        for (int step = 0; step < HEAD / 16; step++) {
            unsigned a[FRAGMENTS][4];
            UNROLL
            for (int f = 0; f < FRAGMENTS; f++) {
                if (QUERIES_STAY) {
                    UNROLL
                    for (int i = 0; i < 4; i++) a[f][i] = kept[QUERIES_STAY ? f : 0][QUERIES_STAY ? step : 0][i];
                } else {
                    load_queries(a[f], f, step);
                }
            }
            UNROLL
            for (int n = 0; n < KEY_TILES; n += 2) {
                unsigned b[4];
                load_matrices(b, further<HEAD>(k_lane, step * 2) + n * 8 * HEAD * 2);
                UNROLL
                for (int f = 0; f < FRAGMENTS; f++) {
                    multiply<ELEMENT>(scores[f][n], a[f], b[0], b[1]);
                    multiply<ELEMENT>(scores[f][n + 1], a[f], b[2], b[3]);
                }
            }
        }

        if (!scaled_late) {
            UNROLL
            for (int f = 0; f < FRAGMENTS; f++) {
                UNROLL
                for (int half = 0; half < 2; half++) {
                    const int row = warp_row + f * 16 + in_fragment + half * 8;
                    const int left = row < rows ? p.keys - tile.first - pair : 0; // Keys from this lane's first one on.
                    const BIAS_T* from = bias + row * p.bias[2] + (tile.first + pair) * p.bias[3];
                    UNROLL
                    for (int n = 0; n < KEY_TILES; n++) {
                        UNROLL
                        for (int e = 0; e < 2; e++) {
                            float& score = scores[f][n][2 * half + e];
                            score *= p.scale;
                            if (SOFTCAP) score = p.softcap * tanh_fast(score / p.softcap);
                            if (BIAS && n * 8 + e < left) score += to_float(e == 0 ? from[0] : from[p.bias[3]]);
                        }
                        if (BIAS) from += 8 * p.bias[3];
                    }
                }
            }
        }
        bool partly = (CAUSAL && tile.first + KEYS - 1 > p.offset + first_row) ||
                      (WINDOW && tile.first <= p.offset + first_row + rows - 1 - p.window) ||
                      (WINDOW && !CAUSAL && tile.first + KEYS - 1 >= p.offset + first_row + p.window);
        UNROLL
        for (int i = 0; i < KEYS / LANES; i++) partly = partly || tile.bits[i] != ~0u;
        if (partly) {
            UNROLL
            for (int f = 0; f < FRAGMENTS; f++) {
                UNROLL
                for (int n = 0; n < KEY_TILES; n++) {
                    const unsigned bits = tile.bits[n * 8 / LANES] >> (n * 8 % LANES + pair);
                    UNROLL
                    for (int e = 0; e < 4; e++) {
                        const int query = first_row + warp_row + f * 16 + in_fragment + e / 2 * 8;
                        const int key = tile.first + n * 8 + pair + e % 2;
                        const bool takes_part = (bits >> e % 2 & 1) != 0 && attends<CAUSAL, WINDOW>(p, query, key);
                        if (!takes_part) scores[f][n][e] = -infinity();
                    }
                }
            }
        }

        UNROLL
        for (int f = 0; f < FRAGMENTS; f++) {
            UNROLL
            for (int half = 0; half < 2; half++) {
                float now = largest[f][half];
                UNROLL
                for (int n = 0; n < KEY_TILES; n++) {
                    now = fmaxf(now, fmaxf(scores[f][n][2 * half], scores[f][n][2 * half + 1]));
                }
                now = over_quad<Larger>(now);
                const Rescale by = rescale(largest[f][half] * exponent, now * exponent);
                largest[f][half] = now;
                float sum = sums[f][half] * by.factor;
                UNROLL
                for (int n = 0; n < KEY_TILES; n++) {
                    UNROLL
                    for (int e = 2 * half; e < 2 * half + 2; e++) {
                        scores[f][n][e] = exp2_fast(fmaf(scores[f][n][e], exponent, -by.base));
                        sum += scores[f][n][e];
                    }
                }
                sums[f][half] = sum;
                UNROLL
                for (int n = 0; n < VALUE_TILES; n++) {
                    result[f][n][2 * half] *= by.factor;
                    result[f][n][2 * half + 1] *= by.factor;
                }
            }
        }

        // The fragments of two tiles of scores are, side by side, one of the other product's first operand.
        UNROLL
        for (int step = 0; step < KEYS / 16; step++) {
            unsigned a[FRAGMENTS][4];
            UNROLL
            for (int f = 0; f < FRAGMENTS; f++) {
                UNROLL
                for (int i = 0; i < 4; i++) {
                    const float(&weights)[4] = scores[f][2 * step + i / 2];
                    a[f][i] = pair_of<ELEMENT>(weights[i % 2 * 2], weights[i % 2 * 2 + 1]);
                }
            }
            UNROLL
            for (int n = 0; n < VALUE_TILES; n += 2) {
                unsigned b[4];
                load_transposed(b, further<VALUE_HEAD>(v_lane, n) + step * 16 * VALUE_HEAD * 2);
                UNROLL
                for (int f = 0; f < FRAGMENTS; f++) {
                    multiply<ELEMENT>(result[f][n], a[f], b[0], b[1]);
                    multiply<ELEMENT>(result[f][n + 1], a[f], b[2], b[3]);
                }
            }
        }
        tile = next;
    }
    copies_wait<0>();

    bool none = false;
    UNROLL
    for (int f = 0; f < FRAGMENTS; f++) {
        UNROLL
        for (int half = 0; half < 2; half++) {
            sums[f][half] = over_quad<Sum>(sums[f][half]);
            none = none || (sums[f][half] == 0.0f && warp_row + f * 16 + in_fragment + half * 8 < rows);
        }
    }
    if (__syncthreads_or(none)) {
        float* const mean = reinterpret_cast<float*>(shared);
        mean_value(mean, own.v, p.v_row, p.keys, p.value_size);
        __syncthreads();
        UNROLL
        for (int f = 0; f < FRAGMENTS; f++) {
            UNROLL
            for (int e = 0; e < 4; e++) {
                UNROLL
                for (int n = 0; n < VALUE_TILES; n++) {
                    if (sums[f][e / 2] == 0.0f) result[f][n][e] = mean[n * 8 + pair + e % 2];
                }
                if (e % 2 == 1 && sums[f][e / 2] == 0.0f) sums[f][e / 2] = 1.0f;
            }
        }
        __syncthreads();
    }

    // Each warp's rows pass through shared memory, to leave in whole sectors.
    ELEMENT* const leaving = stages;
    UNROLL
    for (int f = 0; f < FRAGMENTS; f++) {
        UNROLL
        for (int half = 0; half < 2; half++) {
            const float factor = 1.0f / sums[f][half];
            const int row = warp_row + f * 16 + in_fragment + half * 8;
            UNROLL
            for (int n = 0; n < VALUE_TILES; n++) {
                Bytes4 both;
                both.x = pair_of<ELEMENT>(result[f][n][2 * half] * factor, result[f][n][2 * half + 1] * factor);
                *reinterpret_cast<Bytes4*>(leaving + place<VALUE_HEAD>(row, n) / 2 + pair) = both;
            }
        }
    }
    __syncwarp();
    const bool out_vectors = is_aligned(own.out, 16) && p.o_row % 8 == 0 && p.value_size % 8 == 0;
    for (int i = lane; i < FRAGMENTS * 16 * VALUE_TILES; i += LANES) {
        const int row = warp_row + i / VALUE_TILES, chunk = i % VALUE_TILES;
        if (row >= rows) break;
        const Pack<ELEMENT, 8> pack = load<8>(leaving + place<VALUE_HEAD>(row, chunk) / 2);
        ELEMENT* const to = own.out + (first_row + row) * p.o_row + chunk * 8;
        if (out_vectors) {
            if (chunk * 8 < p.value_size) store(to, pack);
        } else {
            UNROLL
            for (int e = 0; e < 8; e++) {
                if (chunk * 8 + e < p.value_size) to[e] = pack.items[e];
            }
        }
    }
}
EXPORT(flash)
