// Rotary position embeddings (Su et al. 2021, arXiv:2104.09864), and writing keys and values to their caches.
//
// In the first 2 * pairs features of each head, pairs (a, b) become (a * cos - b * sin, b * cos + a * sin); the other
// features stay. Pairs are features (2i, 2i + 1) if INTERLEAVED, else (i, i + pairs). cos and sin are
// [cos_batch, length, pairs]; cos_batch is 1 or batch. Token t of batch b of a tensor x with heads side by side is at
// (b * length + t) * x_row; caches are [batch, heads, capacity, size].
//
// rotary:        r = x rotated, both with heads side by side; r may be x.
// append:        cache[b][h][past + t] = x[b][t][h], rotated if ROTATE.
// rotary_append: q_out = q rotated; keys and values take k rotated and v as it is, as `append` does. All of it is one
//                launch; q_out may be q.
//
// Macros: ELEMENT float, half_t or bf16_t; INTERLEAVED 0/1; ROTATE 0/1 (append; 1 by default).
// Launch: 256 threads; any grid for rotary and append, (any, 3) for rotary_append. ceil(batch * length * heads * size /
// (256 * 16 / sizeof(ELEMENT))) blocks (heads of q) give each thread one access at least.
#ifndef INTERLEAVED
#define INTERLEAVED 0
#endif
#ifndef ROTATE
#define ROTATE 1
#endif

// Where the heads of each token are.
template <typename Item> struct Heads {
    Item* start;
    long long batch, token, head; // Strides.
};

// Whether features can be accessed `width` at a time.
template <typename Item> DEVICE bool fits(const Heads<Item>& heads, int width) {
    return ((heads.batch | heads.token | heads.head) & (width - 1)) == 0 &&
           is_aligned(heads.start, width * static_cast<int>(sizeof(Item)));
}

struct Angles {
    const ELEMENT* cos;
    const ELEMENT* sin;
    int batch, pairs; // No pairs: nothing turns.
};

DEVICE ELEMENT rounded(float x) { return to<ELEMENT>(x); }

// Rotates `WIDTH` pairs of a head from pair `first` on.
template <int WIDTH>
DEVICE void rotate(ELEMENT* to, const ELEMENT* from, const ELEMENT* cos, const ELEMENT* sin, int first, int pairs) {
    const int low = INTERLEAVED ? 2 * first : first, high = INTERLEAVED ? low + WIDTH : first + pairs;
    const auto a = load<WIDTH>(from + low), b = load<WIDTH>(from + high);
    const auto c = load<WIDTH>(cos + first), s = load<WIDTH>(sin + first);
    float x[2 * WIDTH], y[2 * WIDTH];
    UNROLL
    for (int e = 0; e < WIDTH; e++) {
        x[e] = to_float(a.items[e]);
        x[WIDTH + e] = to_float(b.items[e]);
    }
    UNROLL
    for (int e = 0; e < WIDTH; e++) {
        const int i = INTERLEAVED ? 2 * e : e, k = INTERLEAVED ? 2 * e + 1 : WIDTH + e;
        const float cosine = to_float(c.items[e]), sine = to_float(s.items[e]);
        y[i] = x[i] * cosine - x[k] * sine;
        y[k] = x[k] * cosine + x[i] * sine;
    }
    Pack<ELEMENT, WIDTH> new_a, new_b;
    UNROLL
    for (int e = 0; e < WIDTH; e++) {
        new_a.items[e] = rounded(y[e]);
        new_b.items[e] = rounded(y[WIDTH + e]);
    }
    store(to + low, new_a);
    store(to + high, new_b);
}

// One thread's share of all heads: units of `WIDTH` pairs, and of `WIDTH` features that stay.
template <int WIDTH>
DEVICE void move_heads(Heads<ELEMENT> to, Heads<const ELEMENT> from, Angles angles, int batch, int length, int heads,
                       int size, long long thread, long long threads) {
    const int rotating = angles.pairs / WIDTH, units = rotating + (size - 2 * angles.pairs) / WIDTH;
    const long long all = static_cast<long long>(batch) * length * heads * units;
    for (long long i = thread; i < all; i += threads) {
        const Quotient in_head = divide_index(i, units);
        const Quotient in_token = divide_index(in_head.quotient, heads);
        const Quotient in_batch = divide_index(in_token.quotient, length);
        const long long b = in_batch.quotient, t = in_batch.remainder, head = in_token.remainder;
        const int unit = static_cast<int>(in_head.remainder);
        ELEMENT* const target = to.start + b * to.batch + t * to.token + head * to.head;
        const ELEMENT* const source = from.start + b * from.batch + t * from.token + head * from.head;
        if (unit < rotating) {
            const long long row = ((angles.batch == 1 ? 0 : b) * length + t) * angles.pairs;
            rotate<WIDTH>(target, source, angles.cos + row, angles.sin + row, unit * WIDTH, angles.pairs);
        } else {
            const int feature = 2 * angles.pairs + (unit - rotating) * WIDTH;
            store(target + feature, load<WIDTH>(source + feature));
        }
    }
}

DEVICE void move_heads(Heads<ELEMENT> to, Heads<const ELEMENT> from, Angles angles, int batch, int length, int heads,
                       int size, long long thread, long long threads) {
    constexpr int WIDTH = PER_ACCESS<ELEMENT>;
    const bool vectors = size % WIDTH == 0 && angles.pairs % WIDTH == 0 && fits(to, WIDTH) &&
                         fits(from, WIDTH) && is_aligned(angles.cos, 16) && is_aligned(angles.sin, 16);
    if (vectors) {
        move_heads<WIDTH>(to, from, angles, batch, length, heads, size, thread, threads);
    } else {
        move_heads<1>(to, from, angles, batch, length, heads, size, thread, threads);
    }
}

// Heads side by side in rows, and heads in a cache.
template <typename Item> DEVICE Heads<Item> in_rows(Item* start, int length, int size, long long row) {
    return {start, length * row, row, size};
}
DEVICE Heads<ELEMENT> in_cache(ELEMENT* cache, int heads, int size, int past, int capacity) {
    const long long head = static_cast<long long>(capacity) * size;
    return {cache + static_cast<long long>(past) * size, heads * head, size, head};
}

KERNEL __launch_bounds__(256)
rotary(ELEMENT* r, const ELEMENT* x, const ELEMENT* cos, const ELEMENT* sin, int batch, int length, int heads, int size,
       int pairs, long long x_row, long long r_row, int cos_batch) {
    move_heads(in_rows(r, length, size, r_row), in_rows(x, length, size, x_row), {cos, sin, cos_batch, pairs}, batch,
               length, heads, size, grid_thread(), grid_threads());
}
EXPORT(rotary)

KERNEL __launch_bounds__(256)
append(ELEMENT* cache, const ELEMENT* x, const ELEMENT* cos, const ELEMENT* sin, int batch, int length, int heads,
       int size, int pairs, long long x_row, int cos_batch, int past, int capacity) {
    const Angles angles = {ROTATE ? cos : nullptr, ROTATE ? sin : nullptr, cos_batch, ROTATE ? pairs : 0};
    move_heads(in_cache(cache, heads, size, past, capacity), in_rows(x, length, size, x_row), angles, batch, length,
               heads, size, grid_thread(), grid_threads());
}
EXPORT(append)

KERNEL __launch_bounds__(256)
rotary_append(ELEMENT* q_out, ELEMENT* keys, ELEMENT* values, const ELEMENT* q, const ELEMENT* k, const ELEMENT* v,
              const ELEMENT* cos, const ELEMENT* sin, int batch, int length, int heads, int kv_heads, int size,
              int value_size, int pairs, long long q_row, long long k_row, long long v_row, long long q_out_row,
              int cos_batch, int past, int capacity) {
    const long long thread = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    const long long threads = static_cast<long long>(gridDim.x) * blockDim.x;
    const Angles angles = {cos, sin, cos_batch, pairs};
    if (blockIdx.y == 0) {
        move_heads(in_rows(q_out, length, size, q_out_row), in_rows(q, length, size, q_row), angles, batch, length,
                   heads, size, thread, threads);
    } else if (blockIdx.y == 1) {
        move_heads(in_cache(keys, kv_heads, size, past, capacity), in_rows(k, length, size, k_row), angles, batch,
                   length, kv_heads, size, thread, threads);
    } else {
        move_heads(in_cache(values, kv_heads, value_size, past, capacity), in_rows(v, length, value_size, v_row),
                   {nullptr, nullptr, 1, 0}, batch, length, kv_heads, value_size, thread, threads);
    }
}
EXPORT(rotary_append)
