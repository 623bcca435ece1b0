// Operators on elements, and copies: r = EXPR(x, y, z, i), where x, y and z are elements of a, b and c.
//
// Macros: R the type of the result; ARITY (0 to 3) how many operands there are, A, B and C their types, of {float,
// half_t, bf16_t, double, bool, signed char, short, int, long long, unsigned char, unsigned short, unsigned, unsigned
// long long}; EXPR an expression of x, y, z (half types as float, the rest as they are) and of i (long long), the
// element's index in the result's row-major order. A_SCALAR=1: `a` has one element (elementwise_flat). A_COLUMN=1: `a`
// has one element a row (elementwise_rows). B_... and C_... likewise. Operands that do not exist are null pointers.
//
// Launch: 256 threads, any grid. With E = max(4, 16 / size of the largest element type), ceil(elements / (256 * E))
// blocks give each thread one access of up to 16 bytes per tensor. The result may be an operand that has its own
// layout.
#ifndef A
#define A char
#endif
#ifndef B
#define B char
#endif
#ifndef C
#define C char
#endif
#ifndef A_SCALAR
#define A_SCALAR 0
#endif
#ifndef B_SCALAR
#define B_SCALAR 0
#endif
#ifndef C_SCALAR
#define C_SCALAR 0
#endif
#ifndef A_COLUMN
#define A_COLUMN 0
#endif
#ifndef B_COLUMN
#define B_COLUMN 0
#endif
#ifndef C_COLUMN
#define C_COLUMN 0
#endif

DEVICE constexpr int larger(int x, int y) { return x > y ? x : y; }

// The size of the largest elements that are accessed side by side, and how many of them a thread takes at once.
template <bool A_SINGLE, bool B_SINGLE, bool C_SINGLE> DEVICE constexpr int vector_elements() {
    int size = sizeof(R);
    if (ARITY > 0 && !A_SINGLE) size = larger(size, sizeof(A));
    if (ARITY > 1 && !B_SINGLE) size = larger(size, sizeof(B));
    if (ARITY > 2 && !C_SINGLE) size = larger(size, sizeof(C));
    return 16 / size;
}

template <typename X, typename Y, typename Z>
DEVICE R evaluate([[maybe_unused]] X x, [[maybe_unused]] Y y, [[maybe_unused]] Z z, [[maybe_unused]] long long i) {
    return to<R>(EXPR);
}

// The elements that an operand gives to `COUNT` results from `from` on: all the same one where it has just one.
template <int COUNT, bool SINGLE, typename Item> DEVICE Pack<Item, COUNT> fetch(const Item* from) {
    if constexpr (SINGLE) {
        const Item item = *from;
        Pack<Item, COUNT> pack;
        UNROLL
        for (int e = 0; e < COUNT; e++) pack.items[e] = item;
        return pack;
    } else {
        return load<COUNT>(from);
    }
}

// `COUNT` results at r, the first of which has index i.
template <int COUNT, bool A_SINGLE, bool B_SINGLE, bool C_SINGLE>
DEVICE void compute([[maybe_unused]] R* r, [[maybe_unused]] const A* a, [[maybe_unused]] const B* b,
                    [[maybe_unused]] const C* c, long long i) {
    Pack<A, COUNT> x{};
    Pack<B, COUNT> y{};
    Pack<C, COUNT> z{};
    if constexpr (ARITY > 0) x = fetch<COUNT, A_SINGLE>(a);
    if constexpr (ARITY > 1) y = fetch<COUNT, B_SINGLE>(b);
    if constexpr (ARITY > 2) z = fetch<COUNT, C_SINGLE>(c);
    Pack<R, COUNT> result;
    UNROLL
    for (int e = 0; e < COUNT; e++) {
        result.items[e] = evaluate(operand(x.items[e]), operand(y.items[e]), operand(z.items[e]), i + e);
    }
    store(r, result);
}

// Whether accesses of `COUNT` elements are aligned at the starts of all tensors.
template <int COUNT, bool A_SINGLE, bool B_SINGLE, bool C_SINGLE>
DEVICE bool starts_aligned(const R* r, const A* a, const B* b, const C* c) {
    return is_aligned(r, COUNT * sizeof(R)) && (ARITY < 1 || A_SINGLE || is_aligned(a, COUNT * sizeof(A))) &&
           (ARITY < 2 || B_SINGLE || is_aligned(b, COUNT * sizeof(B))) &&
           (ARITY < 3 || C_SINGLE || is_aligned(c, COUNT * sizeof(C)));
}

// All operands are contiguous as the result is, or of one element.
KERNEL __launch_bounds__(256) elementwise_flat(R* r, const A* a, const B* b, const C* c, long long n) {
    constexpr int COUNT = vector_elements<A_SCALAR, B_SCALAR, C_SCALAR>();
    long long done = 0;
    if (starts_aligned<COUNT, A_SCALAR, B_SCALAR, C_SCALAR>(r, a, b, c)) {
        done = n / COUNT * COUNT;
        for (long long i = grid_thread() * COUNT; i < done; i += grid_threads() * COUNT) {
            compute<COUNT, A_SCALAR, B_SCALAR, C_SCALAR>(r + i, A_SCALAR ? a : a + i, B_SCALAR ? b : b + i,
                                                         C_SCALAR ? c : c + i, i);
        }
    }
    for (long long i = done + grid_thread(); i < n; i += grid_threads()) {
        compute<1, A_SCALAR, B_SCALAR, C_SCALAR>(r + i, A_SCALAR ? a : a + i, B_SCALAR ? b : b + i,
                                                 C_SCALAR ? c : c + i, i);
    }
}
EXPORT(elementwise_flat)

template <int COUNT>
DEVICE void compute_rows(R* r, const A* a, const B* b, const C* c, long long rows, int columns, long long r_stride,
                         long long a_stride, long long b_stride, long long c_stride) {
    const long long in_row = columns / COUNT, all = rows * in_row;
    for (long long i = grid_thread(); i < all; i += grid_threads()) {
        const Quotient at = divide_index(i, in_row);
        const long long row = at.quotient, column = at.remainder * COUNT;
        compute<COUNT, A_COLUMN, B_COLUMN, C_COLUMN>(
            r + row * r_stride + column, a + row * a_stride + (A_COLUMN ? 0 : column),
            b + row * b_stride + (B_COLUMN ? 0 : column), c + row * c_stride + (C_COLUMN ? 0 : column),
            row * columns + column);
    }
}

// Operand element (row, column) is at row * stride + column, or at row * stride where it is a column; a stride of 0 is
// a row that all rows share.
KERNEL __launch_bounds__(256)
elementwise_rows(R* r, const A* a, const B* b, const C* c, long long rows, int columns, long long r_stride,
                 long long a_stride, long long b_stride, long long c_stride) {
    constexpr int COUNT = vector_elements<A_COLUMN, B_COLUMN, C_COLUMN>();
    const long long strides = columns | r_stride | (A_COLUMN ? 0 : a_stride) | (B_COLUMN ? 0 : b_stride) |
                              (C_COLUMN ? 0 : c_stride);
    if (strides % COUNT == 0 && starts_aligned<COUNT, A_COLUMN, B_COLUMN, C_COLUMN>(r, a, b, c)) {
        compute_rows<COUNT>(r, a, b, c, rows, columns, r_stride, a_stride, b_stride, c_stride);
    } else {
        compute_rows<1>(r, a, b, c, rows, columns, r_stride, a_stride, b_stride, c_stride);
    }
}
EXPORT(elementwise_rows)

// Elements `COUNT` at a time along the innermost axis.
template <int COUNT, bool A_SINGLE, bool B_SINGLE, bool C_SINGLE>
DEVICE void compute_strided(R* r, const A* a, const B* b, const C* c, long long n, const Strided& s) {
    const int last = s.rank - 1;
    for (long long i = grid_thread() * COUNT; i < n; i += grid_threads() * COUNT) {
        long long offsets[4] = {0, 0, 0, 0}, rest = i;
        for (int axis = last; axis >= 0; axis--) {
            const Quotient at = divide_index(rest, s.sizes[axis]);
            rest = at.quotient;
            UNROLL
            for (int k = 0; k <= ARITY; k++) offsets[k] += at.remainder * s.strides[k][axis];
        }
        compute<COUNT, A_SINGLE, B_SINGLE, C_SINGLE>(r + offsets[0], a + offsets[1], b + offsets[2], c + offsets[3], i);
    }
}

// Any strides. Where the innermost axis is contiguous in all tensors and everything is aligned, elements go in vectors.
KERNEL __launch_bounds__(256)
elementwise_strided(R* r, const A* a, const B* b, const C* c, long long n, Strided s) {
    constexpr int COUNT = vector_elements<false, false, false>();
    bool vectors = COUNT > 1 && s.rank > 0 && starts_aligned<COUNT, false, false, false>(r, a, b, c) &&
                   s.sizes[s.rank - 1] % COUNT == 0;
    for (int k = 0; vectors && k <= ARITY; k++) {
        vectors = s.strides[k][s.rank - 1] == 1;
        for (int axis = 0; axis < s.rank - 1; axis++) vectors = vectors && s.strides[k][axis] % COUNT == 0;
    }
    if (vectors) {
        compute_strided<COUNT, false, false, false>(r, a, b, c, n, s);
    } else {
        compute_strided<1, false, false, false>(r, a, b, c, n, s);
    }
}
EXPORT(elementwise_strided)
