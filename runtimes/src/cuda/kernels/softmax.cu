// Softmax of rows: r[row][column] = exp(x[row][column] - largest) / sum, in float32.
//
// x and r are [rows, columns], contiguous; r may be x. A row whose largest number is -inf becomes NaN.
//
// Macros: ELEMENT the elements; COLUMNS_PER_LANE in {1, 2, 4, 8, 16, 32}: a warp a row that it keeps in registers, for
// up to 32 * COLUMNS_PER_LANE columns; launch 128 threads, ceil(rows / 4) blocks. Or 0: a block a row of any length
// that is read twice, with the largest number and the sum found at once (Milakov and Gimelshein 2018,
// arXiv:1805.02867); launch 256 threads, min(rows, 2^31 - 1) blocks.
#if COLUMNS_PER_LANE > 0
KERNEL __launch_bounds__(128) softmax(ELEMENT* r, const ELEMENT* x, long long rows, int columns) {
    using Columns = Row<COLUMNS_PER_LANE, LANES, ELEMENT>;
    const bool vectors = Columns::fits(r, columns) && Columns::fits(x, columns);
    const int lane = lane_index();
    for (long long row = grid_block() * 4 + warp_index(); row < rows; row += grid_blocks() * 4) {
        float values[COLUMNS_PER_LANE];
        Columns::read(values, x + row * columns, lane, columns, vectors, -infinity());
        float largest = values[0];
        UNROLL
        for (int k = 1; k < COLUMNS_PER_LANE; k++) largest = maximum(largest, values[k]);
        largest = over_warp<Maximum>(largest);
        float sum = 0;
        UNROLL
        for (int k = 0; k < COLUMNS_PER_LANE; k++) {
            values[k] = Columns::has(k, lane, columns, vectors) ? exp(values[k] - largest) : 0.0f;
            sum += values[k];
        }
        const float factor = 1.0f / over_warp<Sum>(sum);
        UNROLL
        for (int k = 0; k < COLUMNS_PER_LANE; k++) values[k] *= factor;
        Columns::write(r + row * columns, values, lane, columns, vectors);
    }
}
#else
KERNEL __launch_bounds__(256) softmax(ELEMENT* r, const ELEMENT* x, long long rows, int columns) {
    constexpr int THREADS = 256, WARPS = THREADS / LANES, WIDTH = PER_ACCESS<ELEMENT>;
    __shared__ float scratch[2][WARPS];
    using Columns = Row<WIDTH, THREADS, ELEMENT>;
    const bool vectors = Columns::fits(r, columns) && Columns::fits(x, columns);
    const int thread = static_cast<int>(threadIdx.x);
    for (long long row = grid_block(); row < rows; row += grid_blocks()) {
        const ELEMENT* from = x + row * columns;
        ELEMENT* to = r + row * columns;
        Online online = {-infinity(), 0.0f};
        for (int first = 0; first < columns; first += WIDTH * THREADS) {
            float values[WIDTH];
            Columns::read(values, from + first, thread, columns - first, vectors, -infinity());
            UNROLL
            for (int e = 0; e < WIDTH; e++) online.take(values[e]);
        }
        const float largest = over_block<Maximum, WARPS>(online.largest, scratch[0]);
        const float factor = 1.0f / over_block<Sum, WARPS>(online.sum_for(largest), scratch[1]);
        for (int first = 0; first < columns; first += WIDTH * THREADS) {
            float values[WIDTH];
            Columns::read(values, from + first, thread, columns - first, vectors, 0.0f);
            UNROLL
            for (int e = 0; e < WIDTH; e++) values[e] = exp(values[e] - largest) * factor;
            Columns::write(to + first, values, thread, columns - first, vectors);
        }
        __syncthreads();
    }
}
#endif
EXPORT(softmax)
