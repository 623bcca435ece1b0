// A linear layer of codes: r = ACTIVATION(sums * scales + bias) + residual, where sums are those of products of codes, in
// 32 bits, and the rest is in float32, rounded once. The sums never leave the registers.
//
// x [m, k] and w [n, k] are codes of 8 bits, scales [n] float32, bias [n], residual and r [m, n], all contiguous. k is a
// multiple of 16, and x and w begin at multiples of 16 bytes.
//
// A block has ROWS x COLUMNS results, and each of its 8 warps ROWS / 2 x COLUMNS / 4 of them, as fragments of 16 x 8
// (mma.m16n8k32). It goes over k 64 codes at a time; two parts are on their way to shared memory while one is
// multiplied (cp.async).
//
// Macros: ELEMENT float, half_t or bf16_t; ACTIVATION an expression of x; BIAS, RESIDUAL 0/1; ROWS 32, 64 or 128; COLUMNS
// 64 or 128. A pointer that does not exist is null.
//
// Launch: 256 threads; grid (ceil(n / COLUMNS), ceil(m / ROWS)); dynamic shared memory 3 * 64 * (ROWS + COLUMNS) bytes.
constexpr int THREADS = 256, STAGES = 3, DEPTH = 64, CHUNKS = DEPTH / 16;
constexpr int FRAGMENTS = ROWS / 32, TILES = COLUMNS / 32;

// Where 16 codes of a row are in a tile of shared memory, in bytes: exchanged within the row so that the same ones of 8
// rows that follow each other are in different banks.
DEVICE unsigned place(unsigned row, unsigned chunk) { return row * DEPTH + (chunk ^ row / 2 % CHUNKS) * 16; }

// Starts to copy a tile of rows from `first` on; it is 0 after the last row and after the last code of a row.
template <int TILE_ROWS>
DEVICE void read_tile(Shared tile, const signed char* from, int first, int rows, int column, int k) {
    UNROLL
    for (int i = 0; i < TILE_ROWS * CHUNKS; i += THREADS) {
        const int at = i + static_cast<int>(threadIdx.x), row = at / CHUNKS, chunk = at % CHUNKS;
        if (TILE_ROWS * CHUNKS % THREADS != 0 && row >= TILE_ROWS) break;
        const bool is_there = first + row < rows && column + chunk * 16 < k;
        const signed char* source = from + static_cast<long long>(first + row) * k + column + chunk * 16;
        copy_async(tile + place(row, chunk), is_there ? source : from, !is_there);
    }
}

#ifdef PLANISH_HOST
namespace emulator {

struct CodesProduct {
    int* c;
    const unsigned* a;
    unsigned b[2];
};

inline int code_of(unsigned four, int e) { return static_cast<signed char>(four >> (8 * e)); }

// c += a b of 16 x 32 and 32 x 8.
inline void multiply_codes(void** lanes) {
    int a[16][32], b[8][32];
    for (int lane = 0; lane < LANES; lane++) {
        const CodesProduct* own = static_cast<CodesProduct*>(lanes[lane]);
        const int group = lane / 4, four = lane % 4 * 4;
        for (int e = 0; e < 4; e++) {
            for (int i = 0; i < 4; i++) a[group + i % 2 * 8][four + i / 2 * 16 + e] = code_of(own->a[i], e);
            for (int i = 0; i < 2; i++) b[group][four + i * 16 + e] = code_of(own->b[i], e);
        }
    }
    for (int lane = 0; lane < LANES; lane++) {
        for (int i = 0; i < 4; i++) {
            const int* row = a[lane / 4 + i / 2 * 8];
            const int* column = b[lane % 4 * 2 + i % 2];
            int sum = 0;
            for (int k = 0; k < 32; k++) sum += row[k] * column[k];
            static_cast<CodesProduct*>(lanes[lane])->c[i] += sum;
        }
    }
}

} // namespace emulator
#endif

// c += a b (mma.m16n8k32), with g = lane / 4 and t = 4 * (lane % 4): a holds four codes from (g, t), (g + 8, t), (g, t +
// 16) and (g + 8, t + 16) on, along rows; b those from (t, g) and (t + 16, g) on, along columns; c is as that of
// m16n8k16.
DEVICE void multiply_codes(int (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#ifdef PLANISH_HOST
    emulator::CodesProduct own = {c, a, {b0, b1}};
    emulator::warp_collective("mma of codes", ALL_LANES, &own, emulator::multiply_codes);
#else
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// What a sum stands for. `at` is the place of the result.
DEVICE ELEMENT result_of(int sum, float scale, float added, [[maybe_unused]] const ELEMENT* residual, long long at) {
    float x = static_cast<float>(sum) * scale;
    if (BIAS) x += added;
    x = ACTIVATION;
    if (RESIDUAL) x += to_float(residual[at]);
    return to<ELEMENT>(x);
}

KERNEL __launch_bounds__(THREADS, 2)
quantized_linear(ELEMENT* r, const signed char* x, const signed char* w, const float* scales,
                 [[maybe_unused]] const ELEMENT* bias, [[maybe_unused]] const ELEMENT* residual, int m, int n, int k) {
    DYNAMIC_SHARED(shared);
    const Shared stages = shared_address(shared);
    const int first_row = static_cast<int>(blockIdx.y) * ROWS, first_column = static_cast<int>(blockIdx.x) * COLUMNS;
    const int steps = (k + DEPTH - 1) / DEPTH;
    const auto read = [&](int step) {
        const Shared to = stages + step % STAGES * (ROWS + COLUMNS) * DEPTH;
        if (step < steps) {
            read_tile<ROWS>(to, x, first_row, m, step * DEPTH, k);
            read_tile<COLUMNS>(to + ROWS * DEPTH, w, first_column, n, step * DEPTH, k);
        }
        copies_commit();
    };
    UNROLL
    for (int step = 0; step < STAGES - 1; step++) read(step);

    const int lane = lane_index(), warp_row = warp_index() / 4 * (ROWS / 2);
    const int warp_column = warp_index() % 4 * (COLUMNS / 4);
    // The row of the matrices of 8 x 16 codes that a lane names for ldmatrix: of x, the second matrix has the next rows
    // and the third one the next codes; of w, the other way round.
    const int in_matrix = lane % 8, second = lane / 8 % 2, third = lane / 16;
    int sums[FRAGMENTS][TILES][4] = {};
    for (int step = 0; step < steps; step++) {
        copies_wait<STAGES - 2>();
        __syncthreads(); // The part is there, and nobody reads the one before it any more.
        read(step + STAGES - 1);
        const Shared of_x = stages + step % STAGES * (ROWS + COLUMNS) * DEPTH, of_w = of_x + ROWS * DEPTH;
        UNROLL
        for (int half = 0; half < CHUNKS; half += 2) {
            unsigned a[FRAGMENTS][4];
            UNROLL
            for (int f = 0; f < FRAGMENTS; f++) {
                load_matrices(a[f], of_x + place(warp_row + f * 16 + second * 8 + in_matrix, half + third));
            }
            UNROLL
            for (int t = 0; t < TILES; t += 2) {
                unsigned b[4];
                load_matrices(b, of_w + place(warp_column + (t + third) * 8 + in_matrix, half + second));
                UNROLL
                for (int f = 0; f < FRAGMENTS; f++) {
                    multiply_codes(sums[f][t], a[f], b[0], b[1]);
                    multiply_codes(sums[f][t + 1], a[f], b[2], b[3]);
                }
            }
        }
    }
    copies_wait<0>();

    const bool pairs = n % 2 == 0 && is_aligned(r, 2 * sizeof(ELEMENT));
    UNROLL
    for (int t = 0; t < TILES; t++) {
        const int column = first_column + warp_column + t * 8 + lane % 4 * 2;
        float scale[2], added[2] = {};
        UNROLL
        for (int e = 0; e < 2; e++) {
            const bool is_there = column + e < n;
            scale[e] = is_there ? scales[column + e] : 0.0f;
            if (BIAS && is_there) added[e] = to_float(bias[column + e]);
        }
        UNROLL
        for (int f = 0; f < FRAGMENTS; f++) {
            UNROLL
            for (int half = 0; half < 2; half++) {
                const int row = first_row + warp_row + f * 16 + lane / 4 + half * 8;
                if (row >= m || column >= n) continue;
                const long long at = static_cast<long long>(row) * n + column;
                Pack<ELEMENT, 2> both;
                both.items[0] = result_of(sums[f][t][2 * half], scale[0], added[0], residual, at);
                if (column + 1 < n) {
                    both.items[1] = result_of(sums[f][t][2 * half + 1], scale[1], added[1], residual, at + 1);
                }
                if (pairs) {
                    store(r + at, both);
                } else {
                    r[at] = both.items[0];
                    if (column + 1 < n) r[at + 1] = both.items[1];
                }
            }
        }
    }
}
EXPORT(quantized_linear)
