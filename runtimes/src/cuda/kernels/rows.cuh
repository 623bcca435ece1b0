// Reductions over the threads of a warp and of a block, and rows of tensors in registers.
DEVICE int lane_index() { return static_cast<int>(threadIdx.x) % LANES; }
DEVICE int warp_index() { return static_cast<int>(threadIdx.x) / LANES; }

struct Sum {
    template <typename Number> DEVICE Number of(Number x, Number y) { return x + y; }
};
struct Maximum {
    template <typename Number> DEVICE Number of(Number x, Number y) { return maximum(x, y); }
};
// Faster; NaN counts only where there is nothing else.
struct Larger {
    DEVICE float of(float x, float y) { return fmaxf(x, y); }
};
struct Minimum {
    template <typename Number> DEVICE Number of(Number x, Number y) { return minimum(x, y); }
};

// The sum, or another operation, over the lanes of a warp, in every lane.
template <typename Operation, typename Number> DEVICE Number over_warp(Number x) {
    UNROLL
    for (int bits = LANES / 2; bits > 0; bits /= 2) x = Operation::of(x, __shfl_xor_sync(ALL_LANES, x, bits));
    return x;
}

// The same over a block of `WARPS` warps. `scratch` is shared memory of `WARPS` numbers, which no thread may write
// again before the next barrier.
template <typename Operation, int WARPS, typename Number> DEVICE Number over_block(Number x, Number* scratch) {
    x = over_warp<Operation>(x);
    if (lane_index() == 0) scratch[warp_index()] = x;
    __syncthreads();
    Number all = scratch[0];
    UNROLL
    for (int i = 1; i < WARPS; i++) all = Operation::of(all, scratch[i]);
    return all;
}

// A row of up to Values * THREADS columns in registers of `THREADS` threads, converted to float. With vectors, each
// thread has several that are side by side, and neighbours have the next ones; else each has every THREADS-th column.
template <int VALUES_EACH, int THREADS, typename Item> struct Row {
    static constexpr int WIDTH = VALUES_EACH < PER_ACCESS<Item> ? VALUES_EACH : PER_ACCESS<Item>;

    // Whether rows of so many columns from such an address on can be accessed in vectors.
    static __device__ __forceinline__ bool fits(const Item* rows, int columns) {
        return columns % WIDTH == 0 && is_aligned(rows, WIDTH * sizeof(Item));
    }

    // Columns after the last one become `rest`.
    static __device__ __forceinline__ void read(float (&values)[VALUES_EACH], const Item* row, int thread, int columns,
                                                bool vectors, float rest) {
        if (vectors) {
            UNROLL
            for (int k = 0; k < VALUES_EACH; k += WIDTH) {
                const int column = k * THREADS + thread * WIDTH;
                Pack<Item, WIDTH> pack;
                if (column < columns) pack = load<WIDTH>(row + column);
                UNROLL
                for (int e = 0; e < WIDTH; e++) values[k + e] = column < columns ? to_float(pack.items[e]) : rest;
            }
        } else {
            UNROLL
            for (int k = 0; k < VALUES_EACH; k++) {
                const int column = k * THREADS + thread;
                values[k] = column < columns ? to_float(row[column]) : rest;
            }
        }
    }

    static __device__ __forceinline__ void write(Item* row, const float (&values)[VALUES_EACH], int thread, int columns,
                                                 bool vectors) {
        if (vectors) {
            UNROLL
            for (int k = 0; k < VALUES_EACH; k += WIDTH) {
                const int column = k * THREADS + thread * WIDTH;
                Pack<Item, WIDTH> pack;
                UNROLL
                for (int e = 0; e < WIDTH; e++) pack.items[e] = to<Item>(values[k + e]);
                if (column < columns) store(row + column, pack);
            }
        } else {
            UNROLL
            for (int k = 0; k < VALUES_EACH; k++) {
                const int column = k * THREADS + thread;
                if (column < columns) row[column] = to<Item>(values[k]);
            }
        }
    }

    // Whether value k is of a column of the row.
    static __device__ __forceinline__ bool has(int k, int thread, int columns, bool vectors) {
        return (vectors ? k / WIDTH * WIDTH * THREADS + thread * WIDTH + k % WIDTH : k * THREADS + thread) < columns;
    }
};

// The largest of the numbers so far, and the sum of exp(x - largest) over them; numbers of -inf add nothing.
struct Online {
    float largest, sum;

    __device__ __forceinline__ void take(float x) {
        if (x > largest || is_nan(x)) {
            sum = sum * exp(largest - x) + 1.0f;
            largest = x;
        } else if (x > -infinity()) {
            sum += exp(x - largest);
        }
    }
    // The sum of exp(x - other) for a number that is at least as large as all.
    __device__ __forceinline__ float sum_for(float other) const {
        return largest == -infinity() ? 0.0f : sum * exp(largest - other);
    }
};
