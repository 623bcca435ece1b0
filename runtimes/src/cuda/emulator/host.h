// Emulation of the CUDA execution model in C++, for kernels that a host compiler builds (`-DPLANISH_HOST`).
//
// Blocks of a grid run one after another. The threads of a block are fibers of one operating system thread (fibers.h):
// a thread runs until it waits at a barrier, and then another one goes on. A kernel that never waits runs on one fiber,
// as a plain loop over its threads. Launches of one module exclude each other; those of different modules do not.
//
// What a GPU leaves undefined is made visible. Shared memory is filled with 0xFF bytes (NaN) before each block. Dynamic
// shared memory has exactly as many bytes as the launch says, so that AddressSanitizer sees overruns. A warp's
// operations need all 32 lanes, barriers of the block all its threads; otherwise the process aborts with a message.
// Asynchronous copies take place as late as the kernel's waits allow. The environment variable
// PLANISH_EMULATOR_ORDER changes the order in which threads and blocks run: `reverse`, or a number, the seed of a
// random order; results that depend on it show a missing barrier. PLANISH_EMULATOR_RACES=1 searches for accesses of shared
// memory that no barrier orders (races.h).
#pragma once
#include <math.h>

#include "fibers.h"
#include "races.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static __attribute__((section("planish_shared")))

struct uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

namespace emulator {

template <typename Value> struct Exchange {
    Value value;
    int source;
    Value result;
};

template <typename Value> inline Value exchange(const char* name, unsigned mask, Value value, int source) {
    Exchange<Value> own{value, source, Value()};
    warp_collective(name, mask, &own, [](void** lanes) {
        for (int i = 0; i < WARP_LANES; i++) {
            Exchange<Value>* to = static_cast<Exchange<Value>*>(lanes[i]);
            to->result = static_cast<Exchange<Value>*>(lanes[to->source])->value;
        }
    });
    return own.result;
}

struct Vote {
    bool value;
    unsigned result;
};

inline unsigned ballot(const char* name, unsigned mask, bool value) {
    Vote own{value, 0};
    warp_collective(name, mask, &own, [](void** lanes) {
        unsigned all = 0;
        for (int i = 0; i < WARP_LANES; i++) all |= static_cast<unsigned>(static_cast<Vote*>(lanes[i])->value) << i;
        for (int i = 0; i < WARP_LANES; i++) static_cast<Vote*>(lanes[i])->result = all;
    });
    return own.result;
}

inline void copy_async(void* to, const void* from, int copied, int filled) {
    Thread& thread = state.thread[state.current];
    if (reinterpret_cast<uintptr_t>(to) % 16 != 0 || (copied != 0 && reinterpret_cast<uintptr_t>(from) % 16 != 0)) {
        fail("an asynchronous copy of 16 bytes that are not aligned");
    }
    if (thread.copy_count == thread.copy_capacity) {
        thread.copy_capacity = thread.copy_capacity * 2 + 16;
        const size_t bytes = sizeof(Copy) * static_cast<size_t>(thread.copy_capacity);
        thread.copies = static_cast<Copy*>(realloc(thread.copies, bytes));
        if (thread.copies == nullptr) fail("no memory for copies");
    }
    copy_starts(to, static_cast<size_t>(filled));
    thread.copies[thread.copy_count++] = {to, from, copied, filled, thread.groups};
}

inline void copy_commit() { state.thread[state.current].groups++; }

// Completes all groups but the `left` latest ones.
inline void copy_wait(int left) {
    Thread& thread = state.thread[state.current];
    int kept = 0;
    for (int i = 0; i < thread.copy_count; i++) {
        const Copy copy = thread.copies[i];
        if (copy.group >= thread.groups - left) {
            thread.copies[kept++] = copy;
            continue;
        }
        if (copy.bytes != 0) memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
        memset(static_cast<unsigned char*>(copy.to) + copy.bytes, 0, static_cast<size_t>(copy.filled - copy.bytes));
        copy_ends(copy.to, static_cast<size_t>(copy.filled));
    }
    thread.copy_count = kept;
}

// Runs all blocks of a launch, one after another.
inline void run_grid(const char* name, void (*call)(void*, void**), void* function, const unsigned* grid,
                     const unsigned* block, unsigned shared_bytes, void** args) {
    pthread_mutex_lock(&module_lock);
    const char* order = getenv("PLANISH_EMULATOR_ORDER");
    state.order = order == nullptr || *order == 0 ? Order::Forward
                  : strcmp(order, "reverse") == 0 ? Order::Reverse
                                                  : Order::Random;
    state.random = state.order == Order::Random ? strtoull(order, nullptr, 10) * 2 + 0x9E3779B97F4A7C15 : 0;
    state.kernel = name;
    state.call = call;
    state.function = function;
    state.args = args;
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    const uint64_t threads = uint64_t(block[0]) * block[1] * block[2];
    const uint64_t blocks = uint64_t(grid[0]) * grid[1] * grid[2];
    if (threads == 0 || threads > MAX_THREADS || blocks == 0) fail("a launch of no or too many threads");
    if (grid[0] > 0x7fffffff || grid[1] > 65535 || grid[2] > 65535) fail("a grid that is too large");
    state.threads = static_cast<int>(threads);
    void* dynamic = nullptr;
    if (posix_memalign(&dynamic, 1024, shared_bytes) != 0) fail("no memory for shared memory");
    state.dynamic = static_cast<unsigned char*>(dynamic);
    races_begin(shared_bytes);
    for (uint64_t i = 0; i < blocks; i++) {
        const uint64_t index = state.order == Order::Reverse ? blocks - 1 - i : i, row = index / grid[0];
        blockIdx = {unsigned(index % grid[0]), unsigned(row % grid[1]), unsigned(row / grid[1])};
        run_block(shared_bytes);
    }
    free(state.dynamic);
    pthread_mutex_unlock(&module_lock);
}

template <size_t... Indices> struct Sequence {};
template <size_t Count, size_t... Indices> struct Counted : Counted<Count - 1, Count - 1, Indices...> {};
template <size_t... Indices> struct Counted<0, Indices...> {
    using Type = Sequence<Indices...>;
};

template <typename... Parameters, size_t... Indices>
inline void unpack(void (*kernel)(Parameters...), void** args, Sequence<Indices...>) {
    kernel(*static_cast<Parameters*>(args[Indices])...);
}

// Launches a kernel whose parameters are at args[0], args[1], ...
template <typename... Parameters>
inline void launch(const char* name, void (*kernel)(Parameters...), const unsigned* grid, const unsigned* block,
                   unsigned shared_bytes, void** args) {
    const auto call = [](void* function, void** values) {
        unpack(reinterpret_cast<void (*)(Parameters...)>(function), values,
               typename Counted<sizeof...(Parameters)>::Type());
    };
    run_grid(name, call, reinterpret_cast<void*>(kernel), grid, block, shared_bytes, args);
}

// The number of a kernel's parameters, and the bytes of each.
template <typename... Parameters> inline const unsigned* parameters(void (*)(Parameters...)) {
    static const unsigned all[] = {unsigned(sizeof...(Parameters)), unsigned(sizeof(Parameters))...};
    return all;
}

} // namespace emulator

// The functions that launch the kernel `function` under the name `kernel`, and that tell its parameters.
#define EXPORT_HOST(kernel, function)                                                                               \
    extern "C" __attribute__((visibility("default"))) void launch_##kernel(                                         \
        const unsigned grid[3], const unsigned block[3], unsigned shared_bytes, void** args) {                      \
        emulator::launch(#kernel, function, grid, block, shared_bytes, args);                                       \
    }                                                                                                               \
    extern "C" __attribute__((visibility("default"))) const unsigned* parameters_##kernel() {                       \
        return emulator::parameters(function);                                                                      \
    }

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }

inline void __syncthreads() { emulator::block_barrier("__syncthreads", 0); }
inline int __syncthreads_or(int vote) { return emulator::block_barrier("__syncthreads_or", vote != 0); }
inline void __syncwarp(unsigned mask = ~0u) { emulator::warp_collective("__syncwarp", mask, nullptr, nullptr); }
inline unsigned __ballot_sync(unsigned mask, int vote) { return emulator::ballot("__ballot_sync", mask, vote != 0); }
inline int __any_sync(unsigned mask, int vote) { return emulator::ballot("__any_sync", mask, vote != 0) != 0; }
inline int __all_sync(unsigned mask, int vote) { return emulator::ballot("__all_sync", mask, vote != 0) == ~0u; }

template <typename Value> inline Value __shfl_sync(unsigned mask, Value value, int source) {
    return emulator::exchange("__shfl_sync", mask, value, source & 31);
}
template <typename Value> inline Value __shfl_xor_sync(unsigned mask, Value value, int bits) {
    return emulator::exchange("__shfl_xor_sync", mask, value, (emulator::lane() ^ bits) & 31);
}
template <typename Value> inline Value __shfl_up_sync(unsigned mask, Value value, unsigned delta) {
    const int source = emulator::lane() - static_cast<int>(delta);
    return emulator::exchange("__shfl_up_sync", mask, value, source >= 0 ? source : emulator::lane());
}
template <typename Value> inline Value __shfl_down_sync(unsigned mask, Value value, unsigned delta) {
    const int source = emulator::lane() + static_cast<int>(delta);
    return emulator::exchange("__shfl_down_sync", mask, value, source < 32 ? source : emulator::lane());
}

template <typename Value> inline Value atomicAdd(Value* to, Value value) {
    const Value old = *to;
    *to = old + value;
    return old;
}
