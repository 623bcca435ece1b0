// What the libraries of the mocked CUDA share. libcuda.cpp describes the model.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>

#define API extern "C" __attribute__((visibility("default")))

// A number of the environment.
inline long mock_number(const char* name, long otherwise) {
    const char* text = getenv(name);
    return text == nullptr || *text == 0 ? otherwise : strtol(text, nullptr, 10);
}

// Code as the mocked NVRTC makes it: this, and a shared library of the processor after it.
struct MockCode {
    char magic[8];     // "MOCKCODE"
    int is_virtual;    // Whether it is PTX.
    int architecture;  // E.g. 80.
    uint64_t bytes;    // Of the library.
};

// Counts a call; returns the error that MOCK_CUDA_FAIL names for it, or 0.
API int mock_call(const char* name);
// Gives work to a stream, which takes a time in microseconds of the mocked clock.
API int mock_give(void* stream, double microseconds, const std::function<void()>& work);
// Whether the memory at an address is in the level 2 cache. Puts it there.
API bool mock_cached(void* stream, const void* address);
