// What all kernels share: element types and their conversions, vectors of elements, indices, functions of elements.
//
// A module is the text of common.cuh, rows.cuh, attention.cuh and one .cu file in this order, specialised by macros.
// NVRTC compiles it without any header; a host compiler does so with -DPLANISH_HOST, which emulates the execution model
// (emulator/host.h).
#ifdef PLANISH_HOST
#include "host.h"
#define UNROLL
#define UNROLL_NOT
#define UNROLL_BY(count)
#define MAY_ALIAS [[gnu::may_alias]]
#define DYNAMIC_SHARED(name) unsigned char* const name = emulator::dynamic_shared()
#else
#define UNROLL _Pragma("unroll")
#define UNROLL_NOT _Pragma("unroll 1")
#define TEXT_OF(tokens) #tokens
#define UNROLL_BY(count) _Pragma(TEXT_OF(unroll count))
#define MAY_ALIAS
#define DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]
#define EXPORT_HOST(kernel, function)
#pragma nv_diag_suppress 177 // No kernel uses all of this.
#endif
#define DEVICE static __device__ __forceinline__

// A kernel is `KERNEL name(parameters) { ... }` with `EXPORT(name)` after it. With PARAMETERS_STORED, the threads of a
// block, `name` is a function, and the kernel is `name_stored`. Its parameter is the address of 64-bit words with the
// values of the others, each of which begins at a word of its own: a recorded launch takes the values that are there when
// it is replayed.
#ifdef PARAMETERS_STORED
#ifdef PLANISH_HOST
#define STORED_KERNEL static void
#else
#undef __launch_bounds__
#define __launch_bounds__(...) // Functions have none.
#define STORED_KERNEL extern "C" __global__ void __attribute__((launch_bounds(PARAMETERS_STORED)))
#endif
#define KERNEL static __device__ __forceinline__ void
#define EXPORT(kernel)                                                                                              \
    STORED_KERNEL kernel##_stored(const unsigned long long* words) { call_stored<kernel>(kernel, words); }          \
    EXPORT_HOST(kernel, kernel##_stored)

template <auto FUNCTION, typename... Parameters> struct Stored;
template <auto FUNCTION> struct Stored<FUNCTION> {
    template <typename... Values> DEVICE void call(const unsigned long long*, const Values&... values) {
        FUNCTION(values...);
    }
};
template <auto FUNCTION, typename First, typename... Rest> struct Stored<FUNCTION, First, Rest...> {
    template <typename... Values> DEVICE void call(const unsigned long long* words, const Values&... values) {
        First first;
        memcpy(&first, words, sizeof first);
        Stored<FUNCTION, Rest...>::call(words + (sizeof first + 7) / 8, values..., first);
    }
};
template <auto FUNCTION, typename... Parameters>
DEVICE void call_stored(void (*)(Parameters...), const unsigned long long* words) {
    Stored<FUNCTION, Parameters...>::call(words);
}
#else
#define KERNEL extern "C" __global__ void
#define EXPORT(kernel) EXPORT_HOST(kernel, kernel)
#endif

constexpr int LANES = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

// Tensors over one index space: [0] is the result, [1..3] are the operands. Rust has the same structure.
struct Strided {
    int rank, pad;
    long long sizes[8];      // Outermost first.
    long long strides[4][8]; // In elements; 0 broadcasts.
};

// binary16 and bfloat16, as bits.
struct half_t {
    unsigned short bits;
};
struct bf16_t {
    unsigned short bits;
};

template <typename First, typename Second> constexpr bool is_same = false;
template <typename Only> constexpr bool is_same<Only, Only> = true;
template <typename Item> constexpr bool is_half = is_same<Item, half_t> || is_same<Item, bf16_t>;
template <typename Item> constexpr bool is_real = is_half<Item> || is_same<Item, float> || is_same<Item, double>;

#ifdef PLANISH_HOST
DEVICE unsigned to_bits(float x) {
    unsigned bits;
    memcpy(&bits, &x, 4);
    return bits;
}
DEVICE float from_bits(unsigned bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
#else
DEVICE unsigned to_bits(float x) { return __float_as_uint(x); }
DEVICE float from_bits(unsigned bits) { return __uint_as_float(bits); }
#endif

constexpr float LARGEST = 3.402823466e38f;
DEVICE float infinity() { return from_bits(0x7f800000); }
DEVICE float not_a_number() { return from_bits(0x7fffffff); }

DEVICE float to_float(float x) { return x; }
DEVICE float to_float(bf16_t x) { return from_bits(static_cast<unsigned>(x.bits) << 16); }

#ifdef PLANISH_HOST
DEVICE float to_float(half_t x) {
    const unsigned sign = (x.bits & 0x8000u) << 16, rest = x.bits & 0x7fffu;
    if (rest >= 0x7c00) return from_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    if (rest >= 0x400) return from_bits(sign | (rest + (112 << 10)) << 13);
    const float magnitude = static_cast<float>(rest) * 5.9604644775390625e-8f; // 2^-24
    return from_bits(sign | to_bits(magnitude));
}
DEVICE half_t to_half(float x) {
    const unsigned sign = to_bits(x) >> 16 & 0x8000, bits = to_bits(x) & 0x7fffffff;
    if (bits > 0x7f800000) return {0x7fff};
    if (bits >= 0x477ff000) return {static_cast<unsigned short>(sign | 0x7c00)}; // From 65520 on.
    if (bits < 0x38800000) {                                                     // Below 2^-14: multiples of 2^-24.
        const float shifted = from_bits(bits) + 0.5f;                            // Whose last bit is 2^-24.
        return {static_cast<unsigned short>(sign | (to_bits(shifted) - 0x3f000000))};
    }
    const unsigned rounded = bits + 0xfff + (bits >> 13 & 1);
    return {static_cast<unsigned short>(sign | ((rounded >> 13) - (112 << 10)))};
}
DEVICE bf16_t to_bf16(float x) {
    const unsigned bits = to_bits(x);
    if ((bits & 0x7fffffff) > 0x7f800000) return {0x7fff};
    return {static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
#else
DEVICE float to_float(half_t x) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
    return wide;
}
DEVICE half_t to_half(float x) {
    half_t narrow;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
    return narrow;
}
DEVICE bf16_t to_bf16(float x) {
    bf16_t narrow;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
    return narrow;
}
#endif

// The float next to a number in the direction of zero whose last bit says that it is not exact ("round to odd"):
// rounding it again to a type of fewer bits gives what rounding the number once does.
DEVICE float to_odd(double x) {
    const float near = static_cast<float>(x);
    if (static_cast<double>(near) == x || x != x) return near;
    const double size = x < 0 ? -x : x, near_size = near < 0 ? -static_cast<double>(near) : static_cast<double>(near);
    return from_bits((near_size > size ? to_bits(near) - 1 : to_bits(near)) | 1);
}

// An integer as a double that rounds to float and shorter types as the integer does.
template <typename Integer> DEVICE double to_double(Integer x) {
    if constexpr (sizeof(Integer) < 8) return static_cast<double>(x);
    const bool negative = x < Integer(0);
    unsigned long long size = negative ? 0ull - static_cast<unsigned long long>(x) : static_cast<unsigned long long>(x);
    if (size >> 48 != 0) size = (size & ~0xffffull) | ((size & 0xffff) != 0 ? 0x10000 : 0);
    return negative ? -static_cast<double>(size) : static_cast<double>(size);
}

// A float as an integer: truncated, and at most as large as the type allows; of NaN 0.
template <typename Integer, typename Real> DEVICE Integer truncated(Real x) {
    constexpr bool is_signed = Integer(-1) < Integer(0);
    constexpr int bits = sizeof(Integer) * 8 - is_signed;
    constexpr Integer largest = static_cast<Integer>(~0ull >> (64 - bits));
    constexpr Integer smallest = is_signed ? static_cast<Integer>(-largest - 1) : Integer(0);
    const Real limit = static_cast<Real>(1ull << (bits - 1)) * Real(2);
    if (x != x) return Integer(0);
    if (x >= limit) return largest;
    if (x <= (is_signed ? -limit : Real(0))) return smallest;
    return static_cast<Integer>(x);
}

// Any element as another type: floats round to nearest even, and `bool` is whether a number is not zero.
template <typename To, typename From> DEVICE To to(From x) {
    if constexpr (is_same<To, From>) {
        return x;
    } else if constexpr (is_half<From>) {
        return to<To>(to_float(x));
    } else if constexpr (is_same<To, bool>) {
        return x != From(0);
    } else if constexpr (is_half<To>) {
        float wide;
        if constexpr (is_same<From, float>) {
            wide = x;
        } else if constexpr (is_same<From, double>) {
            wide = to_odd(x);
        } else if constexpr (sizeof(From) <= 2) {
            wide = static_cast<float>(x);
        } else {
            wide = to_odd(to_double(x));
        }
        if constexpr (is_same<To, half_t>) return to_half(wide);
        if constexpr (is_same<To, bf16_t>) return to_bf16(wide);
    } else if constexpr (is_real<From> && !is_real<To>) {
        return truncated<To>(x);
    } else {
        return static_cast<To>(x);
    }
}

// An element as what expressions compute with: half types as float, the rest as it is.
template <typename Item> DEVICE auto operand(Item x) {
    if constexpr (is_half<Item>) {
        return to_float(x);
    } else {
        return x;
    }
}

// An element as what sums of such elements are: float (double of double), or integers of 64 bits.
template <typename Item> DEVICE auto widened(Item x) {
    if constexpr (is_real<Item>) {
        return operand(x);
    } else if constexpr (Item(-1) < Item(0)) {
        return static_cast<long long>(x);
    } else {
        return static_cast<unsigned long long>(x);
    }
}

// Elements that are side by side, loaded and stored at once.
template <typename Item, int COUNT> struct Pack {
    Item items[COUNT];
};

// The largest number of elements, a power of two, that one access of 16 bytes holds.
template <typename Item> constexpr int PER_ACCESS = 16 / static_cast<int>(sizeof(Item));

struct MAY_ALIAS alignas(16) Bytes16 {
    unsigned x, y, z, w;
};
struct MAY_ALIAS alignas(8) Bytes8 {
    unsigned x, y;
};
struct MAY_ALIAS Bytes4 {
    unsigned x;
};
struct MAY_ALIAS Bytes2 {
    unsigned short x;
};
struct MAY_ALIAS Bytes1 {
    unsigned char x;
};
template <int BYTES> struct Word;
template <> struct Word<16> {
    using Type = Bytes16;
};
template <> struct Word<8> {
    using Type = Bytes8;
};
template <> struct Word<4> {
    using Type = Bytes4;
};
template <> struct Word<2> {
    using Type = Bytes2;
};
template <> struct Word<1> {
    using Type = Bytes1;
};

// `COUNT` elements from an address that is a multiple of their size.
template <int COUNT, typename Item> DEVICE Pack<Item, COUNT> load(const Item* from) {
    using Access = typename Word<COUNT * sizeof(Item)>::Type;
    const Access word = *reinterpret_cast<const Access*>(from);
    Pack<Item, COUNT> pack;
    memcpy(&pack, &word, sizeof pack);
    return pack;
}

template <int COUNT, typename Item> DEVICE void store(Item* to, const Pack<Item, COUNT>& pack) {
    using Access = typename Word<COUNT * sizeof(Item)>::Type;
    Access word;
    memcpy(&word, &pack, sizeof pack);
    *reinterpret_cast<Access*>(to) = word;
}

template <typename Item> DEVICE bool is_aligned(const Item* address, int bytes) {
    return (reinterpret_cast<unsigned long long>(address) & static_cast<unsigned long long>(bytes - 1)) == 0;
}

// n / by and n % by; of 32 bits where both are, which is several times as fast.
struct Quotient {
    long long quotient, remainder;
};
DEVICE Quotient divide_index(long long n, long long by) {
    if (((n | by) >> 32) == 0) {
        const unsigned small = static_cast<unsigned>(n), small_by = static_cast<unsigned>(by);
        return {static_cast<long long>(small / small_by), static_cast<long long>(small % small_by)};
    }
    return {n / by, n % by};
}

// This thread among all of a grid of any shape, and how many there are.
DEVICE long long grid_block() {
    return (static_cast<long long>(blockIdx.z) * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
}
DEVICE long long grid_blocks() { return static_cast<long long>(gridDim.x) * gridDim.y * gridDim.z; }
DEVICE long long grid_thread() { return grid_block() * blockDim.x + threadIdx.x; }
DEVICE long long grid_threads() { return grid_blocks() * blockDim.x; }

template <typename Real> DEVICE Real sigmoid(Real x) { return Real(1) / (Real(1) + exp(-x)); }
template <typename Real> DEVICE Real silu(Real x) { return x / (Real(1) + exp(-x)); }
template <typename Real> DEVICE Real relu(Real x) { return x < Real(0) ? Real(0) : x; }
template <typename Real> DEVICE Real gelu_erf(Real x) {
    return Real(0.5) * x * (Real(1) + erf(x * Real(0.70710678118654752440)));
}
template <typename Real> DEVICE Real gelu_tanh(Real x) {
    const Real inner = Real(0.79788456080286535588) * (x + Real(0.044715) * x * x * x);
    return Real(0.5) * x * (Real(1) + tanh(inner));
}
template <typename Number> DEVICE Number absolute(Number x) { return x < Number(0) ? Number(0) - x : x + Number(0); }
template <typename Number> DEVICE bool is_nan(Number x) { return x != x; }

// The smaller or larger number; NaN where an operand is.
template <typename Number> DEVICE Number minimum(Number x, Number y) { return x < y || is_nan(x) ? x : y; }
template <typename Number> DEVICE Number maximum(Number x, Number y) { return x > y || is_nan(x) ? x : y; }

// Integers truncate; by zero they give 0.
template <typename Number> DEVICE Number divide(Number x, Number y) {
    if constexpr (is_real<Number>) {
        return x / y;
    } else {
        if (y == Number(0)) return Number(0);
        const unsigned long long negative = 0ull - static_cast<unsigned long long>(x);
        if (Number(-1) < Number(0) && y == Number(-1)) return static_cast<Number>(negative);
        return static_cast<Number>(x / y);
    }
}

// Integers wrap; to a negative power they give what truncation leaves.
template <typename Number> DEVICE Number power(Number x, Number y) {
    if constexpr (is_real<Number>) {
        return pow(x, y);
    } else {
        if (y < Number(0)) return x == Number(1) ? x : x == Number(-1) ? (y % 2 == 0 ? Number(1) : x) : Number(0);
        unsigned long long result = 1, factor = static_cast<unsigned long long>(x);
        for (unsigned long long left = static_cast<unsigned long long>(y); left != 0; left >>= 1) {
            if (left & 1) result *= factor;
            factor *= factor;
        }
        return static_cast<Number>(result);
    }
}
