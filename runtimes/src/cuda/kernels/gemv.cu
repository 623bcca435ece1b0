// Linear layers of a few rows, as steps of decoding have them: r = ACTIVATION(x w + bias) + residual, with sums in
// float32, rounded once. The weights are read once, in accesses of 16 bytes, whatever the number of rows.
//
// x [M, k] with x_row elements from a row to the next; w [n, k] (gemv_rows) or [k, n] (gemv_columns), bias [n],
// residual and r [M, n], contiguous. x and w begin at multiples of 16 bytes; so do their rows: k (gemv_rows) or n
// (gemv_columns) and x_row (gemv_rows) are multiples of EACH = 16 / size of an element.
//
// gemv_rows: SPLIT of a block's 4 warps share COLUMNS results of each row of x, each of them a part of k. Launch: 128
// threads, ceil(n / (COLUMNS * 4 / SPLIT)) blocks.
//
// gemv_columns: a block has WIDE * EACH results of each row of x, and WIDE threads one row of them; the other threads
// have other parts of k. Launch: BLOCK_THREADS threads, ceil(n / (WIDE * EACH)) blocks.
//
// Macros: ELEMENT float, half_t or bf16_t; M 1 to 4; BIAS, RESIDUAL 0/1; ACTIVATION an expression of x. A module with the
// macro WIDE (2, 4 or 8) and BLOCK_THREADS (a multiple of 32, up to 512) has gemv_columns, another one gemv_rows with COLUMNS (1,
// 2 or 4) and SPLIT (1, 2 or 4). A pointer that does not exist is null.
constexpr int EACH = PER_ACCESS<ELEMENT>;

// Writes a result.
DEVICE void finish(ELEMENT* r, float sum, [[maybe_unused]] const ELEMENT* bias,
                   [[maybe_unused]] const ELEMENT* residual, int row, int column, int n) {
    float x = sum;
    if (BIAS) x += to_float(bias[column]);
    x = ACTIVATION;
    const long long at = static_cast<long long>(row) * n + column;
    if (RESIDUAL) x += to_float(residual[at]);
    r[at] = to<ELEMENT>(x);
}

#ifndef WIDE
constexpr int WARPS = 4, GROUPS = WARPS / SPLIT, RESULTS = M * COLUMNS;

// Many sums need more registers than the compiler leaves them, and two or three blocks are enough.
#if M * COLUMNS > 4
#define BLOCKS_OF_MULTIPROCESSOR , (M * COLUMNS > 12 ? 2 : 3)
#else
#define BLOCKS_OF_MULTIPROCESSOR
#endif
KERNEL __launch_bounds__(WARPS * LANES BLOCKS_OF_MULTIPROCESSOR)
gemv_rows(ELEMENT* r, const ELEMENT* x, const ELEMENT* w, const ELEMENT* bias, const ELEMENT* residual, int n, int k,
          long long x_row) {
    __shared__ float scratch[WARPS][RESULTS];
    const int group = warp_index() / SPLIT, part = warp_index() % SPLIT;
    const int column = (static_cast<int>(blockIdx.x) * GROUPS + group) * COLUMNS;
    const ELEMENT* rows[COLUMNS];
    UNROLL
    for (int c = 0; c < COLUMNS; c++) {
        rows[c] = w + static_cast<long long>(column + c < n ? column + c : n - 1) * k;
    }
    float sums[M][COLUMNS] = {};
    UNROLL_BY(4)
    for (int i = (part * LANES + lane_index()) * EACH; i < k; i += SPLIT * LANES * EACH) {
        Pack<ELEMENT, EACH> weights[COLUMNS];
        UNROLL
        for (int c = 0; c < COLUMNS; c++) weights[c] = load<EACH>(rows[c] + i);
        UNROLL
        for (int m = 0; m < M; m++) {
            const Pack<ELEMENT, EACH> own = load<EACH>(x + m * x_row + i);
            UNROLL
            for (int e = 0; e < EACH; e++) {
                const float factor = to_float(own.items[e]);
                UNROLL
                for (int c = 0; c < COLUMNS; c++) sums[m][c] += factor * to_float(weights[c].items[e]);
            }
        }
    }
    UNROLL
    for (int m = 0; m < M; m++) {
        UNROLL
        for (int c = 0; c < COLUMNS; c++) {
            const float sum = over_warp<Sum>(sums[m][c]);
            if (lane_index() == 0) scratch[warp_index()][m * COLUMNS + c] = sum;
        }
    }
    __syncthreads();
    // A lane of the group's first warp for each result.
    if (part == 0 && lane_index() < RESULTS && column + lane_index() % COLUMNS < n) {
        float sum = 0.0f;
        UNROLL
        for (int i = 0; i < SPLIT; i++) sum += scratch[warp_index() + i][lane_index()];
        finish(r, sum, bias, residual, lane_index() / COLUMNS, column + lane_index() % COLUMNS, n);
    }
}
EXPORT(gemv_rows)
#else
constexpr int THREADS = BLOCK_THREADS, WARPS = THREADS / LANES, COLUMNS = WIDE * EACH, PARTS = THREADS / WIDE;

KERNEL __launch_bounds__(THREADS) gemv_columns(ELEMENT* r, const ELEMENT* x, const ELEMENT* w, const ELEMENT* bias,
                                               const ELEMENT* residual, int n, int k, long long x_row) {
    __shared__ float scratch[WARPS][M][COLUMNS];
    const int thread = static_cast<int>(threadIdx.x), part = thread / WIDE, own = thread % WIDE * EACH;
    const int first = static_cast<int>(blockIdx.x) * COLUMNS;
    float sums[M][EACH] = {};
    const int end = first + own < n ? k : 0;
    UNROLL_BY(4)
    for (int row = part; row < end; row += PARTS) {
        const Pack<ELEMENT, EACH> weights = load<EACH>(w + static_cast<long long>(row) * n + first + own);
        UNROLL
        for (int m = 0; m < M; m++) {
            const float factor = to_float(x[m * x_row + row]);
            UNROLL
            for (int e = 0; e < EACH; e++) sums[m][e] += factor * to_float(weights.items[e]);
        }
    }
    UNROLL
    for (int m = 0; m < M; m++) {
        UNROLL
        for (int e = 0; e < EACH; e++) {
            float sum = sums[m][e];
            UNROLL
            for (int bits = WIDE; bits < LANES; bits *= 2) sum += __shfl_xor_sync(ALL_LANES, sum, bits);
            if (lane_index() < WIDE) scratch[warp_index()][m][own + e] = sum;
        }
    }
    __syncthreads();
    for (int i = thread; i < M * COLUMNS; i += THREADS) {
        const int row = i / COLUMNS, column = i % COLUMNS;
        float sum = 0.0f;
        UNROLL
        for (int warp = 0; warp < WARPS; warp++) sum += scratch[warp][row][column];
        if (first + column < n) finish(r, sum, bias, residual, row, first + column, n);
    }
}
EXPORT(gemv_columns)
#endif
