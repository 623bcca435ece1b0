// What the kernels of attention share: its description, which keys a query attends to, and the instructions of tensor
// cores and asynchronous copies, which the emulator has by the layouts that the PTX ISA documents.
// Attention of [batch, queries, heads, size] to keys and values of `kv_heads` heads. Rust has the same structure.
struct Attention {
    int batch, heads, kv_heads, queries, keys, size, value_size;
    int offset; // The position of query 0 among the keys: with causality, key j takes part iff j <= offset + i.
    int window; // Key j takes part iff j > offset + i - window.
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
    if (WINDOW_OF_KEYS && p.offset + first - p.window + 1 > 0) range.begin = p.offset + first - p.window + 1;
    if (range.end < range.begin) range.end = range.begin;
    return range;
}

// Whether a query attends to a key, masks aside.
template <bool CAUSAL_KEYS, bool WINDOW_OF_KEYS> DEVICE bool attends(const Attention& p, int query, int key) {
    return (!CAUSAL_KEYS || key <= p.offset + query) && (!WINDOW_OF_KEYS || key > p.offset + query - p.window);
}
