// A mocked CUDA driver: a GPU whose memory is the host's and whose kernels the host's processor runs.
//
// It does late what a driver may do late, and forbids what a driver may forbid. Work of a stream runs when something waits
// for it, in order, and reads pageable memory only then. The pool of asynchronous memory gives what is free back at each
// synchronization, but for as much as its release threshold says. A stream that is captured records what any thread gives
// it, and waiting for it breaks the capture. Time is counted, not measured: a call takes the host MOCK_CUDA_CALL_US (5)
// microseconds, a kernel the GPU 10, a copy 1 and one more for each 20000 bytes, the kernel `spin` what its argument says.
//
// MOCK_CUDA_FAIL names calls that fail, as FUNCTION:COUNT:ERROR,...: the COUNT-th call, from 1. MOCK_CUDA_ARCH is the compute
// capability (80), MOCK_CUDA_VERSION the version of the driver (13000).
#include <dlfcn.h>
#include <sys/mman.h>

#include "device.h"

API int mock_call(const char* name) {
    std::lock_guard<std::recursive_mutex> held(lock);
    const long count = ++counts[name];
    now += static_cast<double>(mock_number("MOCK_CUDA_CALL_US", 5));
    const char* fails = getenv("MOCK_CUDA_FAIL");
    const std::string wanted = std::string(name) + ":" + std::to_string(count) + ":";
    for (const char* at = fails; at != nullptr && *at != 0;) {
        if (strncmp(at, wanted.c_str(), wanted.size()) == 0) return atoi(at + wanted.size());
        at = strchr(at, ',');
        if (at != nullptr) at++;
    }
    return 0;
}
API int mock_give(void* stream, double microseconds, const std::function<void()>& work) {
    std::lock_guard<std::recursive_mutex> held(lock);
    return give(static_cast<Stream*>(stream), microseconds, work);
}
API bool mock_cached(void* stream, const void* address) {
    std::lock_guard<std::recursive_mutex> held(lock);
    return std::exchange(static_cast<Stream*>(stream)->cached, address) == address;
}
// How often a function was called, or something happened.
API long mock_count(const char* name) {
    std::lock_guard<std::recursive_mutex> held(lock);
    return counts[name];
}

#define ENTER(name)                                          \
    std::lock_guard<std::recursive_mutex> held(lock);        \
    if (const int error = mock_call(#name)) return error
#define UNSAFE if (is_unsafe_now()) return CAPTURE_UNSUPPORTED

API int cuInit(unsigned) { ENTER(cuInit); return SUCCESS; }
API int cuDriverGetVersion(int* version) {
    *version = static_cast<int>(mock_number("MOCK_CUDA_VERSION", 13000));
    return SUCCESS;
}
API int cuDeviceGetCount(int* count) { ENTER(cuDeviceGetCount); *count = 1; return SUCCESS; }
API int cuDeviceGet(int* device, int) { ENTER(cuDeviceGet); *device = 0; return SUCCESS; }
API int cuDeviceGetName(char* name, int bytes, int) {
    ENTER(cuDeviceGetName);
    snprintf(name, static_cast<size_t>(bytes), "mocked GPU");
    return SUCCESS;
}
API int cuDeviceTotalMem_v2(size_t* bytes, int) { ENTER(cuDeviceTotalMem); *bytes = size_t(8) << 30; return SUCCESS; }
API int cuMemGetInfo_v2(size_t* free, size_t* total) { ENTER(cuMemGetInfo); *free = *total = size_t(8) << 30; return 0; }
API int cuDeviceGetUuid_v2(char* uuid, int) { ENTER(cuDeviceGetUuid); memset(uuid, 7, 16); return SUCCESS; }
API int cuDeviceGetAttribute(int* value, int attribute, int) {
    ENTER(cuDeviceGetAttribute);
    const int architecture = static_cast<int>(mock_number("MOCK_CUDA_ARCH", 80));
    switch (attribute) {
        case 16: *value = 4; break;                    // MULTIPROCESSOR_COUNT
        case 38: *value = int(L2); break;              // L2_CACHE_SIZE
        case 75: *value = architecture / 10; break;    // COMPUTE_CAPABILITY_MAJOR
        case 76: *value = architecture % 10; break;    // COMPUTE_CAPABILITY_MINOR
        case 81: *value = 164 << 10; break;            // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
        case 97: *value = 163 << 10; break;            // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        case 106: *value = 32; break;
        case 115: *value = 1; break;                   // MEMORY_POOLS_SUPPORTED
        default: *value = 0;
    }
    return SUCCESS;
}
API int cuGetErrorString(int error, const char** text) {
    static const std::map<int, const char*> texts = {
        {1, "invalid argument"}, {2, "out of memory"}, {209, "no kernel image is available for execution on the device"},
        {218, "a PTX JIT compilation failed"}, {500, "named symbol not found"}, {700, "an illegal memory access was encountered"},
        {719, "unspecified launch failure"}, {900, "operation not permitted when stream is capturing"},
        {901, "operation failed due to a previous error during capture"}};
    const auto found = texts.find(error);
    *text = found == texts.end() ? "an error of the mock" : found->second;
    return SUCCESS;
}
API int cuGetErrorName(int error, const char** text) { return cuGetErrorString(error, text); }

API int cuDevicePrimaryCtxRetain(void** to, int) { ENTER(cuDevicePrimaryCtxRetain); *to = &context; return SUCCESS; }
API int cuDevicePrimaryCtxRelease_v2(int) { ENTER(cuDevicePrimaryCtxRelease); return SUCCESS; }
API int cuCtxGetCurrent(void** to) { *to = current; return SUCCESS; }
API int cuCtxSetCurrent(void* to) { current = to; return SUCCESS; }
API int cuCtxSynchronize() {
    ENTER(cuCtxSynchronize);
    for (Stream* stream : streams) {
        if (const int error = wait_for(stream)) return error;
    }
    return SUCCESS;
}

API int cuDeviceGetDefaultMemPool(void** pool, int) { ENTER(cuDeviceGetDefaultMemPool); *pool = &threshold; return SUCCESS; }
API int cuDeviceGetMemPool(void** pool, int) { ENTER(cuDeviceGetMemPool); *pool = &threshold; return SUCCESS; }
API int cuMemPoolSetAttribute(void* pool, int attribute, void* value) {
    ENTER(cuMemPoolSetAttribute);
    if (pool != &threshold || attribute != 4) return INVALID_VALUE;
    threshold = *static_cast<uint64_t*>(value);
    return SUCCESS;
}
API int cuMemAllocAsync(uintptr_t* to, size_t bytes, Stream* stream) {
    ENTER(cuMemAllocAsync);
    if (stream->captured) { // A graph would own the memory.
        stream->is_broken = true;
        return CAPTURE_UNSUPPORTED;
    }
    if (const int error = allocate(to, bytes, false, stream)) return error;
    const uintptr_t address = *to;
    return give(stream, 0, [=] { memset(reinterpret_cast<void*>(address), 0xFF, bytes); });
}
API int cuMemFreeAsync(uintptr_t address, Stream* stream) {
    ENTER(cuMemFreeAsync);
    const auto block = blocks.find(address);
    if (block == blocks.end() || block->second.is_free) return INVALID_VALUE;
    block->second.is_free = true;
    block->second.stream = stream;
    return SUCCESS;
}
API int cuMemAlloc_v2(uintptr_t* to, size_t bytes) { ENTER(cuMemAlloc); UNSAFE; return allocate(to, bytes, false, nullptr); }
static int release(uintptr_t address) {
    for (Stream* stream : streams) {
        if (!stream->captured) drain(stream, stream->given);
    }
    if (blocks.erase(address) == 0) return INVALID_VALUE;
    free(reinterpret_cast<void*>(address));
    return SUCCESS;
}
API int cuMemFree_v2(uintptr_t address) { ENTER(cuMemFree); UNSAFE; return release(address); }
API int cuMemHostAlloc(uintptr_t* to, size_t bytes, unsigned) {
    ENTER(cuMemHostAlloc);
    UNSAFE;
    return allocate(to, bytes, true, nullptr);
}
API int cuMemFreeHost(uintptr_t address) { ENTER(cuMemFreeHost); UNSAFE; return release(address); }

API int cuMemcpyHtoDAsync_v2(uintptr_t to, uintptr_t from, size_t bytes, Stream* stream) {
    ENTER(cuMemcpyHtoDAsync);
    return copy(to, from, bytes, stream, false, true);
}
API int cuMemcpyDtoHAsync_v2(uintptr_t to, uintptr_t from, size_t bytes, Stream* stream) {
    ENTER(cuMemcpyDtoHAsync);
    return copy(to, from, bytes, stream, true, false);
}
API int cuMemcpyDtoDAsync_v2(uintptr_t to, uintptr_t from, size_t bytes, Stream* stream) {
    ENTER(cuMemcpyDtoDAsync);
    return copy(to, from, bytes, stream, false, false);
}
API int cuMemcpyAsync(uintptr_t to, uintptr_t from, size_t bytes, Stream* stream) {
    ENTER(cuMemcpyAsync);
    return copy(to, from, bytes, stream, false, false);
}
API int cuMemsetD8Async(uintptr_t to, unsigned char value, size_t bytes, Stream* stream) {
    ENTER(cuMemsetD8Async);
    if (!block_of(to, bytes)) return INVALID_VALUE;
    if (bytes >= 2 * L2) stream->cached = nullptr;
    return give(stream, copied(bytes) / 20, [=] { memset(reinterpret_cast<void*>(to), value, bytes); });
}

API int cuStreamCreate(Stream** to, unsigned) {
    ENTER(cuStreamCreate);
    streams.insert(*to = new Stream());
    return SUCCESS;
}
API int cuStreamDestroy_v2(Stream* stream) {
    ENTER(cuStreamDestroy);
    drain(stream, stream->given);
    for (auto& [_, block] : blocks) {
        if (block.stream == stream) block.stream = nullptr;
    }
    streams.erase(stream);
    delete stream;
    return SUCCESS;
}
API int cuStreamSynchronize(Stream* stream) { ENTER(cuStreamSynchronize); return wait_for(stream); }
API int cuStreamBeginCapture_v2(Stream* stream, int mode) {
    ENTER(cuStreamBeginCapture);
    if (stream->captured) return CAPTURE_UNSUPPORTED;
    stream->captured = std::make_unique<Graph>();
    stream->is_broken = false;
    stream->mode = mode;
    stream->thread = std::this_thread::get_id();
    return SUCCESS;
}
API int cuStreamEndCapture(Stream* stream, Graph** to) {
    std::lock_guard<std::recursive_mutex> held(lock);
    const int error = mock_call("cuStreamEndCapture");
    *to = nullptr;
    if (!stream->captured) return NOT_CAPTURING;
    if (stream->mode != 2 && stream->thread != std::this_thread::get_id()) return CAPTURE_WRONG_THREAD;
    // Also an error ends the capture.
    auto graph = std::move(stream->captured);
    if (error != 0) return error;
    if (stream->is_broken) return CAPTURE_INVALIDATED;
    *to = graph.release();
    return SUCCESS;
}
API int cuStreamIsCapturing(Stream* stream, int* status) {
    *status = !stream->captured ? 0 : stream->is_broken ? 2 : 1;
    return SUCCESS;
}
API int cuGraphInstantiateWithFlags(Graph** to, Graph* graph, unsigned long long) {
    ENTER(cuGraphInstantiate);
    *to = new Graph(*graph);
    return SUCCESS;
}
API int cuGraphDestroy(Graph* graph) { ENTER(cuGraphDestroy); delete graph; return SUCCESS; }
API int cuGraphExecDestroy(Graph* graph) { ENTER(cuGraphExecDestroy); delete graph; return SUCCESS; }
API int cuGraphUpload(Graph*, Stream*) { ENTER(cuGraphUpload); return SUCCESS; }
API int cuGraphLaunch(Graph* graph, Stream* stream) {
    ENTER(cuGraphLaunch);
    for (const Work& node : graph->nodes) {
        if (const int error = give(stream, node.microseconds, node.run)) return error;
    }
    return SUCCESS;
}
API int cuStreamWaitEvent(Stream*, Event* event, unsigned) {
    ENTER(cuStreamWaitEvent);
    if (event->stream) drain(event->stream, event->at);
    return SUCCESS;
}

API int cuEventCreate(Event** to, unsigned) { ENTER(cuEventCreate); *to = new Event(); return SUCCESS; }
API int cuEventDestroy_v2(Event* event) { ENTER(cuEventDestroy); delete event; return SUCCESS; }
API int cuEventRecord(Event* event, Stream* stream) {
    ENTER(cuEventRecord);
    if (stream->captured) return give(stream, 0, [] {});
    if (const int error = give(stream, 0, [] {})) return error;
    *event = {stream, stream->given, stream->ready};
    return SUCCESS;
}
API int cuEventQuery(Event* event) {
    ENTER(cuEventQuery);
    return event->stream && event->stream->done < event->at ? NOT_READY : failed;
}
API int cuEventSynchronize(Event* event) {
    ENTER(cuEventSynchronize);
    if (event->stream == nullptr || streams.count(event->stream) == 0) return failed;
    drain(event->stream, event->at);
    now = std::max(now, event->time);
    return failed;
}
API int cuEventElapsedTime_v2(float* ms, Event* from, Event* to) {
    ENTER(cuEventElapsedTime);
    if (from->stream == nullptr || to->stream == nullptr) return INVALID_HANDLE;
    *ms = static_cast<float>((to->time - from->time) / 1000);
    return SUCCESS;
}
API int cuEventElapsedTime(float* ms, Event* from, Event* to) { return cuEventElapsedTime_v2(ms, from, to); }

API int cuModuleLoadData(Module** to, const void* image) {
    ENTER(cuModuleLoadData);
    const MockCode* code = static_cast<const MockCode*>(image);
    if (strncmp(code->magic, "MOCKCODE", 8) != 0) return INVALID_IMAGE;
    const int own = static_cast<int>(mock_number("MOCK_CUDA_ARCH", 80));
    if (code->architecture > own) return code->is_virtual ? INVALID_PTX : NO_BINARY;
    if (!code->is_virtual && code->architecture / 10 != own / 10) return NO_BINARY;
    counts[code->is_virtual ? "ptx_modules" : "cubin_modules"]++;
    const int file = memfd_create("mock", 0);
    if (write(file, code + 1, code->bytes) != static_cast<ssize_t>(code->bytes)) return INVALID_IMAGE;
    void* library = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
    // The file stays open: the loader tells libraries apart by their paths.
    if (library == nullptr) {
        fprintf(stderr, "the mocked driver: %s\n", dlerror());
        return INVALID_IMAGE;
    }
    *to = new Module{library, {}};
    return SUCCESS;
}
API int cuModuleUnload(Module* module) { ENTER(cuModuleUnload); delete module; return SUCCESS; }
API int cuModuleGetFunction(Function** to, Module* module, const char* name) {
    ENTER(cuModuleGetFunction);
    auto function = std::make_unique<Function>();
    function->name = name;
    void* launch = dlsym(module->library, (std::string("launch_") + name).c_str());
    void* parameters = dlsym(module->library, (std::string("parameters_") + name).c_str());
    if (launch == nullptr || parameters == nullptr) return NOT_FOUND;
    function->launch = reinterpret_cast<decltype(function->launch)>(launch);
    function->parameters = reinterpret_cast<const unsigned* (*)()>(parameters)();
    *to = function.get();
    module->functions.push_back(std::move(function));
    return SUCCESS;
}
API int cuFuncSetAttribute(Function* function, int attribute, int value) {
    ENTER(cuFuncSetAttribute);
    if (attribute != 8) return SUCCESS;
    if (value > 163 << 10) return INVALID_VALUE;
    function->shared = static_cast<unsigned>(value);
    return SUCCESS;
}
API int cuFuncGetAttribute(int* value, int, Function*) { ENTER(cuFuncGetAttribute); *value = 0; return SUCCESS; }
API int cuLaunchKernel(Function* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y,
                       unsigned threads_z, unsigned shared, Stream* stream, void** arguments, void**) {
    ENTER(cuLaunchKernel);
    counts["kernel " + function->name]++;
    const uint64_t all = uint64_t(threads) * threads_y * threads_z;
    if (all == 0 || all > 1024 || x == 0 || y == 0 || z == 0 || y > 65535 || z > 65535 || shared > function->shared) {
        return INVALID_VALUE;
    }
    // The driver reads the arguments before it returns.
    auto values = std::make_shared<std::vector<std::vector<uint64_t>>>();
    for (unsigned at = 0; at < function->parameters[0]; at++) {
        if (arguments[at] == nullptr) return INVALID_VALUE;
        const unsigned bytes = function->parameters[at + 1];
        values->emplace_back((bytes + 7) / 8);
        memcpy(values->back().data(), arguments[at], bytes);
    }
    double time = 10;
    if (function->name == "spin") {
        time = static_cast<double>(values->at(0).at(0)) / 1000;
        counts["spin_ns"] = static_cast<long>(values->at(0).at(0));
    }
    const auto launch = function->launch;
    return give(stream, time, [=] {
        std::vector<void*> pointers;
        for (auto& value : *values) pointers.push_back(value.data());
        const unsigned grid[3] = {x, y, z}, block[3] = {threads, threads_y, threads_z};
        launch(grid, block, shared, pointers.data());
    });
}
