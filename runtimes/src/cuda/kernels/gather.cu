// Rows of a tensor by their indices: r[o][c][i] = x[o][indices[c]][i].
//
// x is [outer, axis, inner], indices [count], r [outer, count, inner], all contiguous. Negative indices count from the
// end. Rows of indices out of range become bytes of FILL.
//
// Macros: E the elements, an unsigned type of their size; I the indices, int or long long; FILL a byte, 0xFF by default
// (NaN of floats, -1 of integers).
// Launch: 128 threads, any grid; outer * count * ceil(inner * sizeof(E) / 16) / 128 blocks give each thread one access.
#ifndef FILL
#define FILL 0xFF
#endif

// Copies rows by accesses of one size; all rows are aligned to that, and `inner` is how many of them a row has.
template <typename Access>
DEVICE void copy_rows(Access* r, const Access* x, const I* indices, long long outer, long long axis, long long inner,
                      long long count) {
    const long long all = outer * count * inner;
    for (long long i = grid_thread(); i < all; i += grid_threads()) {
        const Quotient in_row = divide_index(i, inner);
        const Quotient row = divide_index(in_row.quotient, count);
        const long long index = static_cast<long long>(indices[row.remainder]);
        const long long from = index < 0 ? index + axis : index;
        Access item;
        memset(&item, FILL, sizeof item);
        if (from >= 0 && from < axis) item = x[(row.quotient * axis + from) * inner + in_row.remainder];
        r[i] = item;
    }
}

KERNEL __launch_bounds__(128)
gather(E* r, const E* x, const I* indices, long long outer, long long axis, long long inner, long long count) {
    const long long bytes = inner * static_cast<long long>(sizeof(E));
    const auto fits = [&](int size) { return bytes % size == 0 && is_aligned(r, size) && is_aligned(x, size); };
    if (fits(16)) {
        copy_rows(reinterpret_cast<Bytes16*>(r), reinterpret_cast<const Bytes16*>(x), indices, outer, axis, bytes / 16,
                  count);
    } else if (sizeof(E) < 4 && fits(4)) {
        copy_rows(reinterpret_cast<Bytes4*>(r), reinterpret_cast<const Bytes4*>(x), indices, outer, axis, bytes / 4,
                  count);
    } else {
        copy_rows(r, x, indices, outer, axis, inner, count);
    }
}
EXPORT(gather)
