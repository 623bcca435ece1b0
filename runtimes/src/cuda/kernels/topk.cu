// The k largest scores of each row, their indices, and the logarithm of the sum of the exponentials of all scores of the
// row, in two steps, as LightSeq does for beams (Wang et al. 2021, arXiv:2010.13887): the k best of each group of
// columns, and then the k best of these.
//
// topk_groups: `columns` scores from scores + row * stride on give values and indices [rows, groups, k], and sums [rows,
// groups]: of the exponentials of the scores of a group, relative to that of its largest. Group g has the columns from
// g * ceil(columns / groups) on; where it has fewer than k, the rest are -inf with index -1.
//
// topk_merge: these give log_sums [rows], values and indices [rows, k]. Candidates with index -1 do not count; where there
// are fewer than k others, the rest are -inf with index -1. Where all scores are -inf, log_sums is 0. Where one is NaN
// or inf, it is NaN.
//
// Results are sorted by descending score, and by ascending index where scores are the same. NaN counts as -inf. A block
// finds one result after another: each thread knows the best of its own candidates, and only the thread that had the
// best of all looks for its next one. Sums are in double, so that they are those of the host but for their order.
//
// Macro: ELEMENT the type of scores: float, half_t or bf16_t (topk_merge does not use it).
//
// Launch: 128 threads, grid (groups, rows) and (1, rows), up to 65535 rows; k at least 1.
constexpr int THREADS = 128, WARPS = THREADS / LANES;
constexpr int NOWHERE = 0x7fffffff; // An index after all others: no candidate.

struct Candidate {
    float value;
    int index;
};

// Whether a candidate comes before another one.
DEVICE bool before(Candidate x, Candidate y) { return x.value > y.value || (x.value == y.value && x.index < y.index); }

DEVICE Candidate better(Candidate x, Candidate y) { return before(x, y) ? x : y; }

// The best over the lanes of a warp.
DEVICE Candidate best_of_warp(Candidate own) {
    UNROLL
    for (int bits = LANES / 2; bits > 0; bits /= 2) {
        const float value = __shfl_xor_sync(ALL_LANES, own.value, bits);
        own = better(own, {value, __shfl_xor_sync(ALL_LANES, own.index, bits)});
    }
    return own;
}

// Writes the k best of `count` candidates, which `candidate(i)` reads, in their order, and returns the value of the
// first. `best_of` is shared memory.
template <typename Source>
DEVICE float choose(float* values, int* indices, int count, int k, Source candidate, Candidate (*best_of)[WARPS]) {
    const int thread = static_cast<int>(threadIdx.x);
    // This thread's best candidate of those after `last`, the latest one that it gave away; at first of all.
    const auto next = [&](Candidate last) {
        Candidate best = {-infinity(), NOWHERE};
        for (int i = thread; i < count; i += THREADS) {
            const Candidate here = candidate(i);
            if (here.index >= 0 && before(last, here)) best = better(here, best);
        }
        return best;
    };
    Candidate own = next({infinity(), -1});
    float largest = -infinity();
    for (int i = 0; i < k; i++) {
        const int turn = i % 2; // A thread may be one result ahead of another.
        Candidate best = best_of_warp(own);
        if (lane_index() == 0) best_of[turn][warp_index()] = best;
        __syncthreads();
        best = best_of[turn][0];
        UNROLL
        for (int w = 1; w < WARPS; w++) best = better(best, best_of[turn][w]);
        if (i == 0) largest = best.value;
        if (thread == 0) {
            values[i] = best.value;
            indices[i] = best.index == NOWHERE ? -1 : best.index;
        }
        if (best.index != NOWHERE && best.index == own.index) own = next(own);
    }
    return largest;
}

DEVICE float number(float x) { return is_nan(x) ? -infinity() : x; }

KERNEL __launch_bounds__(THREADS)
topk_groups(float* values, int* indices, double* sums, const ELEMENT* scores, long long stride, int columns, int groups,
            int k) {
    const int each = (columns + groups - 1) / groups, group = static_cast<int>(blockIdx.x);
    const long long row = blockIdx.y, to = row * groups + group;
    const long long first = static_cast<long long>(group) * each; // May be after the last column.
    const int count = first >= columns ? 0 : columns - first < each ? static_cast<int>(columns - first) : each;
    const ELEMENT* const from = scores + row * stride + first;
    __shared__ Candidate best_of[2][WARPS];
    __shared__ double sums_of[WARPS];
    const auto candidate = [&](int i) {
        return Candidate{number(to_float(from[i])), static_cast<int>(first) + i};
    };
    const double largest = choose(values + to * k, indices + to * k, count, k, candidate, best_of);
    double sum = 0.0;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += THREADS) {
        const float score = to_float(from[i]);
        if (score != -infinity()) sum += exp(score - largest);
    }
    sum = over_block<Sum, WARPS>(sum, sums_of);
    if (threadIdx.x == 0) sums[to] = sum;
}
EXPORT(topk_groups)

KERNEL __launch_bounds__(THREADS)
topk_merge(float* values, int* indices, double* log_sums, const float* from_values, const int* from_indices,
           const double* from_sums, int groups, int k) {
    const long long row = blockIdx.y, from = row * groups * k;
    __shared__ Candidate best_of[2][WARPS];
    __shared__ double sums_of[WARPS];
    const auto candidate = [&](int i) { return Candidate{number(from_values[from + i]), from_indices[from + i]}; };
    const double largest = choose(values + row * k, indices + row * k, groups * k, k, candidate, best_of);
    double sum = 0.0;
    for (int group = static_cast<int>(threadIdx.x); group < groups; group += THREADS) {
        const double own = from_sums[row * groups + group];
        // A group whose scores are all -inf has none.
        if (own != 0.0) sum += own * exp(from_values[from + static_cast<long long>(group) * k] - largest);
    }
    sum = over_block<Sum, WARPS>(sum, sums_of);
    if (threadIdx.x == 0) log_sums[row] = sum == 0.0 ? 0.0 : largest + log(sum);
}
EXPORT(topk_merge)
