// Cumulative sums along an axis: r[o][k][i] = x[o][0][i] + ... + x[o][k][i].
//
// x and r are [outer, length, inner], contiguous; r may be x. Floats add up in float32 and integers wrap.
//
// Macro: T2 the elements: int, long long, float, half_t, bf16_t.
// Launch: 256 threads, ceil(outer * inner / 256) blocks: one thread a lane.
KERNEL __launch_bounds__(256)
cumulative_sum(T2* r, const T2* x, long long outer, int length, long long inner) {
    for (long long lane = grid_thread(); lane < outer * inner; lane += grid_threads()) {
        const Quotient at = divide_index(lane, inner);
        long long i = at.quotient * length * inner + at.remainder;
        decltype(widened(x[0])) sum = 0;
        for (int k = 0; k < length; k++, i += inner) {
            sum += widened(x[i]);
            r[i] = to<T2>(sum);
        }
    }
}
EXPORT(cumulative_sum)
