// A mocked NVRTC. Its machine code is the kernel as the host's C++ compiler compiles it, with the headers of the emulator
// (MOCK_HEADERS when this is built). MOCK_NVRTC_ARCHS are the architectures that it knows, MOCK_NVRTC_VERSION its version.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "mock.h"

namespace {

enum { SUCCESS = 0, INVALID_OPTION = 5, COMPILATION = 6 };

struct Program {
    std::string source, log, code;
    bool is_virtual = false;
};

std::vector<int> architectures() {
    const char* named = getenv("MOCK_NVRTC_ARCHS");
    std::stringstream all(named == nullptr ? "75 80 86 87 88 89 90 100 103 110 120 121" : named);
    std::vector<int> found;
    for (int one; all >> one;) found.push_back(one);
    return found;
}

std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

} // namespace

API int nvrtcVersion(int* major, int* minor) {
    const long version = mock_number("MOCK_NVRTC_VERSION", 13099);
    *major = static_cast<int>(version / 1000);
    *minor = static_cast<int>(version % 1000);
    return SUCCESS;
}
API int nvrtcGetNumSupportedArchs(int* count) { *count = static_cast<int>(architectures().size()); return SUCCESS; }
API int nvrtcGetSupportedArchs(int* to) {
    for (const int one : architectures()) *to++ = one;
    return SUCCESS;
}
API const char* nvrtcGetErrorString(int) { return "an error of the mocked NVRTC"; }
API int nvrtcCreateProgram(Program** to, const char* source, const char*, int, const char* const*, const char* const*) {
    *to = new Program{source, "", "", false};
    return SUCCESS;
}
API int nvrtcDestroyProgram(Program** program) { delete *program; *program = nullptr; return SUCCESS; }
API int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
    if (const int error = mock_call("nvrtcCompileProgram")) return error;
    int architecture = 0;
    for (int at = 0; at < count; at++) {
        const char* value = strstr(options[at], "--gpu-architecture=");
        if (value == nullptr) continue;
        program->is_virtual = strstr(value, "compute_") != nullptr;
        architecture = atoi(strchr(value, '_') + 1);
    }
    bool is_known = false;
    for (const int one : architectures()) is_known |= one == architecture;
    if (!is_known) {
        program->log = "nvrtc: error: invalid value for --gpu-architecture (-arch)";
        return INVALID_OPTION;
    }
    char folder[] = "/tmp/mock_nvrtc.XXXXXX";
    if (mkdtemp(folder) == nullptr) return COMPILATION;
    const std::string at = folder, source = at + "/kernel.cpp", library = at + "/kernel.so", log = at + "/log";
    std::ofstream(source) << program->source;
    const std::string command = "c++ -std=c++17 -O1 -shared -fPIC -DPLANISH_HOST -I'" MOCK_HEADERS "' '" + source + "' -o '" +
                                library + "' >'" + log + "' 2>&1";
    const bool is_done = system(command.c_str()) == 0;
    program->log = contents(log);
    MockCode header = {{'M', 'O', 'C', 'K', 'C', 'O', 'D', 'E'}, program->is_virtual, architecture, 0};
    const std::string code = contents(library);
    header.bytes = code.size();
    program->code = std::string(reinterpret_cast<const char*>(&header), sizeof header) + code;
    for (const auto& file : {source, library, log}) unlink(file.c_str());
    rmdir(folder);
    return is_done ? SUCCESS : COMPILATION;
}
API int nvrtcGetProgramLogSize(Program* program, size_t* bytes) { *bytes = program->log.size() + 1; return SUCCESS; }
API int nvrtcGetProgramLog(Program* program, char* to) {
    memcpy(to, program->log.c_str(), program->log.size() + 1);
    return SUCCESS;
}
API int nvrtcGetCUBINSize(Program* program, size_t* bytes) {
    *bytes = program->is_virtual ? 0 : program->code.size();
    return SUCCESS;
}
API int nvrtcGetCUBIN(Program* program, char* to) {
    if (program->is_virtual) return INVALID_OPTION;
    memcpy(to, program->code.data(), program->code.size());
    return SUCCESS;
}
API int nvrtcGetPTXSize(Program* program, size_t* bytes) { *bytes = program->code.size() + 1; return SUCCESS; }
API int nvrtcGetPTX(Program* program, char* to) {
    memcpy(to, program->code.c_str(), program->code.size() + 1);
    return SUCCESS;
}
