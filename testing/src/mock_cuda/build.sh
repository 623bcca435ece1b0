#!/bin/sh
# Builds the mocked CUDA: build.sh HEADERS FOLDER, where HEADERS is the folder of the emulator's headers. Programs find it
# with LD_LIBRARY_PATH=FOLDER and PLANISH_CUDA_LIB=FOLDER. Set XDG_CACHE_HOME to a folder of its own too: the code of the
# mocked NVRTC is for the mocked driver only.
set -e
here=$(cd "$(dirname "$0")" && pwd)
flags="-std=c++17 -O2 -shared -fPIC -Wall -Wextra"
mkdir -p "$2"
c++ $flags "$here/libcuda.cpp" -Wl,-soname,libcuda.so.1 -ldl -o "$2/libcuda.so.1"
ln -sf libcuda.so.1 "$2/libcuda.so"
c++ $flags -DMOCK_HEADERS="\"$1\"" "$here/libnvrtc.cpp" -L"$2" -lcuda -Wl,-soname,libnvrtc.so.13 -o "$2/libnvrtc.so.13" &
nvrtc=$!
c++ $flags -mf16c "$here/libcublasLt.cpp" -L"$2" -lcuda -Wl,-soname,libcublasLt.so.13 -o "$2/libcublasLt.so.13"
wait $nvrtc
