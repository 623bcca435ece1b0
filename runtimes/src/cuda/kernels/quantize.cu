// Layers of codes: the codes of their inputs, and what sums of products of codes stand for.
//
// quantize: r[i] = x[i] / scale, rounded to nearest even and limited to -128..127; the code of NaN is 0. r and x have n
// elements, contiguous. Launch: 256 threads, any grid; ceil(n / (256 * 16)) blocks give each thread 16 codes.
//
// dequantize_rows: r = ACTIVATION(sums * scales + bias) + residual, in float32, rounded once. sums, r and residual are
// [rows, columns], contiguous; scales and bias have an element for each column. Launch: 128 threads, any grid of two
// dimensions; x is for the columns, and ceil(columns / (128 * 4)) blocks give each thread 4 columns, of which it keeps
// scales and bias for all of its rows; y is for the rows.
//
// Macros: ELEMENT the floats. A module with the macro ACTIVATION has dequantize_rows, another one quantize: ACTIVATION is
// an expression of x; BIAS and RESIDUAL 0/1. A pointer that does not exist is null.
#ifndef ACTIVATION
// Scales are numbers of each layer: the division is exact, as that of the codes of weights is.
DEVICE signed char code_of(float x, float scale) { return to<signed char>(rintf(x / scale)); }

KERNEL __launch_bounds__(256) quantize(signed char* r, const ELEMENT* x, long long n, float scale) {
    constexpr int COUNT = 16, PART = PER_ACCESS<ELEMENT>;
    long long done = 0;
    if (is_aligned(r, 16) && is_aligned(x, 16)) {
        done = n / COUNT * COUNT;
        for (long long i = grid_thread() * COUNT; i < done; i += grid_threads() * COUNT) {
            Pack<signed char, COUNT> codes;
            UNROLL
            for (int first = 0; first < COUNT; first += PART) {
                const Pack<ELEMENT, PART> part = load<PART>(x + i + first);
                UNROLL
                for (int e = 0; e < PART; e++) codes.items[first + e] = code_of(to_float(part.items[e]), scale);
            }
            store(r + i, codes);
        }
    }
    for (long long i = done + grid_thread(); i < n; i += grid_threads()) r[i] = code_of(to_float(x[i]), scale);
}
EXPORT(quantize)
#else
// `COUNT` columns of all rows of this block, from a column on.
template <int COUNT>
DEVICE void dequantize_columns(ELEMENT* r, const int* sums, const float* scales, const ELEMENT* bias,
                               const ELEMENT* residual, long long rows, int columns, int column) {
    const Pack<float, COUNT> scale = load<COUNT>(scales + column);
    Pack<ELEMENT, COUNT> added{};
    if constexpr (BIAS) added = load<COUNT>(bias + column);
    for (long long row = blockIdx.y; row < rows; row += gridDim.y) {
        const long long at = row * columns + column;
        const Pack<int, COUNT> sum = load<COUNT>(sums + at);
        Pack<ELEMENT, COUNT> other{};
        if constexpr (RESIDUAL) other = load<COUNT>(residual + at);
        Pack<ELEMENT, COUNT> result;
        UNROLL
        for (int e = 0; e < COUNT; e++) {
            float x = static_cast<float>(sum.items[e]) * scale.items[e];
            if constexpr (BIAS) x += to_float(added.items[e]);
            x = ACTIVATION;
            if constexpr (RESIDUAL) x += to_float(other.items[e]);
            result.items[e] = to<ELEMENT>(x);
        }
        store(r + at, result);
    }
}

KERNEL __launch_bounds__(128) dequantize_rows(ELEMENT* r, const int* sums, const float* scales,
                                              [[maybe_unused]] const ELEMENT* bias,
                                              [[maybe_unused]] const ELEMENT* residual, long long rows, int columns) {
    constexpr int COUNT = 4, BYTES = COUNT * static_cast<int>(sizeof(ELEMENT));
    const int thread = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const int threads = static_cast<int>(gridDim.x * blockDim.x);
    const bool vectors = columns % COUNT == 0 && is_aligned(sums, 16) && is_aligned(scales, 16) &&
                         is_aligned(r, BYTES) && (!BIAS || is_aligned(bias, BYTES)) &&
                         (!RESIDUAL || is_aligned(residual, BYTES));
    if (vectors) {
        for (int column = thread * COUNT; column < columns; column += threads * COUNT) {
            dequantize_columns<COUNT>(r, sums, scales, bias, residual, rows, columns, column);
        }
    } else {
        for (int column = thread; column < columns; column += threads) {
            dequantize_columns<1>(r, sums, scales, bias, residual, rows, columns, column);
        }
    }
}
EXPORT(dequantize_rows)
#endif
