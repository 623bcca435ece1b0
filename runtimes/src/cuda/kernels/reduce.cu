// Reductions: r[row] = the sum, mean, maximum or minimum of x[row][column] over the columns.
//
// Element (row, column) of x is at the offset of `row` in `kept` plus that of `column` in `reduced`: the axes that stay
// and those that go, by their sizes and strides[1]. r is contiguous. Sums are in float32 (float64 of double, 64-bit
// integers of integers); NaN wins over any maximum or minimum. Over no columns, a sum is 0, a mean NaN (of integers 0),
// a maximum -inf or the least integer, a minimum +inf or the largest one.
//
// Macros: T2 the elements; KIND 0 sum, 1 mean, 2 maximum, 3 minimum; BLOCK_ROWS how 256 threads share rows, and the
// launch: 0: a warp a row, ceil(rows / 8) blocks; 1: the block a row, rows blocks; 2: 32 rows at a time, of which each
// warp takes every 8th column, ceil(rows / 32) blocks: for rows whose elements are far apart while rows are side by
// side. Any smaller grid will do, too.
constexpr int WARPS = 8;
using Element = T2;
using Value = decltype(widened(Element{}));

DEVICE Value combine(Value x, Value y) {
    if constexpr (KIND < 2) return x + y;
    if constexpr (KIND == 2) return maximum(x, y);
    if constexpr (KIND == 3) return minimum(x, y);
}

// What the reduction of nothing gives.
template <typename Item> DEVICE Value neutral_of() {
    if constexpr (KIND < 2) {
        return Value(0);
    } else if constexpr (is_real<Item>) {
        return static_cast<Value>(KIND == 2 ? -infinity() : infinity());
    } else {
        constexpr bool is_signed = Item(-1) < Item(0);
        constexpr Value largest = static_cast<Value>(~0ull >> (64 - sizeof(Item) * 8 + is_signed));
        return KIND == 3 ? largest : is_signed ? Value(0) - largest - 1 : Value(0);
    }
}
DEVICE Value neutral() { return neutral_of<T2>(); }

DEVICE Value over_lanes(Value x) {
    UNROLL
    for (int bits = LANES / 2; bits > 0; bits /= 2) x = combine(x, __shfl_xor_sync(ALL_LANES, x, bits));
    return x;
}

DEVICE T2 finished(Value x, int columns) {
    if (KIND != 1) return to<T2>(x);
    if (!is_real<Value> && columns == 0) return to<T2>(Value(0));
    return to<T2>(x / static_cast<Value>(columns));
}

DEVICE long long offset_of(long long index, const Strided& s) {
    long long offset = 0;
    for (int axis = s.rank - 1; axis > 0; axis--) {
        const Quotient at = divide_index(index, s.sizes[axis]);
        index = at.quotient;
        offset += at.remainder * s.strides[1][axis];
    }
    return s.rank > 0 ? offset + index * s.strides[1][0] : 0;
}

// What one thread reduces: every `step`-th column from `first` on.
DEVICE Value reduced_columns(const T2* row, int first, int step, int columns, const Strided& reduced) {
    Value all = neutral();
    for (int column = first; column < columns; column += step) {
        all = combine(all, widened(row[offset_of(column, reduced)]));
    }
    return all;
}

KERNEL __launch_bounds__(256)
reduce(T2* r, const T2* x, long long rows, int columns, Strided kept, Strided reduced) {
    __shared__ Value scratch[WARPS][LANES];
    const int warp = warp_index(), lane = lane_index();
    constexpr int AT_ONCE = BLOCK_ROWS == 0 ? WARPS : BLOCK_ROWS == 1 ? 1 : LANES;
    for (long long first = grid_block() * AT_ONCE; first < rows; first += grid_blocks() * AT_ONCE) {
        if constexpr (BLOCK_ROWS == 0) {
            const long long row = first + warp;
            if (row >= rows) continue;
            const T2* const from = x + offset_of(row, kept);
            const Value all = over_lanes(reduced_columns(from, lane, LANES, columns, reduced));
            if (lane == 0) r[row] = finished(all, columns);
        } else if constexpr (BLOCK_ROWS == 1) {
            const T2* const from = x + offset_of(first, kept);
            const int thread = static_cast<int>(threadIdx.x);
            const Value own = over_lanes(reduced_columns(from, thread, WARPS * LANES, columns, reduced));
            if (lane == 0) scratch[warp][0] = own;
            __syncthreads();
            if (warp == 0) {
                const Value all = over_lanes(lane < WARPS ? scratch[lane][0] : neutral());
                if (lane == 0) r[first] = finished(all, columns);
            }
            __syncthreads();
        } else {
            const long long row = first + lane;
            Value own = neutral();
            if (row < rows) own = reduced_columns(x + offset_of(row, kept), warp, WARPS, columns, reduced);
            scratch[warp][lane] = own;
            __syncthreads();
            if (warp == 0 && row < rows) {
                UNROLL
                for (int k = 1; k < WARPS; k++) own = combine(own, scratch[k][lane]);
                r[row] = finished(own, columns);
            }
            __syncthreads();
        }
    }
}
EXPORT(reduce)
