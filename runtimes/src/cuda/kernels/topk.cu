// The k largest scores of each row and their indices, in two steps, as LightSeq does for beams (Wang et al. 2021,
// arXiv:2010.13887): the k best of each group of columns, and then the k best of these.
//
// topk_groups: scores [rows, columns] give values and indices [rows, groups, k]. Group g has the columns from
// g * ceil(columns / groups) on; where it has fewer than k, the rest are -inf with index -1.
//
// topk_merge: values and indices [rows, candidates] give [rows, k]. Candidates with index -1 do not count; where there
// are fewer than k others, the rest are -inf with index -1.
//
// Results are sorted by descending score, and by ascending index where scores are the same. NaN counts as -inf. A block
// finds one result after another: each thread knows the best of its own candidates, and only the thread that had the
// best of all looks for its next one.
//
// Macro: ELEMENT the type of scores: float, half_t or bf16_t (topk_merge does not use it).
//
// Launch: 128 threads, grid (groups, rows) and (1, rows), up to 65535 rows.
constexpr int THREADS = 128, WARPS = THREADS / LANES;
constexpr int NOWHERE = 0x7fffffff; // An index behind all others: no candidate.

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

// Writes the k best of `count` candidates, which `candidate(i)` reads, in their order. `best_of` is shared memory.
template <typename Source>
DEVICE void choose(float* values, int* indices, int count, int k, Source candidate, Candidate (*best_of)[WARPS]) {
    const int thread = static_cast<int>(threadIdx.x);
    // This thread's best candidate of those behind `last`, the latest one that it gave away; at first of all.
    const auto next = [&](Candidate last) {
        Candidate best = {-infinity(), NOWHERE};
        for (int i = thread; i < count; i += THREADS) {
            const Candidate here = candidate(i);
            if (here.index >= 0 && before(last, here)) best = better(here, best);
        }
        return best;
    };
    Candidate own = next({infinity(), -1});
    for (int i = 0; i < k; i++) {
        const int turn = i % 2; // A thread may be one result ahead of another.
        Candidate best = best_of_warp(own);
        if (lane_index() == 0) best_of[turn][warp_index()] = best;
        __syncthreads();
        best = best_of[turn][0];
        UNROLL
        for (int w = 1; w < WARPS; w++) best = better(best, best_of[turn][w]);
        if (thread == 0) {
            values[i] = best.value;
            indices[i] = best.index == NOWHERE ? -1 : best.index;
        }
        if (best.index != NOWHERE && best.index == own.index) own = next(own);
    }
}

DEVICE float number(float x) { return is_nan(x) ? -infinity() : x; }

KERNEL __launch_bounds__(THREADS)
topk_groups(float* values, int* indices, const ELEMENT* scores, int columns, int groups, int k) {
    const int each = (columns + groups - 1) / groups, group = static_cast<int>(blockIdx.x);
    const long long row = blockIdx.y, to = (row * groups + group) * k;
    const long long first = static_cast<long long>(group) * each; // May be behind the last column.
    const int count = first >= columns ? 0 : columns - first < each ? static_cast<int>(columns - first) : each;
    const ELEMENT* const from = scores + row * columns + first;
    __shared__ Candidate best_of[2][WARPS];
    const auto candidate = [&](int i) {
        return Candidate{number(to_float(from[i])), static_cast<int>(first) + i};
    };
    choose(values + to, indices + to, count, k, candidate, best_of);
}
EXPORT(topk_groups)

KERNEL __launch_bounds__(THREADS)
topk_merge(float* values, int* indices, const float* from_values, const int* from_indices, int candidates, int k) {
    const long long row = blockIdx.y, from = row * candidates;
    __shared__ Candidate best_of[2][WARPS];
    const auto candidate = [&](int i) { return Candidate{number(from_values[from + i]), from_indices[from + i]}; };
    choose(values + row * k, indices + row * k, candidates, k, candidate, best_of);
}
EXPORT(topk_merge)
