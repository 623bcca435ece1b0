// The model of the mocked driver: memory, streams and time. libcuda.cpp says what it does, and is the only file that
// includes this.
#pragma once
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mock.h"

namespace {

enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_IMAGE = 200, NO_BINARY = 209, INVALID_PTX = 218,
    INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901, NOT_CAPTURING = 904, CAPTURE_WRONG_THREAD = 908,
};

struct Work {
    double microseconds;
    std::function<void()> run;
};
struct Graph {
    std::vector<Work> nodes;
};
struct Stream {
    std::deque<std::function<void()>> queue;
    uint64_t given = 0, done = 0;
    double ready = 0; // When the GPU has done what was given.
    std::unique_ptr<Graph> captured;
    bool is_broken = false;
    int mode = 0;
    std::thread::id thread;
    const void* cached = nullptr;
};
struct Event {
    Stream* stream = nullptr;
    uint64_t at = 0;
    double time = 0;
};
struct Block {
    size_t bytes;
    bool is_pinned, is_free;
    Stream* stream; // In whose order it was freed.
};
struct Function {
    std::string name;
    void (*launch)(const unsigned*, const unsigned*, unsigned, void**) = nullptr;
    const unsigned* parameters = nullptr;
    unsigned shared = 48 << 10;
};
struct Module {
    void* library;
    std::vector<std::unique_ptr<Function>> functions;
};

std::recursive_mutex lock;
std::map<std::string, long> counts;
std::map<uintptr_t, Block> blocks; // By address.
std::set<Stream*> streams;
uint64_t threshold = 0;
double now = 0; // The host's clock.
int failed = 0; // An error of work, which stays.
thread_local void* current = nullptr;
char context;
const size_t L2 = 1 << 20;

bool is_unsafe_now() {
    for (Stream* stream : streams) {
        if (!stream->captured) continue;
        if (stream->mode == 0 || (stream->mode == 1 && stream->thread == std::this_thread::get_id())) {
            stream->is_broken = true;
            return true;
        }
    }
    return false;
}

void drain(Stream* stream, uint64_t to) {
    while (stream->done < to && !stream->queue.empty()) {
        auto run = std::move(stream->queue.front());
        stream->queue.pop_front();
        stream->done++;
        if (failed == 0) run();
    }
}

// The pool gives back what is free beyond its threshold.
void trim() {
    uint64_t kept = 0;
    for (auto at = blocks.begin(); at != blocks.end();) {
        const bool goes = at->second.is_free && kept + at->second.bytes > threshold;
        if (at->second.is_free && !goes) kept += at->second.bytes;
        if (!goes) {
            ++at;
            continue;
        }
        counts["returned"]++;
        free(reinterpret_cast<void*>(at->first));
        at = blocks.erase(at);
    }
}

int wait_for(Stream* stream) {
    if (stream->captured) {
        stream->is_broken = true;
        return CAPTURE_UNSUPPORTED;
    }
    drain(stream, stream->given);
    now = std::max(now, stream->ready);
    trim();
    return failed;
}

int give(Stream* stream, double microseconds, std::function<void()> run) {
    if (stream->captured) {
        if (stream->is_broken) return CAPTURE_INVALIDATED;
        stream->captured->nodes.push_back({microseconds, std::move(run)});
        return SUCCESS;
    }
    stream->ready = std::max(stream->ready, now) + microseconds;
    stream->queue.push_back(std::move(run));
    stream->given++;
    return failed;
}

// The memory of the device, or pinned memory, in which all these bytes are.
Block* block_of(uintptr_t address, size_t bytes) {
    auto at = blocks.upper_bound(address);
    if (at == blocks.begin()) return nullptr;
    --at;
    const bool holds = !at->second.is_free && address + bytes <= at->first + at->second.bytes;
    return holds ? &at->second : nullptr;
}

double copied(size_t bytes) { return 1 + static_cast<double>(bytes) / 20000; }

int allocate(uintptr_t* to, size_t bytes, bool is_pinned, Stream* stream) {
    if (bytes == 0) return INVALID_VALUE;
    const size_t size = (bytes + 511) / 512 * 512;
    for (auto& [address, block] : blocks) {
        if (block.is_free && stream != nullptr && block.stream == stream && block.bytes == size) {
            block.is_free = false;
            *to = address;
            return SUCCESS;
        }
    }
    void* memory = nullptr;
    if (posix_memalign(&memory, 512, size) != 0) return OUT_OF_MEMORY;
    memset(memory, 0xFF, size);
    counts[is_pinned ? "pinned" : "taken"]++;
    *to = reinterpret_cast<uintptr_t>(memory);
    blocks[*to] = {size, is_pinned, false, nullptr};
    return SUCCESS;
}

int copy(uintptr_t to, uintptr_t from, size_t bytes, Stream* stream, bool to_host, bool from_host) {
    if ((!to_host && !block_of(to, bytes)) || (!from_host && !block_of(from, bytes))) return INVALID_VALUE;
    if (from_host && !block_of(from, bytes)) counts["pageable_uploads"]++;
    if (to_host && !block_of(to, bytes)) counts["pageable_downloads"]++;
    return give(stream, copied(bytes), [=] {
        // Memory that is not there any more is an error, not a fault of the process.
        iovec local = {reinterpret_cast<void*>(to), bytes}, remote = {reinterpret_cast<void*>(from), bytes};
        if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != static_cast<ssize_t>(bytes)) failed = ILLEGAL_ADDRESS;
    });
}

struct AtExit {
    ~AtExit() {
        const char* path = getenv("MOCK_CUDA_COUNTS");
        FILE* file = path == nullptr ? nullptr : fopen(path, "w");
        if (file == nullptr) return;
        for (const auto& [name, count] : counts) fprintf(file, "%s %ld\n", name.c_str(), count);
        fclose(file);
    }
} at_exit;

} // namespace
