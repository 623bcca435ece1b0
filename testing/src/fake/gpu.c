/* A CUDA driver with one GPU, whose memory is the host's, and a TensorRT-RTX with one engine: as far as sessions call them.
 *
 * The engine has the inputs `ids`, int64[rows, columns] on the GPU, and `add`, int32[1] in the host's memory, and the output
 * `y`, f32[rows, columns] = ids + add. What is called is written to a log; the test says what fails. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the test says and reads. */
int fake_capability = 89;
int fake_not_capturable = 0;   /* isStreamCapturable says no */
int fake_fails_in_capture = 0; /* 1: enqueueV3 fails while the stream records; 2: the recording does */
int fake_graph_is_empty = 0;   /* a launched graph computes nothing */
int fake_fails = 0;            /* the next enqueueV3 fails, without a word */
int fake_host_output = 0;      /* the output is in the host's memory */
int fake_system_allocations = 0;
char fake_log[1 << 16];

__attribute__((constructor)) static void from_environment(void) {
    const char *capability = getenv("FAKE_GPU_CAPABILITY");
    if (capability) fake_capability = atoi(capability);
}

static void logged(const char *text) {
    if (strlen(fake_log) + strlen(text) + 2 < sizeof fake_log) { strcat(fake_log, text); strcat(fake_log, "\n"); }
}

/* The driver. Work is done when it is enqueued, or recorded. Freed memory is kept in a pool, which a synchronization empties
 * unless the threshold of release says otherwise. */
typedef int Result;
typedef uint64_t Address;
static void *context = &context;
static int capturing = 0, recorded = 0;
static uint64_t threshold = 0;
static struct Block { Address address; size_t bytes; int free; } blocks[4096];
static int block_count = 0;

Result cuInit(unsigned f) { (void)f; return 0; }
Result cuDriverGetVersion(int *v) { *v = 13000; return 0; }
Result cuDeviceGetCount(int *n) { *n = 1; return 0; }
Result cuDeviceGet(int *d, int i) { *d = i; return 0; }
Result cuDeviceGetName(char *to, int n, int d) { (void)d; snprintf(to, n, "A fake GPU"); return 0; }
Result cuDeviceGetAttribute(int *v, int attribute, int d) {
    (void)d;
    *v = attribute == 75 ? fake_capability / 10 : attribute == 76 ? fake_capability % 10 : attribute == 115 ? 1 : 0;
    return 0;
}
Result cuDeviceGetUuid_v2(unsigned char *to, int d) {
    (void)d;
    for (int i = 0; i < 16; i++) to[i] = i == 15 ? 0xff : i;
    return 0;
}
Result cuDevicePrimaryCtxRetain(void **c, int d) { (void)d; *c = context; return 0; }
Result cuDevicePrimaryCtxRelease_v2(int d) { (void)d; return 0; }
Result cuCtxGetCurrent(void **c) { *c = context; return 0; }
Result cuCtxSetCurrent(void *c) { (void)c; return 0; }
Result cuStreamCreate(void **s, unsigned f) { (void)f; *s = malloc(1); return 0; }
Result cuStreamDestroy_v2(void *s) { free(s); return 0; }
Result cuDeviceGetMemPool(void **p, int d) { (void)d; *p = blocks; return 0; }
Result cuMemPoolSetAttribute(void *p, int attribute, void *v) {
    (void)p;
    if (attribute == 4) threshold = *(uint64_t *)v;
    return 0;
}
Result cuMemAllocAsync(Address *a, size_t bytes, void *s) {
    (void)s;
    for (int i = 0; i < block_count; i++)
        if (blocks[i].free && blocks[i].bytes == bytes) { blocks[i].free = 0; *a = blocks[i].address; return 0; }
    if (block_count == 4096) return 2;
    fake_system_allocations++;
    *a = (Address)calloc(1, bytes);
    blocks[block_count++] = (struct Block){*a, bytes, 0};
    return 0;
}
Result cuMemFreeAsync(Address a, void *s) {
    (void)s;
    for (int i = 0; i < block_count; i++) if (blocks[i].address == a) blocks[i].free = 1;
    return 0;
}
Result cuStreamSynchronize(void *s) {
    (void)s;
    if (capturing) return 900;
    for (int i = 0; threshold == 0 && i < block_count;)
        if (blocks[i].free) { free((void *)blocks[i].address); blocks[i] = blocks[--block_count]; } else i++;
    return 0;
}
Result cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t n, void *s) { (void)s; memcpy((void *)to, from, n); return 0; }
Result cuMemcpyDtoHAsync_v2(void *to, Address from, size_t n, void *s) { (void)s; memcpy(to, (void *)from, n); return 0; }
Result cuStreamBeginCapture_v2(void *s, int mode) { (void)s; (void)mode; logged("begin capture"); capturing = 1; recorded = 0; return 0; }
Result cuStreamEndCapture(void *s, void **graph) {
    (void)s;
    logged("end capture");
    int status = capturing;
    capturing = 0;
    *graph = status == 1 && recorded ? graph : 0;
    return status == 2 ? 901 : 0;
}
Result cuStreamIsCapturing(void *s, int *status) { (void)s; *status = capturing; return 0; }
Result cuGraphInstantiateWithFlags(void **e, void *g, unsigned long long f) { (void)g; (void)f; *e = e; return 0; }
Result cuGraphDestroy(void *g) { (void)g; return 0; }
Result cuGraphExecDestroy(void *e) { (void)e; return 0; }
static void compute(void);
Result cuGraphLaunch(void *e, void *s) { (void)e; (void)s; logged("launch"); if (!fake_graph_is_empty) compute(); return 0; }
Result cuEventCreate(void **e, unsigned f) { (void)f; *e = malloc(1); return 0; }
Result cuEventDestroy_v2(void *e) { free(e); return 0; }
Result cuEventRecord(void *e, void *s) { (void)e; (void)s; return 0; }
Result cuEventSynchronize(void *e) { (void)e; return 0; }
Result cuEventElapsedTime_v2(float *ms, void *a, void *b) { (void)a; (void)b; *ms = 0.25f; return 0; }
Result cuGetErrorName(int e, const char **t) { (void)e; *t = "CUDA_ERROR_FAKE"; return 0; }
Result cuGetErrorString(int e, const char **t) { *t = e == 901 ? "the capture is invalid" : "a fake error"; return 0; }

/* TensorRT-RTX. An object has the table of its destructors and its implementation, whose table begins with destructors too. */
typedef struct { int32_t rank; int64_t sizes[8]; } Dims;
typedef struct { void **methods; void *implementation; } Object;
static void nothing(void) {}
static void missing(void) { fprintf(stderr, "the fake TensorRT-RTX lacks a method that was called\n"); abort(); }
static void *runtime_methods[64], *engine_methods[64], *config_methods[64], *context_methods[64], *cache_methods[64];
static void *destructors[2] = {(void *)nothing, (void *)nothing};
static struct { void **methods; } runtime_impl = {runtime_methods}, engine_impl = {engine_methods},
                                  config_impl = {config_methods}, context_impl = {context_methods};
static Object runtime = {destructors, &runtime_impl}, engine = {destructors, &engine_impl},
              config = {destructors, &config_impl}, execution = {destructors, &context_impl};

static const char *names[3] = {"ids", "add", "y"};
static void *addresses[3];
static Dims shapes[3];
static void *logger;

static int named(const char *name) {
    for (int i = 0; i < 3; i++) if (!strcmp(names[i], name)) return i;
    abort();
}
static void error(const char *text) {
    typedef void (*Log)(void *, int32_t, const char *);
    ((Log)(*(void ***)logger)[4])(logger, 1, text); /* after the two methods and the two destructors of IVersionedInterface */
}
static void compute(void) {
    const int64_t *ids = addresses[0];
    float *y = addresses[2];
    int64_t count = shapes[0].sizes[0] * shapes[0].sizes[1];
    for (int64_t i = 0; i < count; i++) y[i] = (float)(ids[i] + *(int32_t *)addresses[1]);
}

static void *deserialize(void *t, const void *b, size_t n) { (void)t; (void)b; (void)n; return &engine; }
static int32_t engine_profiles(void *t) { (void)t; return 1; }
static int32_t io_count(void *t) { (void)t; return 3; }
static const char *io_name(void *t, int32_t i) { (void)t; return names[i]; }
static Dims engine_shape(void *t, const char *name) {
    (void)t;
    return named(name) == 1 ? (Dims){1, {1}} : (Dims){2, {-1, -1}};
}
static Dims profile_shape(void *t, const char *name, int32_t p, int32_t which) {
    (void)t; (void)p;
    int64_t size = which == 0 ? 1 : which == 1 ? 8 : 64; /* kMIN, kOPT, kMAX */
    return named(name) == 1 ? (Dims){1, {1}} : (Dims){2, {size, size}};
}
static int32_t dtype(void *t, const char *name) { (void)t; int i = named(name); return i == 0 ? 8 : i == 1 ? 3 : 0; }
static int32_t location(void *t, const char *name) { (void)t; int i = named(name); return i == 1 || (i == 2 && fake_host_output); }
static int32_t io_mode(void *t, const char *name) { (void)t; return named(name) == 2 ? 2 : 1; }
static int64_t streamable(void *t) { (void)t; return 0; }
static void *create_config(void *t) { (void)t; logged("create config"); return &config; }
static void *create_context(void *t, void *c) { (void)t; logged(c == &config ? "create context with config" : "create context"); return &execution; }
static void set_allocation(void *t, int32_t s) { (void)t; logged(s == 0 ? "allocation static" : "allocation other"); }
static void set_specialization(void *t, int32_t s) { (void)t; logged(s == 0 ? "lazy" : s == 1 ? "eager" : "none"); }
static _Bool set_graphs(void *t, int32_t s) { (void)t; logged(s == 0 ? "graphs disabled" : "graphs whole"); return 1; }
static void *create_cache(void *t) { (void)t; return 0; }
static _Bool set_shape(void *t, const char *name, const Dims *dims) {
    (void)t;
    shapes[named(name)] = *dims;
    if (named(name) == 0) shapes[2] = *dims;
    return 1;
}
static Dims context_shape(void *t, const char *name) { (void)t; return shapes[named(name)]; }
static _Bool set_address(void *t, const char *name, void *to) {
    (void)t;
    int on_gpu = 0;
    for (int i = 0; i < block_count; i++) on_gpu |= blocks[i].address == (Address)to;
    if (on_gpu == location(t, name)) logged("an address in the wrong memory");
    addresses[named(name)] = to;
    return 1;
}
static _Bool enqueue(void *t, void *s) {
    (void)t; (void)s;
    logged("enqueue");
    if (fake_fails) { fake_fails = 0; return 0; }
    if (capturing && fake_fails_in_capture) { error("it cannot be captured"); capturing = 2; return fake_fails_in_capture == 2; }
    if (capturing) recorded = 1; else compute();
    return 1;
}
static _Bool is_capturable(void *t, void *s) { (void)t; (void)s; logged("is capturable"); return !fake_not_capturable; }

int getInferLibMajorVersion(void) { return 1; }
int getInferLibMinorVersion(void) { return 7; }
int getInferLibPatchVersion(void) { return 0; }
int getInferLibBuildVersion(void) { return 9; }
void *createInferRuntime_INTERNAL(void *of, int version) {
    (void)version;
    logged("create runtime");
    logger = of;
    void **tables[] = {runtime_methods, engine_methods, config_methods, context_methods, cache_methods};
    for (int t = 0; t < 5; t++) for (int i = 0; i < 64; i++) tables[t][i] = (void *)missing;
    /* The places of methods in NvInferImpl.h of version 1.7, after two destructors. */
    runtime_methods[3] = (void *)deserialize;
    engine_methods[8] = (void *)engine_profiles;
    engine_methods[15] = (void *)engine_shape;
    engine_methods[16] = (void *)dtype;
    engine_methods[17] = (void *)location;
    engine_methods[19] = (void *)io_mode;
    engine_methods[25] = (void *)profile_shape;
    engine_methods[26] = (void *)io_count;
    engine_methods[27] = (void *)io_name;
    engine_methods[38] = (void *)streamable;
    engine_methods[47] = (void *)create_context;
    engine_methods[48] = (void *)create_config;
    config_methods[3] = (void *)set_allocation;
    config_methods[5] = (void *)create_cache;
    config_methods[8] = (void *)set_specialization;
    config_methods[10] = (void *)set_graphs;
    context_methods[20] = (void *)set_shape;
    context_methods[21] = (void *)context_shape;
    context_methods[23] = (void *)set_address;
    context_methods[36] = (void *)enqueue;
    context_methods[52] = (void *)is_capturable;
    return &runtime;
}
