// The search for races in shared memory, a mode of the emulator (PLANISH_RACES).
//
// The compiler instruments each access for ThreadSanitizer, and the functions that it calls are these ones. Two accesses
// of a byte by different threads of a block, of which one writes, are a race unless a barrier is between them:
// __syncthreads for all threads, __syncwarp for those of one warp. A shuffle, a vote, ldmatrix and mma order no memory.
// An asynchronous copy writes from its start until its thread has waited for it; nobody may touch the bytes meanwhile.
// What is found depends on the barriers that threads pass, not on the order in which the emulator runs them.
#pragma once
#include "fibers.h"

namespace emulator {

#ifndef PLANISH_RACES
#define UNWATCHED
inline void reads_for(int, const void*, size_t) {}
inline void copy_starts(const void*, size_t) {}
inline void copy_ends(const void*, size_t) {}
inline void races_begin(size_t) {}
#else
#define UNWATCHED __attribute__((no_sanitize("thread")))

extern "C" const char __ehdr_start[] __attribute__((visibility("hidden")));

// An access of a byte: between which barriers, by which thread, and by which instruction of the module.
struct Access {
    uint32_t epoch, warp_epoch, pc;
    uint16_t thread;
};

struct Cell {
    Access write;
    Access reads[2]; // Of all that nothing orders, the two that are the furthest from each other.
    bool under_way;  // `write` is an asynchronous copy that nobody has waited for.
};

struct Races {
    Cell* cells; // Of the dynamic shared memory, then of the static.
    size_t capacity, dynamic_bytes;
};

static Races races;
static thread_local char race_message[512];

// What the last launch of this thread did wrong; empty if nothing. {+hex} stands for an instruction.
extern "C" __attribute__((visibility("default"))) const char* planish_race() { return race_message; }

UNWATCHED inline void races_begin(size_t dynamic_bytes) {
    race_message[0] = 0;
    const size_t all =
        dynamic_bytes + static_cast<size_t>(__start_planish_shared == nullptr
                                                ? 0
                                                : __stop_planish_shared - __start_planish_shared);
    races.dynamic_bytes = dynamic_bytes;
    if (races.capacity < all) {
        free(races.cells);
        races.cells = static_cast<Cell*>(calloc(all, sizeof(Cell)));
        races.capacity = all;
        if (races.cells == nullptr) fail("no memory for the search for races");
    }
}

// The cell of the first of some bytes; null where they are not in shared memory.
UNWATCHED inline Cell* cell_of(const void* address, size_t bytes) {
    const unsigned char* at = static_cast<const unsigned char*>(address);
    if (at >= state.dynamic && at + bytes <= state.dynamic + races.dynamic_bytes) {
        return races.cells + (at - state.dynamic);
    }
    if (at >= __start_planish_shared && at + bytes <= __stop_planish_shared) {
        return races.cells + races.dynamic_bytes + (at - __start_planish_shared);
    }
    return nullptr;
}

// Whether there is such an access, by a thread of this block.
UNWATCHED inline bool is_of_block(const Access& access) { return access.epoch >= state.first_epoch; }

// How far two accesses of a block are from each other: the same thread, the same warp, the same block.
UNWATCHED inline int distance(int a, int b) { return a == b ? 0 : a / WARP_LANES == b / WARP_LANES ? 1 : 2; }

// Whether a barrier, or the order of one thread, is between an access and one of `thread` now.
UNWATCHED inline bool is_ordered(const Access& access, int thread) {
    const int apart = distance(access.thread, thread);
    return access.epoch < state.block_epoch || apart == 0 ||
           (apart == 1 && access.warp_epoch < state.warp_epoch[thread / WARP_LANES]);
}

UNWATCHED inline void found(const char* first, const Access& before, const char* second, const Access& now,
                            const char* why) {
    if (race_message[0] != 0) return;
    snprintf(race_message, sizeof race_message,
             "a race in shared memory of the kernel %s, block (%u, %u, %u): %s by thread %d at {+%x}, and %s by thread "
             "%d at {+%x}, %s",
             state.kernel, blockIdx.x, blockIdx.y, blockIdx.z, first, before.thread, before.pc, second, now.thread,
             now.pc, why);
}

constexpr const char* UNORDERED = "with no barrier between them";

UNWATCHED inline void watch_read(Cell& cell, const Access& now) {
    if (is_of_block(cell.write)) {
        if (cell.under_way) {
            found("an asynchronous copy", cell.write, "a read", now, "before the copying thread has waited for it");
        } else if (!is_ordered(cell.write, now.thread)) {
            found("a write", cell.write, "a read", now, UNORDERED);
        }
    }
    Access* reads = cell.reads;
    for (int i = 0; i < 2; i++) {
        if (!is_of_block(reads[i]) || is_ordered(reads[i], now.thread)) reads[i].epoch = 0;
    }
    for (int i = 0; i < 2; i++) {
        if (reads[i].epoch == 0) {
            reads[i] = now;
            return;
        }
    }
    if (distance(reads[0].thread, reads[1].thread) < distance(reads[0].thread, now.thread)) reads[1] = now;
}

UNWATCHED inline void watch_write(Cell& cell, const Access& now, const char* what) {
    if (is_of_block(cell.write)) {
        if (cell.under_way) {
            found("an asynchronous copy", cell.write, what, now, "before the copying thread has waited for it");
        } else if (!is_ordered(cell.write, now.thread)) {
            found("a write", cell.write, what, now, UNORDERED);
        }
    }
    for (const Access& read : cell.reads) {
        if (is_of_block(read) && !is_ordered(read, now.thread)) found("a read", read, what, now, UNORDERED);
    }
    cell.write = now;
    cell.under_way = false;
}

UNWATCHED inline Access access_of(int thread, const void* pc) {
    const uint32_t at = static_cast<uint32_t>(static_cast<const char*>(pc) - __ehdr_start) - 1;
    return {state.block_epoch, state.warp_epoch[thread / WARP_LANES], at, static_cast<uint16_t>(thread)};
}

UNWATCHED inline void watch(const void* address, size_t bytes, bool writes, const void* pc) {
    Cell* cell = cell_of(address, bytes);
    if (cell == nullptr) return;
    const Access now = access_of(state.current, pc);
    for (size_t i = 0; i < bytes; i++) {
        if (writes) {
            watch_write(cell[i], now, "a write");
        } else {
            watch_read(cell[i], now);
        }
    }
}

// A read of shared memory by an instruction of the whole warp, for one of its lanes.
UNWATCHED __attribute__((noinline)) void reads_for(int lane, const void* address, size_t bytes) {
    Cell* cell = cell_of(address, bytes);
    if (cell == nullptr) return;
    const int thread = state.current - state.current % WARP_LANES + lane;
    const Access now = access_of(thread, state.warp[thread / WARP_LANES].pc[lane]);
    for (size_t i = 0; i < bytes; i++) watch_read(cell[i], now);
}

UNWATCHED __attribute__((noinline)) void copy_starts(const void* address, size_t bytes) {
    Cell* cell = cell_of(address, bytes);
    if (cell == nullptr) return;
    const Access now = access_of(state.current, __builtin_return_address(0));
    for (size_t i = 0; i < bytes; i++) {
        watch_write(cell[i], now, "an asynchronous copy");
        cell[i].under_way = true;
    }
}

// From now on the thread may touch the bytes, and others may so after a barrier.
UNWATCHED inline void copy_ends(const void* address, size_t bytes) {
    Cell* cell = cell_of(address, bytes);
    if (cell == nullptr) return;
    for (size_t i = 0; i < bytes; i++) {
        cell[i].write.epoch = state.block_epoch;
        cell[i].write.warp_epoch = state.warp_epoch[state.current / WARP_LANES];
        cell[i].under_way = false;
    }
}
#endif

} // namespace emulator

#ifdef PLANISH_RACES
#define PLANISH_WATCH(name, bytes, writes)                                                                          \
    extern "C" UNWATCHED void name(void* address) {                                                                  \
        emulator::watch(address, bytes, writes, __builtin_return_address(0));                                        \
    }
PLANISH_WATCH(__tsan_read1, 1, false)
PLANISH_WATCH(__tsan_read2, 2, false)
PLANISH_WATCH(__tsan_read4, 4, false)
PLANISH_WATCH(__tsan_read8, 8, false)
PLANISH_WATCH(__tsan_read16, 16, false)
PLANISH_WATCH(__tsan_unaligned_read2, 2, false)
PLANISH_WATCH(__tsan_unaligned_read4, 4, false)
PLANISH_WATCH(__tsan_unaligned_read8, 8, false)
PLANISH_WATCH(__tsan_unaligned_read16, 16, false)
PLANISH_WATCH(__tsan_write1, 1, true)
PLANISH_WATCH(__tsan_write2, 2, true)
PLANISH_WATCH(__tsan_write4, 4, true)
PLANISH_WATCH(__tsan_write8, 8, true)
PLANISH_WATCH(__tsan_write16, 16, true)
PLANISH_WATCH(__tsan_unaligned_write2, 2, true)
PLANISH_WATCH(__tsan_unaligned_write4, 4, true)
PLANISH_WATCH(__tsan_unaligned_write8, 8, true)
PLANISH_WATCH(__tsan_unaligned_write16, 16, true)
#undef PLANISH_WATCH
extern "C" UNWATCHED void __tsan_read_range(void* address, unsigned long bytes) {
    emulator::watch(address, bytes, false, __builtin_return_address(0));
}
extern "C" UNWATCHED void __tsan_write_range(void* address, unsigned long bytes) {
    emulator::watch(address, bytes, true, __builtin_return_address(0));
}
extern "C" UNWATCHED void __tsan_init() {}
extern "C" UNWATCHED void __tsan_func_entry(void*) {}
extern "C" UNWATCHED void __tsan_func_exit() {}
#endif
