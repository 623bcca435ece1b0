// Layer norm (Ba et al. 2016, arXiv:1607.06450) and RMS norm (Zhang and Sennrich 2019, arXiv:1910.07467) of rows,
// together with the additions before them, and with the look-up and addition of embeddings.
//
// row_norm: s = x + bias + residual, rounded once; r = norm(s) * weight + norm_bias. x, residual, sum and r are
// [rows, columns], the rest [columns].
//
// embedding_norm: s = the sum of t[k][ids k of this row] over up to 3 tables [n, columns], rounded after each addition;
// rows with an id out of range are NaN. A module with the macro TABLES has this kernel in place of row_norm.
//
// Sums are in float32. The variance is that of differences to the mean, which a second reduction adds up together with
// what rounding the mean left over (Chan, Golub and LeVeque 1983), so that rows with a large mean are exact. Both
// results may be in place of x or residual.
//
// Macros: ELEMENT float, half_t or bf16_t; RESIDUAL, BIAS 0/1: whether there are such operands; RMS 0/1: which norm;
// NORM_BIAS 0/1; SUM 0/1: s is a result too; VALUES in {1, 2, 4, 8, 16, 24, 32}: how many elements of a row each
// thread keeps in registers; or 0: rows of any length, read again from memory; WARP 1: a warp a row of up to 32 * VALUES
// columns; 0: a block of 256 threads a row of up to 256 * VALUES columns. For embedding_norm TABLES 1 to 3; I the type
// of ids, int or long long; in place of RMS, NORM 0: none, r is the sum; 1: layer norm; 2: RMS norm.
//
// Launch: WARP 1: 32 * R threads, up to 128, and ceil(rows / R) blocks; WARP 0: 256 threads, rows blocks (at most 2^31 - 1
// either way).
#ifndef NORM
#define NORM (RMS ? 2 : 1)
#endif
#ifndef RESIDUAL
#define RESIDUAL 0
#endif
#ifndef BIAS
#define BIAS 0
#endif

constexpr int THREADS = WARP ? LANES : 256;
constexpr int ROW_WARPS = THREADS / LANES;
// How many values one step takes, and whether that is the row.
constexpr int STEP = VALUES > 0 ? VALUES : PER_ACCESS<ELEMENT>;
constexpr bool IN_REGISTERS = VALUES > 0;
// How many blocks a multiprocessor is to hold: as many as leave each thread the registers for its values.
constexpr int BLOCKS = WARP && VALUES == 24 ? 3 : (WARP ? 8 : 4) / (VALUES > 16 ? 4 : VALUES > 4 || VALUES == 0 ? 2 : 1);
using Part = Row<STEP, THREADS, ELEMENT>;

// The place of this thread in its row.
DEVICE int place() { return static_cast<int>(threadIdx.x) % THREADS; }

// Sums over the threads of a row; the second one is 0 unless both are wanted.
struct Sums {
    float apart, squares;
};
template <bool BOTH> DEVICE Sums total(Sums own, float (*scratch)[2]) {
    own = {over_warp<Sum>(own.apart), BOTH ? over_warp<Sum>(own.squares) : 0.0f};
    if (WARP) return own;
    if (lane_index() == 0) {
        scratch[warp_index()][0] = own.apart;
        scratch[warp_index()][1] = own.squares;
    }
    __syncthreads();
    Sums all = {0.0f, 0.0f};
    UNROLL
    for (int i = 0; i < ROW_WARPS; i++) {
        all.apart += scratch[i][0];
        all.squares += scratch[i][1];
    }
    return all;
}

struct Affine {
    const ELEMENT* weight;
    const ELEMENT* bias;
    float eps;
};

// Normalises one row. `source(values, first)` reads the columns from `first` on, columns after the last one as 0.
template <typename Source>
DEVICE void normalise(ELEMENT* r, ELEMENT* sum, Source source, Affine affine, int columns, bool vectors,
                      float (*scratch)[ROW_WARPS][2]) {
    constexpr bool EARLY = IN_REGISTERS && (WARP || VALUES <= 8); // Weights are under way while the sums are computed.
    const int thread = place(), end = IN_REGISTERS ? 1 : columns;
    float values[STEP], weight[STEP], bias[STEP];
    const auto read_affine = [&](int first) {
        if (NORM != 0) Part::read(weight, affine.weight + first, thread, columns - first, vectors, 0.0f);
        if (NORM_BIAS) Part::read(bias, affine.bias + first, thread, columns - first, vectors, 0.0f);
    };
    if (IN_REGISTERS) source(values, 0);
    if (EARLY) read_affine(0);

    const float count = static_cast<float>(columns);
    float mean = 0.0f, rest = 0.0f, factor = 1.0f; // `mean + rest` is the mean.
    if (NORM == 1) {
        Sums own = {0.0f, 0.0f};
        for (int first = 0; first < end; first += STEP * THREADS) {
            if (!IN_REGISTERS) source(values, first);
            UNROLL
            for (int k = 0; k < STEP; k++) own.apart += values[k];
        }
        mean = total<false>(own, scratch[0]).apart / count;
    }
    if (NORM != 0) {
        Sums own = {0.0f, 0.0f};
        for (int first = 0; first < end; first += STEP * THREADS) {
            if (!IN_REGISTERS) source(values, first);
            UNROLL
            for (int k = 0; k < STEP; k++) {
                const float apart = Part::has(k, thread, columns - first, vectors) ? values[k] - mean : 0.0f;
                own.apart += apart;
                own.squares += apart * apart;
            }
        }
        own = total<true>(own, scratch[1]);
        if (NORM == 1) rest = own.apart / count;
        factor = rsqrtf(maximum(own.squares / count - rest * rest, 0.0f) + affine.eps);
    }
    for (int first = 0; first < end; first += STEP * THREADS) {
        if (!IN_REGISTERS) source(values, first);
        if (!EARLY) read_affine(first);
        if (SUM) Part::write(sum + first, values, thread, columns - first, vectors);
        if (NORM != 0) {
            UNROLL
            for (int k = 0; k < STEP; k++) {
                values[k] = (values[k] - mean - rest) * factor * weight[k];
                if (NORM_BIAS) values[k] += bias[k];
            }
        }
        Part::write(r + first, values, thread, columns - first, vectors);
    }
    if (!WARP) __syncthreads();
}

DEVICE int rows_at_once() { return WARP ? static_cast<int>(blockDim.x) / LANES : 1; }
DEVICE long long first_row() { return grid_block() * rows_at_once() + (WARP ? warp_index() : 0); }
DEVICE long long row_step() { return grid_blocks() * rows_at_once(); }

DEVICE float rounded(float x) { return to_float(to<ELEMENT>(x)); }

#ifndef TABLES
KERNEL __launch_bounds__(WARP ? 128 : 256, BLOCKS)
row_norm(ELEMENT* r, ELEMENT* sum, const ELEMENT* x, const ELEMENT* residual, const ELEMENT* bias,
         const ELEMENT* weight, const ELEMENT* norm_bias, long long rows, int columns, float eps) {
    __shared__ float scratch[2][ROW_WARPS][2];
    const bool vectors = Part::fits(r, columns) && Part::fits(x, columns) && Part::fits(weight, columns) &&
                         (!SUM || Part::fits(sum, columns)) && (!RESIDUAL || Part::fits(residual, columns)) &&
                         (!BIAS || Part::fits(bias, columns)) && (!NORM_BIAS || Part::fits(norm_bias, columns));
    const int thread = place();
    for (long long row = first_row(); row < rows; row += row_step()) {
        const long long start = row * columns;
        const auto source = [&](float(&values)[STEP], int first) {
            float more[STEP];
            Part::read(values, x + start + first, thread, columns - first, vectors, 0.0f);
            if (BIAS) {
                Part::read(more, bias + first, thread, columns - first, vectors, 0.0f);
                UNROLL
                for (int k = 0; k < STEP; k++) values[k] += more[k];
            }
            if (RESIDUAL) {
                Part::read(more, residual + start + first, thread, columns - first, vectors, 0.0f);
                UNROLL
                for (int k = 0; k < STEP; k++) values[k] += more[k];
            }
            if (BIAS || RESIDUAL) {
                UNROLL
                for (int k = 0; k < STEP; k++) values[k] = rounded(values[k]);
            }
        };
        normalise(r + start, SUM ? sum + start : sum, source, {weight, norm_bias, eps}, columns, vectors, scratch);
    }
}
EXPORT(row_norm)
#else
// The row of a table that a row of results takes; null where the id is out of range.
DEVICE const ELEMENT* table_row(const ELEMENT* table, const I* ids, long long offset, long long n, int columns) {
    const long long id = static_cast<long long>(ids[offset]);
    return id >= 0 && id < n ? table + id * columns : nullptr;
}

KERNEL __launch_bounds__(WARP ? 128 : 256, BLOCKS)
embedding_norm(ELEMENT* r, ELEMENT* sum, const ELEMENT* t0, const ELEMENT* t1, const ELEMENT* t2, const I* i0,
               const I* i1, const I* i2, const ELEMENT* weight, const ELEMENT* norm_bias, long long rows, int columns,
               float eps, Strided ids, long long n0, long long n1, long long n2) {
    __shared__ float scratch[2][ROW_WARPS][2];
    const bool vectors = Part::fits(r, columns) && (!SUM || Part::fits(sum, columns)) && Part::fits(t0, columns) &&
                         (TABLES < 2 || Part::fits(t1, columns)) && (TABLES < 3 || Part::fits(t2, columns)) &&
                         (NORM == 0 || Part::fits(weight, columns)) && (!NORM_BIAS || Part::fits(norm_bias, columns));
    const int thread = place();
    for (long long row = first_row(); row < rows; row += row_step()) {
        long long offsets[3] = {0, 0, 0}, rest = row;
        for (int axis = ids.rank - 1; axis >= 0; axis--) {
            const Quotient at = divide_index(rest, ids.sizes[axis]);
            rest = at.quotient;
            UNROLL
            for (int k = 0; k < TABLES; k++) offsets[k] += at.remainder * ids.strides[1 + k][axis];
        }
        const ELEMENT* const tables[3] = {
            table_row(t0, i0, offsets[0], n0, columns),
            TABLES > 1 ? table_row(t1, i1, offsets[1], n1, columns) : nullptr,
            TABLES > 2 ? table_row(t2, i2, offsets[2], n2, columns) : nullptr,
        };
        const auto source = [&](float(&values)[STEP], int first) {
            UNROLL
            for (int table = 0; table < TABLES; table++) {
                float more[STEP];
                if (tables[table] != nullptr) {
                    Part::read(more, tables[table] + first, thread, columns - first, vectors, 0.0f);
                } else {
                    UNROLL
                    for (int k = 0; k < STEP; k++) more[k] = not_a_number();
                }
                UNROLL
                for (int k = 0; k < STEP; k++) values[k] = table == 0 ? more[k] : rounded(values[k] + more[k]);
            }
        };
        const long long start = row * columns;
        normalise(r + start, SUM ? sum + start : sum, source, {weight, norm_bias, eps}, columns, vectors, scratch);
    }
}
EXPORT(embedding_norm)
#endif
