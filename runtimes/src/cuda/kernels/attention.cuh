// What the kernels of attention share: its description, which keys a query attends to, and the instructions of tensor
// cores and asynchronous copies, which the emulator has by the layouts that the PTX ISA documents.

// Attention of [batch, queries, heads, size] to keys and values of `kv_heads` heads. Rust has the same structure.
struct Attention {
    int batch, heads, kv_heads, queries, keys, size, value_size;
    int offset; // The position of query 0 among the keys: with causality, key j takes part iff j <= offset + i.
    int window; // Key j takes part iff j > offset + i - window and, without causality, j < offset + i + window.
    int splits; // Parts of the keys (decode.cu).
    float scale, softcap;
    long long q_batch, q_row, q_head; // Strides in elements.
    long long k_batch, k_row, k_head;
    long long v_batch, v_row, v_head;
    long long o_batch, o_row, o_head;
    long long bias[4]; // Over [batch, heads, queries, keys]; 0 broadcasts.
    long long mask_batch;
};

// The keys that any of the queries `first` .. `last` may attend to, masks aside: begin <= key < end.
struct KeyRange {
    int begin, end;
};
template <bool CAUSAL_KEYS, bool WINDOW_OF_KEYS> DEVICE KeyRange key_range(const Attention& p, int first, int last) {
    KeyRange range = {0, p.keys};
    if (CAUSAL_KEYS && p.offset + last + 1 < range.end) range.end = p.offset + last + 1;
    if (WINDOW_OF_KEYS && !CAUSAL_KEYS && p.offset + last + p.window < range.end) range.end = p.offset + last + p.window;
    if (WINDOW_OF_KEYS && p.offset + first - p.window + 1 > 0) range.begin = p.offset + first - p.window + 1;
    if (range.end < range.begin) range.end = range.begin;
    return range;
}

// Whether a query attends to a key, masks aside.
template <bool CAUSAL_KEYS, bool WINDOW_OF_KEYS> DEVICE bool attends(const Attention& p, int query, int key) {
    return (!CAUSAL_KEYS || key <= p.offset + query) && (!WINDOW_OF_KEYS || key > p.offset + query - p.window) &&
           (!WINDOW_OF_KEYS || CAUSAL_KEYS || key < p.offset + query + p.window);
}

// What one block attends with: the operands of its batch and head, and how many queries and keys these have.
template <typename Item> struct Operands {
    const Item* q;
    const Item* k;
    const Item* v;
    Item* out;
    int queries, keys;
};
// Packed sequences, those of a ragged batch, lie one after another: `starts` has where each of them starts, and the
// end.
template <bool PACKED, typename Item>
DEVICE Operands<Item> operands_of(Item* out, const Item* q, const Item* k, const Item* v, const Attention& p,
                                  const int* starts, int batch, int head) {
    const int kv_head = head / (p.heads / p.kv_heads);
    Operands<Item> own = {q + head * p.q_head, k + kv_head * p.k_head, v + kv_head * p.v_head, out + head * p.o_head,
                          p.queries, p.keys};
    if (PACKED) {
        const int start = starts[batch];
        own.queries = own.keys = starts[batch + 1] - start;
        own.q += start * p.q_row;
        own.k += start * p.k_row;
        own.v += start * p.v_row;
        own.out += start * p.o_row;
    } else {
        own.q += batch * p.q_batch;
        own.k += batch * p.k_batch;
        own.v += batch * p.v_batch;
        own.out += batch * p.o_batch;
    }
    return own;
}

// Which of 32 keys from `first` on take part, one a bit: those of the range that the mask, if there is one, has.
template <bool MASKED> DEVICE unsigned key_bits(const bool* mask, int first, KeyRange range) {
    if (MASKED) {
        const int key = first + lane_index();
        return __ballot_sync(ALL_LANES, key >= range.begin && key < range.end && mask[key]);
    }
    const int from = range.begin > first ? range.begin - first : 0, to = range.end - first;
    if (from >= LANES || to <= from) return 0;
    return (to >= LANES ? ~0u : (1u << to) - 1) & (~0u << from);
}

constexpr float LOG2_E = 1.44269504088896341f;

#ifdef PLANISH_HOST
DEVICE float exp2_fast(float x) { return exp2f(x); }
DEVICE float tanh_fast(float x) { return tanhf(x); }
#else
// 2^x, within 2 units of the last place; results below 2^-126 become 0.
DEVICE float exp2_fast(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}
// tanh(x) within 2e-7, by two instructions of the special function unit.
DEVICE float tanh_fast(float x) { return 1.0f - __fdividef(2.0f, 1.0f + exp2_fast(2.0f * LOG2_E * x)); }
#endif

// How much what was summed so far for a row counts once the row's largest score is a new one. Scores are exponents of
// 2; -inf stands for a row without any key so far, and `base` is what is subtracted from scores.
struct Rescale {
    float base, factor;
};
DEVICE Rescale rescale(float old_largest, float largest) {
    const float base = largest == -infinity() ? 0.0f : largest;
    return {base, exp2_fast(old_largest - base)};
}

// Two elements as one register, the first one in the lower half.
template <typename Item> DEVICE unsigned pair_of(float low, float high) {
#ifdef PLANISH_HOST
    return to<Item>(low).bits | static_cast<unsigned>(to<Item>(high).bits) << 16;
#else
    unsigned both;
    if constexpr (is_same<Item, half_t>) {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    } else {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    }
    return both;
#endif
}

#ifdef PLANISH_HOST
namespace emulator {

struct Matrices {
    const unsigned char* row; // Lane 8 * m + i hands in row i of matrix m.
    unsigned* to;
};

// The element of matrix m that a lane gets as number e (0 or 1) of its register m.
template <bool TRANSPOSED> UNWATCHED inline void deal(void** lanes) {
    for (int lane = 0; lane < LANES; lane++) {
        for (int m = 0; m < 4; m++) {
            unsigned short both[2];
            for (int e = 0; e < 2; e++) {
                const int row = TRANSPOSED ? lane % 4 * 2 + e : lane / 4;
                const int column = TRANSPOSED ? lane / 4 : lane % 4 * 2 + e;
                const unsigned char* from = static_cast<Matrices*>(lanes[8 * m + row])->row + 2 * column;
                reads_for(lane, from, 2);
                memcpy(&both[e], from, 2);
            }
            static_cast<Matrices*>(lanes[lane])->to[m] = both[0] | static_cast<unsigned>(both[1]) << 16;
        }
    }
}

struct Product {
    float* c;
    const unsigned* a;
    unsigned b[2];
};

template <typename Item> inline float half_of(unsigned both, int e) {
    return to_float(Item{static_cast<unsigned short>(both >> (16 * e))});
}

// c += a b of 16 x 16 and 16 x 8.
template <typename Item> inline void multiply(void** lanes) {
    float a[16][16], b[8][16];
    for (int lane = 0; lane < LANES; lane++) {
        const Product* own = static_cast<Product*>(lanes[lane]);
        const int group = lane / 4, pair = lane % 4 * 2;
        for (int e = 0; e < 2; e++) {
            for (int i = 0; i < 4; i++) a[group + i % 2 * 8][pair + i / 2 * 8 + e] = half_of<Item>(own->a[i], e);
            for (int i = 0; i < 2; i++) b[group][pair + i * 8 + e] = half_of<Item>(own->b[i], e);
        }
    }
    for (int lane = 0; lane < LANES; lane++) {
        for (int i = 0; i < 4; i++) {
            const float* row = a[lane / 4 + i / 2 * 8];
            const float* column = b[lane % 4 * 2 + i % 2];
            float sum = 0.0f;
            for (int k = 0; k < 16; k++) sum += row[k] * column[k];
            static_cast<Product*>(lanes[lane])->c[i] += sum;
        }
    }
}

} // namespace emulator
#endif

// An address in shared memory: 32 bits there, which leaves more registers than pointers do. Offsets are in bytes.
#ifdef PLANISH_HOST
using Shared = uintptr_t;
DEVICE Shared shared_address(void* pointer) { return reinterpret_cast<Shared>(pointer); }
#else
using Shared = unsigned;
DEVICE Shared shared_address(void* pointer) { return static_cast<Shared>(__cvta_generic_to_shared(pointer)); }
#endif

// Four matrices of 8 x 8 elements of 2 bytes from shared memory (ldmatrix): lane 8 * m + i hands in the address of row
// i of matrix m, a multiple of 16, and register m of lane l gets elements 2 * (l % 4) and the next one of row l / 4;
// transposed, it gets elements (2 * (l % 4), l / 4) and the one below that.
DEVICE void load_matrices(unsigned (&to)[4], Shared row) {
#ifdef PLANISH_HOST
    emulator::Matrices own = {reinterpret_cast<const unsigned char*>(row), to};
    emulator::warp_collective("ldmatrix", ALL_LANES, &own, emulator::deal<false>);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
#endif
}
DEVICE void load_transposed(unsigned (&to)[4], Shared row) {
#ifdef PLANISH_HOST
    emulator::Matrices own = {reinterpret_cast<const unsigned char*>(row), to};
    emulator::warp_collective("ldmatrix.trans", ALL_LANES, &own, emulator::deal<true>);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
#endif
}

// c += a b (mma.m16n8k16), with g = lane / 4 and t = 2 * (lane % 4): a holds the pairs of elements from (g, t), (g + 8,
// t), (g, t + 8) and (g + 8, t + 8) on, along rows; b those from (t, g) and (t + 8, g) on, along columns; c holds the
// elements (g, t), (g, t + 1), (g + 8, t) and (g + 8, t + 1).
template <typename Item> DEVICE void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#ifdef PLANISH_HOST
    emulator::Product own = {c, a, {b0, b1}};
    emulator::warp_collective("mma", ALL_LANES, &own, emulator::multiply<Item>);
#else
    if constexpr (is_same<Item, half_t>) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
#endif
}

// 16 bytes from global to shared memory, under way until a wait; or as many zero bytes.
DEVICE void copy_async(Shared to, const void* from, bool zero) {
#ifdef PLANISH_HOST
    emulator::copy_async(reinterpret_cast<void*>(to), from, zero ? 0 : 16, 16);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)),
                 "r"(zero ? 0 : 16)
                 : "memory");
#endif
}
DEVICE void copies_commit() {
#ifdef PLANISH_HOST
    emulator::copy_commit();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits for all groups of copies of this thread but the `LEFT` latest ones.
template <int LEFT> DEVICE void copies_wait() {
#ifdef PLANISH_HOST
    emulator::copy_wait(LEFT);
#else
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}
