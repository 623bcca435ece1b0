// Attention whose scores are in memory: what comes between the product of queries and keys and the softmax's product
// with values.
//
// scores is [batch, heads, p.queries, keys], contiguous: the scaled products of the queries first .. first + p.queries
// (a chunk of all queries; bias, causality and window go by a query's index among all of them).
//
// attention_scores: in place, softcap, bias, and the lowest finite number for keys that are left out.
//
// scores_softmax: r = the weights of the keys: softcap, bias and softmax in float32 over the keys that take part. The
// others have weight 0, but where none takes part (or all scores are -inf), all have 1 / keys. r may be scores where
// their types are the same. The row is read twice (Milakov and Gimelshein 2018, arXiv:1805.02867).
//
// Macros: S the type of scores, ELEMENT that of r (scores_softmax), BIAS_T that of bias: float, half_t or bf16_t;
// CAUSAL, WINDOW, MASK, BIAS, SOFTCAP 0/1.
//
// Launch: attention_scores 256 threads, any grid (ceil(scores / 1024) blocks); scores_softmax 128 threads,
// batch * heads * p.queries blocks (at most 2^31 - 1).
#ifndef ELEMENT
#define ELEMENT S
#endif
#ifndef BIAS_T
#define BIAS_T float
#endif

// The place of a row of scores.
struct Place {
    int batch, head, query; // The query among all.
};
DEVICE Place place_of(long long row, const Attention& p, int first) {
    const Quotient in_head = divide_index(row, p.queries);
    const Quotient in_batch = divide_index(in_head.quotient, p.heads);
    return {static_cast<int>(in_batch.quotient), static_cast<int>(in_batch.remainder),
            first + static_cast<int>(in_head.remainder)};
}

DEVICE bool takes_part(const bool* mask, const Attention& p, Place place, int key) {
    return attends<CAUSAL, WINDOW>(p, place.query, key) && (!MASK || mask[place.batch * p.mask_batch + key]);
}

DEVICE float finished(float score, const BIAS_T* bias, const Attention& p, Place place, int key) {
    if (SOFTCAP) score = p.softcap * tanh(score / p.softcap);
    if (BIAS) {
        const long long row = place.batch * p.bias[0] + place.head * p.bias[1] + place.query * p.bias[2];
        score += to_float(bias[row + key * p.bias[3]]);
    }
    return score;
}

KERNEL __launch_bounds__(256)
attention_scores(S* scores, const bool* mask, const BIAS_T* bias, Attention p, int first) {
    S lowest = to<S>(-LARGEST);
    if constexpr (is_same<S, half_t>) lowest = to<S>(-65504.0f);
    if constexpr (is_same<S, bf16_t>) lowest = to<S>(from_bits(0xff7f0000));
    const long long all = static_cast<long long>(p.batch) * p.heads * p.queries * p.keys;
    for (long long i = grid_thread(); i < all; i += grid_threads()) {
        const Quotient at = divide_index(i, p.keys);
        const int key = static_cast<int>(at.remainder);
        const Place place = place_of(at.quotient, p, first);
        if (!takes_part(mask, p, place, key)) {
            scores[i] = lowest;
        } else if (SOFTCAP || BIAS) {
            scores[i] = to<S>(finished(to_float(scores[i]), bias, p, place, key));
        }
    }
}
EXPORT(attention_scores)

KERNEL __launch_bounds__(128)
scores_softmax(ELEMENT* r, const S* scores, const bool* mask, const BIAS_T* bias, Attention p, int first) {
    constexpr int THREADS = 128, WARPS = THREADS / LANES;
    __shared__ float scratch[2][WARPS];
    const long long rows = static_cast<long long>(p.batch) * p.heads * p.queries;
    for (long long row = grid_block(); row < rows; row += grid_blocks()) {
        const Place place = place_of(row, p, first);
        const S* const from = scores + row * p.keys;
        ELEMENT* const weights = r + row * p.keys;
        const KeyRange range = key_range<CAUSAL, WINDOW>(p, place.query, place.query);
        Online online = {-infinity(), 0.0f};
        for (int key = range.begin + static_cast<int>(threadIdx.x); key < range.end; key += THREADS) {
            if (takes_part(mask, p, place, key)) online.take(finished(to_float(from[key]), bias, p, place, key));
        }
        const float largest = over_block<Maximum, WARPS>(online.largest, scratch[0]);
        const float sum = over_block<Sum, WARPS>(online.sum_for(largest), scratch[1]);
        const bool none = sum == 0.0f;
        const float factor = none ? 1.0f / static_cast<float>(p.keys) : 1.0f / sum;
        for (int key = static_cast<int>(threadIdx.x); key < p.keys; key += THREADS) {
            float weight = none ? factor : 0.0f;
            if (!none && takes_part(mask, p, place, key)) {
                weight = exp(finished(to_float(from[key]), bias, p, place, key) - largest) * factor;
            }
            weights[key] = to<ELEMENT>(weight);
        }
        __syncthreads();
    }
}
EXPORT(scores_softmax)
