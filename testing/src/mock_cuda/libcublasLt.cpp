// A mocked cublasLt: products on the host's processor, in the order of a stream of the mocked driver.
//
// Each product has three algorithms. The first is the fastest where the matrix A of cublasLt is in the level 2 cache, the
// second where it is not, but takes long when it runs for the first time; the third fails. MOCK_CUBLASLT_VERSION is the
// version.
#include <cmath>
#include <cstring>
#include <map>

#include "mock.h"

namespace {

enum { SUCCESS = 0, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum { F32 = 0, F16 = 2, I8 = 3, I32 = 10, BF16 = 14 };
const uint64_t MAGIC = 0x4d4f434bu;

struct Layout {
    int type;
    uint64_t rows, columns;
    int64_t leading;
    int32_t batch = 1;
    int64_t stride = 0;
};
struct Operation {
    int compute, scale;
    int32_t transposed[2] = {0, 0}, epilogue = 1, bias_type = -1;
    const void* bias = nullptr;
};
struct Algorithm {
    uint64_t data[8];
};
struct Result {
    Algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

float half(uint16_t bits, int type) {
    if (type == F16) {
        _Float16 value;
        memcpy(&value, &bits, 2);
        return static_cast<float>(value);
    }
    const uint32_t wide = uint32_t(bits) << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
}
double element(const void* start, int64_t at, int type) {
    switch (type) {
        case F32: return static_cast<const float*>(start)[at];
        case I32: return static_cast<const int32_t*>(start)[at];
        case I8: return static_cast<const int8_t*>(start)[at];
        default: return half(static_cast<const uint16_t*>(start)[at], type);
    }
}
void set(void* start, int64_t at, int type, double value) {
    if (type == F32) {
        static_cast<float*>(start)[at] = static_cast<float>(value);
    } else if (type == I32) {
        static_cast<int32_t*>(start)[at] = static_cast<int32_t>(value);
    } else if (type == F16) {
        const _Float16 narrow = static_cast<_Float16>(static_cast<float>(value));
        memcpy(static_cast<uint16_t*>(start) + at, &narrow, 2);
    } else {
        const float wide = static_cast<float>(value);
        uint32_t bits;
        memcpy(&bits, &wide, 4);
        bits += std::isnan(wide) ? 0 : 0x7fff + (bits >> 16 & 1);
        static_cast<uint16_t*>(start)[at] = static_cast<uint16_t>(bits >> 16);
    }
}
float scalar(const void* at, int type) {
    return type == I32 ? static_cast<float>(*static_cast<const int32_t*>(at)) : *static_cast<const float*>(at);
}

void multiply(const Operation& how, float alpha, const void* a, const Layout& la, const void* b, const Layout& lb, float beta,
              const void* c, void* d, const Layout& ld) {
    const int64_t inner = static_cast<int64_t>(how.transposed[0] ? la.rows : la.columns);
    const int bias_type = how.bias_type >= 0 ? how.bias_type : ld.type;
    for (int32_t batch = 0; batch < ld.batch; batch++) {
        for (int64_t column = 0; column < static_cast<int64_t>(ld.columns); column++) {
            for (int64_t row = 0; row < static_cast<int64_t>(ld.rows); row++) {
                const int64_t x = batch * la.stride + (how.transposed[0] ? row * la.leading : row);
                const int64_t y = batch * lb.stride + (how.transposed[1] ? column : column * lb.leading);
                const int64_t x_step = how.transposed[0] ? 1 : la.leading, y_step = how.transposed[1] ? lb.leading : 1;
                double sum = 0;
                for (int64_t k = 0; k < inner; k++) {
                    sum += element(a, x + k * x_step, la.type) * element(b, y + k * y_step, lb.type);
                }
                const int64_t at = batch * ld.stride + column * ld.leading + row;
                double value = alpha * sum;
                if (beta != 0) value += beta * element(c, at, ld.type);
                if (how.epilogue & 4) value += element(how.bias, row, bias_type);
                if (how.epilogue & 2) value = value > 0 ? value : 0;
                if (how.epilogue & 32) {
                    value = 0.5 * value * (1 + tanh(0.7978845608028654 * (value + 0.044715 * value * value * value)));
                }
                set(d, at, ld.type, value);
            }
        }
    }
}

} // namespace

API size_t cublasLtGetVersion() { return static_cast<size_t>(mock_number("MOCK_CUBLASLT_VERSION", 130000)); }
API int cublasLtCreate(void** to) { if (mock_call("cublasLtCreate")) return 1; *to = new char; return SUCCESS; }
API int cublasLtDestroy(char* handle) { delete handle; return SUCCESS; }
API int cublasLtMatmulDescCreate(Operation** to, int compute, int scale) {
    *to = new Operation{compute, scale};
    return SUCCESS;
}
API int cublasLtMatmulDescDestroy(Operation* operation) { delete operation; return SUCCESS; }
API int cublasLtMatmulDescSetAttribute(Operation* operation, int which, const void* value, size_t bytes) {
    void* to = which == 3   ? static_cast<void*>(&operation->transposed[0])
               : which == 4 ? static_cast<void*>(&operation->transposed[1])
               : which == 7 ? static_cast<void*>(&operation->epilogue)
               : which == 8 ? static_cast<void*>(&operation->bias)
               : which == 26 ? static_cast<void*>(&operation->bias_type)
                             : nullptr;
    if (to == nullptr || bytes != (which == 8 ? 8u : 4u)) return INVALID_VALUE;
    memcpy(to, value, bytes);
    return SUCCESS;
}
API int cublasLtMatrixLayoutCreate(Layout** to, int type, uint64_t rows, uint64_t columns, int64_t leading) {
    *to = new Layout{type, rows, columns, leading};
    return SUCCESS;
}
API int cublasLtMatrixLayoutDestroy(Layout* layout) { delete layout; return SUCCESS; }
API int cublasLtMatrixLayoutSetAttribute(Layout* layout, int which, const void* value, size_t bytes) {
    if (which == 5 && bytes == 4) memcpy(&layout->batch, value, 4);
    else if (which == 6 && bytes == 8) memcpy(&layout->stride, value, 8);
    else return INVALID_VALUE;
    return SUCCESS;
}
API int cublasLtMatmulPreferenceCreate(char** to) { *to = new char; return SUCCESS; }
API int cublasLtMatmulPreferenceDestroy(char* preference) { delete preference; return SUCCESS; }
API int cublasLtMatmulPreferenceSetAttribute(char*, int, const void*, size_t) { return SUCCESS; }
API int cublasLtMatmulAlgoGetHeuristic(void*, Operation*, Layout*, Layout*, Layout*, Layout*, void*, int most, Result* to,
                                       int* count) {
    if (mock_call("cublasLtMatmulAlgoGetHeuristic")) return NOT_SUPPORTED;
    *count = most < 3 ? most : 3;
    for (int at = 0; at < *count; at++) to[at] = {{{MAGIC, static_cast<uint64_t>(at)}}, 0, SUCCESS, 1, {}};
    return SUCCESS;
}
API int cublasLtMatmulAlgoCheck(void*, Operation*, Layout*, Layout*, Layout*, Layout*, const Algorithm* algorithm, Result* to) {
    if (mock_call("cublasLtMatmulAlgoCheck")) return NOT_SUPPORTED;
    const bool is_own = algorithm->data[0] == MAGIC && algorithm->data[1] < 3;
    *to = {*algorithm, 0, is_own ? SUCCESS : INVALID_VALUE, 1, {}};
    return to->state;
}
API int cublasLtMatmul(void*, Operation* operation, const void* alpha, const void* a, Layout* la, const void* b, Layout* lb,
                       const void* beta, const void* c, Layout*, void* d, Layout* ld, const Algorithm* algorithm, void*, size_t,
                       void* stream) {
    if (mock_call("cublasLtMatmul")) return EXECUTION_FAILED;
    if (algorithm->data[0] != MAGIC || algorithm->data[1] > 1) return NOT_SUPPORTED;
    const uint64_t columns = operation->transposed[1] ? lb->rows : lb->columns;
    const uint64_t rows = operation->transposed[0] ? la->columns : la->rows;
    if (rows != ld->rows || columns != ld->columns) return INVALID_VALUE;
    static std::map<uint64_t, int> runs;
    const bool is_second = algorithm->data[1] == 1, is_first_run = runs[algorithm->data[1]]++ < 2;
    const double warm = is_second ? 10 : 5, cold = is_second ? (is_first_run ? 500 : 15) : 30;
    const double time = mock_cached(stream, a) ? warm : cold;
    mock_call(is_second ? "second_algorithm" : "first_algorithm");
    const float x = scalar(alpha, operation->scale), y = scalar(beta, operation->scale);
    const auto work = [how = *operation, x, a, la = *la, b, lb = *lb, y, c, d, ld = *ld] {
        multiply(how, x, a, la, b, lb, y, c, d, ld);
    };
    return mock_give(stream, time, work) == 0 ? SUCCESS : EXECUTION_FAILED;
}
