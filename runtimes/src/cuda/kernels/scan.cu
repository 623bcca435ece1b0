// Cumulative sums along an axis: r[o][k][i] = x[o][0][i] + ... + x[o][k][i].
//
// x and r are [outer, length, inner], contiguous; r may be x. Floats add up in float32, in any order, and integers wrap.
//
// cumulative_rows, for an inner size of 1: a warp or a block has a row. Each thread adds up elements that are side by
// side, and the sums of threads in front of it come by shuffles, from other warps through shared memory, and from the
// part of the row before as a carry. Launch: WARP 1: 128 threads, ceil(outer / 4) blocks; WARP 0: 256 threads, outer
// blocks.
//
// cumulative_lanes, for any inner size: a thread has a lane. Launch: 256 threads, ceil(outer * inner / 256) blocks.
//
// Macros: T2 the elements: int, long long, float, half_t, bf16_t, double. A module with the macro WARP (0/1) has
// cumulative_rows, another one cumulative_lanes.
using Item = T2;
using Total = decltype(widened(Item{}));

#ifdef WARP
constexpr int EACH = PER_ACCESS<T2>, THREADS = WARP ? LANES : 256, WARPS = THREADS / LANES;
constexpr int ROWS_AT_ONCE = WARP ? 4 : 1;

// The sums of the lanes in front of this one, and of all.
struct InWarp {
    Total before, all;
};
DEVICE InWarp over_lanes(Total own) {
    Total sum = own;
    UNROLL
    for (int by = 1; by < LANES; by *= 2) {
        const Total other = __shfl_up_sync(ALL_LANES, sum, by);
        if (lane_index() >= by) sum += other;
    }
    const Total before = __shfl_up_sync(ALL_LANES, sum, 1);
    return {lane_index() == 0 ? Total(0) : before, __shfl_sync(ALL_LANES, sum, LANES - 1)};
}

KERNEL __launch_bounds__(WARP ? 128 : 256) cumulative_rows(T2* r, const T2* x, long long rows, int length) {
    __shared__ Total scratch[2][WARPS];
    const bool vectors = length % EACH == 0 && is_aligned(r, 16) && is_aligned(x, 16);
    const int thread = static_cast<int>(threadIdx.x) % THREADS;
    const long long first = grid_block() * ROWS_AT_ONCE + (WARP ? warp_index() : 0);
    for (long long row = first; row < rows; row += grid_blocks() * ROWS_AT_ONCE) {
        Total carry = 0;
        int half = 0; // Which scratch: the warps that are behind still read the other one.
        for (int start = 0; start < length; start += THREADS * EACH, half ^= 1) {
            const int at = start + thread * EACH;
            const long long place = row * length + at;
            Pack<T2, EACH> items{};
            if (vectors) {
                if (at < length) items = load<EACH>(x + place);
            } else {
                UNROLL
                for (int e = 0; e < EACH; e++) {
                    if (at + e < length) items.items[e] = x[place + e];
                }
            }
            Total sums[EACH];
            UNROLL
            for (int e = 0; e < EACH; e++) sums[e] = (e > 0 ? sums[e - 1] : Total(0)) + Total(widened(items.items[e]));
            const InWarp in_warp = over_lanes(sums[EACH - 1]);
            Total before = carry + in_warp.before, all = in_warp.all;
            if (!WARP) {
                if (lane_index() == 0) scratch[half][warp_index()] = in_warp.all;
                __syncthreads();
                all = Total(0);
                UNROLL
                for (int warp = 0; warp < WARPS; warp++) {
                    const Total of_warp = scratch[half][warp];
                    if (warp < warp_index()) before += of_warp;
                    all += of_warp;
                }
            }
            carry += all;
            UNROLL
            for (int e = 0; e < EACH; e++) items.items[e] = to<T2>(before + sums[e]);
            if (vectors) {
                if (at < length) store(r + place, items);
            } else {
                UNROLL
                for (int e = 0; e < EACH; e++) {
                    if (at + e < length) r[place + e] = items.items[e];
                }
            }
        }
        if (!WARP) __syncthreads(); // The scratch of the last step may be that of the next row's first one.
    }
}
EXPORT(cumulative_rows)
#else
KERNEL __launch_bounds__(256)
cumulative_lanes(T2* r, const T2* x, long long outer, int length, long long inner) {
    for (long long lane = grid_thread(); lane < outer * inner; lane += grid_threads()) {
        const Quotient at = divide_index(lane, inner);
        long long i = at.quotient * length * inner + at.remainder;
        Total sum = 0;
        for (int k = 0; k < length; k++, i += inner) {
            sum += widened(x[i]);
            r[i] = to<T2>(sum);
        }
    }
}
EXPORT(cumulative_lanes)
#endif
