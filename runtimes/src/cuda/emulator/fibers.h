// The blocks, threads, barriers and shared memory of emulated kernels: see host.h.
#pragma once
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if !defined(__x86_64__)
#define PLANISH_UCONTEXT
#endif
#ifdef PLANISH_UCONTEXT
#include <ucontext.h>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

// Modules are loaded side by side: each has its own state, and only launches are visible from outside.
#pragma GCC visibility push(hidden)

struct uint3 {
    unsigned x, y, z;
};

static uint3 threadIdx, blockIdx, blockDim, gridDim;

// The bounds of the section with static shared memory, from the linker; null where a module has none.
extern "C" {
extern unsigned char __start_planish_shared[] __attribute__((weak));
extern unsigned char __stop_planish_shared[] __attribute__((weak));
}

#ifndef PLANISH_UCONTEXT
// Saves the registers that a call preserves and the stack pointer, and goes on where another fiber did so.
extern "C" void planish_switch(void** save, void* load);
asm(R"(
    .pushsection .text
    .globl planish_switch
    .hidden planish_switch
    .type planish_switch, @function
planish_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size planish_switch, .-planish_switch
    .popsection
)");
#endif

namespace emulator {

constexpr int WARP_LANES = 32;
constexpr int MAX_THREADS = 1024;
constexpr size_t STACK_BYTES = 256 * 1024;
constexpr int STACKS_PER_CHUNK = 32;
constexpr uint64_t CANARY = 0x706c616e69736821;

struct Fiber {
#ifdef PLANISH_UCONTEXT
    ucontext_t context;
#else
    void* stack_pointer;
#endif
    unsigned char* stack; // The lowest address.
    size_t bytes;
    void* fake_stack; // Of AddressSanitizer.
    Fiber* next;      // In the list of free ones.
};

// An asynchronous copy under way.
struct Copy {
    void* to;
    const void* from;
    int bytes, filled; // The rest up to `filled` bytes becomes zero.
    int group;
};

enum class Status { NotStarted, Running, Ready, AtBlockBarrier, AtWarpBarrier, Returned };

struct Thread {
    Status status;
    Fiber* fiber;
    const char* barrier; // The name of what it waits at.
    Copy* copies;
    int copy_count, copy_capacity;
    int groups; // Committed groups of copies.
};

// What the last lane to arrive does for the whole warp, with the arguments of all lanes.
using Collective = void (*)(void** lanes);

struct Warp {
    int arrived;
    Collective collective;
    void* lanes[WARP_LANES];
    const void* pc[WARP_LANES]; // Where each lane called it.
};

enum class Order { Forward, Reverse, Random };

struct State {
    const char* kernel;
    void (*call)(void* kernel, void** args);
    void* function;
    void** args;
    unsigned char* dynamic;
    int threads, started, returned, current;
    Fiber* running; // The fiber that runs, and the one that ran before it.
    Fiber* left;
    Fiber main;
    Fiber* free_fibers;
    Thread thread[MAX_THREADS];
    Warp warp[MAX_THREADS / WARP_LANES];
    int start_order[MAX_THREADS];
    int ready[MAX_THREADS]; // A ring.
    int ready_head, ready_count;
    int block_arrived, block_vote, block_result;
    const char* block_barrier;
    // How many barriers all threads passed, over all blocks, and how many those of each warp.
    uint32_t block_epoch, first_epoch, warp_epoch[MAX_THREADS / WARP_LANES];
    Order order;
    uint64_t random;
};

static State state;
static pthread_mutex_t module_lock = PTHREAD_MUTEX_INITIALIZER;

// Of 0 .. bound - 1 (xorshift, Marsaglia 2003).
inline int random_below(int bound) {
    state.random ^= state.random << 13;
    state.random ^= state.random >> 7;
    state.random ^= state.random << 17;
    return static_cast<int>(state.random % static_cast<uint64_t>(bound));
}

[[noreturn]] inline void fail(const char* what) {
    fprintf(stderr, "planish emulator: kernel %s, block (%u, %u, %u), thread %d: %s\n", state.kernel, blockIdx.x,
            blockIdx.y, blockIdx.z, state.current, what);
    abort();
}

// What a thread does, for messages.
inline const char* activity(const Thread& thread) {
    switch (thread.status) {
    case Status::NotStarted: return "not started";
    case Status::Returned: return "returned";
    case Status::AtBlockBarrier:
    case Status::AtWarpBarrier: return thread.barrier;
    default: return "can go on";
    }
}

// Aborts with one line for each thing that threads do.
[[noreturn]] inline void fail_stuck() {
    fprintf(stderr, "planish emulator: kernel %s, block (%u, %u, %u): no thread can go on\n", state.kernel, blockIdx.x,
            blockIdx.y, blockIdx.z);
    bool told[MAX_THREADS] = {};
    for (int i = 0; i < state.threads; i++) {
        if (told[i]) continue;
        const char* what = activity(state.thread[i]);
        int count = 0;
        for (int k = i; k < state.threads; k++) {
            if (strcmp(activity(state.thread[k]), what) != 0) continue;
            told[k] = true;
            count++;
        }
        fprintf(stderr, "  %s: %d threads, the first of which is %d\n", what, count, i);
    }
    abort();
}

#ifdef __SANITIZE_ADDRESS__
// Notes where the stack of the operating system's thread is, which nothing else tells.
inline void finish_switch(void* fake_stack) {
    const void* stack;
    size_t bytes;
    __sanitizer_finish_switch_fiber(fake_stack, &stack, &bytes);
    if (state.left == &state.main) {
        state.main.stack = static_cast<unsigned char*>(const_cast<void*>(stack));
        state.main.bytes = bytes;
    }
}
#endif

inline void switch_to(Fiber* next) {
    Fiber* self = state.running;
    state.left = self;
    state.running = next;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&self->fake_stack, next->stack, next->bytes);
#endif
#ifdef PLANISH_UCONTEXT
    swapcontext(&self->context, &next->context);
#else
    planish_switch(&self->stack_pointer, next->stack_pointer);
#endif
#ifdef __SANITIZE_ADDRESS__
    finish_switch(self->fake_stack);
#endif
}

inline void become(int thread) {
    state.current = thread;
    state.thread[thread].status = Status::Running;
    const unsigned index = static_cast<unsigned>(thread), row = index / blockDim.x;
    threadIdx = {index % blockDim.x, row % blockDim.y, row / blockDim.y};
}

inline Fiber* next_ready() {
    int at = state.ready_head;
    if (state.order == Order::Reverse) at = (at + state.ready_count - 1) % MAX_THREADS;
    if (state.order == Order::Random) at = (at + random_below(state.ready_count)) % MAX_THREADS;
    const int thread = state.ready[at];
    if (state.order == Order::Random) state.ready[at] = state.ready[state.ready_head];
    if (state.order != Order::Reverse) state.ready_head = (state.ready_head + 1) % MAX_THREADS;
    state.ready_count--;
    return state.thread[thread].fiber;
}

inline void make_ready(int thread) {
    state.thread[thread].status = Status::Ready;
    state.ready[(state.ready_head + state.ready_count++) % MAX_THREADS] = thread;
}

// Runs threads that have not started until none is left, then lends itself to whoever needs a fiber.
inline void fiber_main() {
#ifdef __SANITIZE_ADDRESS__
    finish_switch(nullptr);
#endif
    for (;;) {
        while (state.started < state.threads && state.ready_count == 0) {
            const int thread = state.start_order[state.started++];
            state.thread[thread].fiber = state.running;
            become(thread);
            state.call(state.function, state.args);
            if (state.thread[thread].copy_count != 0) fail("returned before its asynchronous copies were waited for");
            state.thread[thread].status = Status::Returned;
            state.returned++;
            uint64_t canary;
            memcpy(&canary, state.running->stack, sizeof canary);
            if (canary != CANARY) fail("overflow of the stack");
        }
        if (state.returned < state.threads && state.ready_count == 0) fail_stuck();
        state.running->next = state.free_fibers;
        state.free_fibers = state.running;
        switch_to(state.returned == state.threads ? &state.main : next_ready());
    }
}

inline Fiber* take_fiber() {
    if (state.free_fibers == nullptr) {
        const size_t bytes = STACK_BYTES * STACKS_PER_CHUNK;
        void* chunk = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        Fiber* fibers = static_cast<Fiber*>(calloc(STACKS_PER_CHUNK, sizeof(Fiber)));
        if (chunk == MAP_FAILED || fibers == nullptr) fail("no memory for stacks");
        for (int i = 0; i < STACKS_PER_CHUNK; i++) {
            Fiber& fiber = fibers[i];
            fiber.stack = static_cast<unsigned char*>(chunk) + STACK_BYTES * static_cast<size_t>(i);
            fiber.bytes = STACK_BYTES;
            memcpy(fiber.stack, &CANARY, sizeof CANARY);
#ifdef PLANISH_UCONTEXT
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = fiber.stack;
            fiber.context.uc_stack.ss_size = fiber.bytes;
            makecontext(&fiber.context, fiber_main, 0);
#else
            // Six registers, where to go, and a return address that nothing uses: aligned as after a call.
            void** top = reinterpret_cast<void**>(fiber.stack + fiber.bytes);
            top[-1] = nullptr;
            top[-2] = reinterpret_cast<void*>(fiber_main);
            fiber.stack_pointer = top - 8;
#endif
            fiber.next = state.free_fibers;
            state.free_fibers = &fiber;
        }
    }
    Fiber* fiber = state.free_fibers;
    state.free_fibers = fiber->next;
    return fiber;
}

// The current thread stops here until another one makes it ready.
inline void wait(Status status, const char* barrier) {
    const int self = state.current;
    state.thread[self].status = status;
    state.thread[self].barrier = barrier;
    state.thread[self].fiber = state.running;
    if (state.ready_count != 0) {
        switch_to(next_ready());
    } else if (state.started < state.threads) {
        switch_to(take_fiber());
    } else {
        fail_stuck();
    }
    become(self);
}

// Aborts as the current thread is at another barrier than those that it would have to meet.
[[noreturn]] inline void fail_differing(Status status, const char* name) {
    state.thread[state.current].status = status;
    state.thread[state.current].barrier = name;
    fail_stuck();
}

inline int block_barrier(const char* name, int vote) {
    const bool differs = state.block_arrived != 0 && strcmp(state.block_barrier, name) != 0;
    if (differs) fail_differing(Status::AtBlockBarrier, name);
    state.block_barrier = name;
    state.block_vote |= vote;
    if (++state.block_arrived < state.threads) {
        wait(Status::AtBlockBarrier, name);
    } else {
        state.block_result = state.block_vote;
        state.block_arrived = state.block_vote = 0;
        state.block_epoch++;
        for (int i = 0; i < state.threads; i++) {
            if (i != state.current) make_ready(i);
        }
    }
    return state.block_result;
}

inline int lane() { return state.current % WARP_LANES; }

// Every lane hands in an argument; the last one to arrive runs the collective for all of them. Without a collective it is
// a barrier; with one, it orders no accesses to memory.
__attribute__((noinline)) inline void warp_collective(const char* name, unsigned mask, void* argument, Collective collective) {
    if (mask != ~0u || state.threads % WARP_LANES != 0) fail("an operation of a warp without all of its lanes");
    Warp& warp = state.warp[state.current / WARP_LANES];
    if (warp.arrived != 0 && warp.collective != collective) fail_differing(Status::AtWarpBarrier, name);
    warp.collective = collective;
    warp.lanes[lane()] = argument;
    warp.pc[lane()] = __builtin_return_address(0);
    if (++warp.arrived < WARP_LANES) {
        wait(Status::AtWarpBarrier, name);
        return;
    }
    warp.arrived = 0;
    if (collective != nullptr) {
        collective(warp.lanes);
    } else {
        state.warp_epoch[state.current / WARP_LANES]++;
    }
    const int first = state.current - lane();
    for (int i = first; i < first + WARP_LANES; i++) {
        if (i != state.current) make_ready(i);
    }
}

inline unsigned char* dynamic_shared() { return state.dynamic; }

inline void run_block(size_t shared_bytes) {
    if (__start_planish_shared != nullptr) {
        memset(__start_planish_shared, 0xFF, static_cast<size_t>(__stop_planish_shared - __start_planish_shared));
    }
    memset(state.dynamic, 0xFF, shared_bytes);
    state.first_epoch = ++state.block_epoch;
    state.started = state.returned = state.ready_head = state.ready_count = state.block_arrived = state.block_vote = 0;
    for (int i = 0; i < state.threads; i++) {
        state.thread[i].status = Status::NotStarted;
        state.thread[i].copy_count = state.thread[i].groups = 0;
        state.start_order[i] = state.order == Order::Reverse ? state.threads - 1 - i : i;
        if (state.order == Order::Random) {
            const int other = random_below(i + 1);
            state.start_order[i] = state.start_order[other];
            state.start_order[other] = i;
        }
    }
    state.running = &state.main;
    switch_to(take_fiber());
}

} // namespace emulator
