"""The parts that say whether results are right: environment, kernels, goldens."""

import ctypes
import glob
import json
import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Dict, List, Optional

from .sanitizer import sanitizer
from .work import STOPPED, Done, Failed, OutOfTime, Part, Work

PRECISIONS = {"f32": [], "fp16": ["--fp16"], "bf16": ["--bf16"]}
LIBRARIES = ("libnvrtc.so", "libcublasLt.so")
VERIFY_SECONDS = 120


def library_folders() -> List[str]:
    """Folders that may have NVRTC and cublasLt: those of the toolkit, and of NVIDIA's Python packages."""
    places = ["/usr/local/cuda/lib64", "/usr/local/cuda-13*/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"]
    sites = {str(Path(entry)) for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))}
    places += [f"{site}/nvidia/{sub}/lib" for site in sorted(sites) for sub in ("cu13", "cuda_nvrtc", "cublas")]
    found = [folder for place in places for folder in sorted(glob.glob(place), reverse=True)]
    has = lambda folder: any(glob.glob(f"{folder}/{library}*") for library in LIBRARIES)
    return list(dict.fromkeys(folder for folder in found if has(folder)))


def found_libraries(folders: List[str]) -> Dict[str, Optional[str]]:
    """The file of each library in these folders; None where the system's loader has to find it."""
    first = lambda library: next((f for folder in folders for f in sorted(glob.glob(f"{folder}/{library}*"))), None)
    return {library: first(library) for library in LIBRARIES}


def add_libraries(work: Work) -> None:
    """Lets planish find the libraries of CUDA, where the user named no folder."""
    if os.environ.get("PLANISH_CUDA_LIB"):
        return
    folders = library_folders()
    known = os.environ.get("LD_LIBRARY_PATH")
    work.environment["LD_LIBRARY_PATH"] = ":".join(folders + ([known] if known else []))


def driver_version() -> Optional[str]:
    """The CUDA version that the driver takes; None without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    number = ctypes.c_int(0)
    if driver.cuDriverGetVersion(ctypes.byref(number)) != 0:
        return None
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def environment(work: Work, part: Part) -> None:
    """The machine and the versions of everything that takes part."""
    data = part.data
    data["machine"] = {"processor": processor(), "cores": os.cpu_count(), "system": platform.platform()}
    data["python"] = platform.python_version()
    query = "name,driver_version,memory.total,compute_cap,clocks.max.sm,clocks.max.memory,power.limit"
    done = work.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], part.limit(30, "nvidia-smi"))
    if done.code == 0:
        fields = [field.strip() for field in done.output.splitlines()[0].split(",")]
        data["gpu"] = dict(zip(query.replace(".", "_").split(","), fields))
        data["gpus"] = len(done.output.splitlines())
        work.architecture = "sm_" + data["gpu"]["compute_cap"].replace(".", "")
    elif work.device == "cuda":
        part.problems.append(f"nvidia-smi {done.why()}")
    data["cuda_of_driver"] = driver_version()
    data["libraries"] = found_libraries(library_folders())
    version = part.attempt("planish", work.planish_run, ["--version"], part.limit(30, "planish"))
    data["planish"] = version.output.strip() if version else None
    data["runtimes"] = part.attempt("planish runtimes", runtimes, work, part) or []
    lacking = {found["name"]: found["problem"] for found in data["runtimes"] if not found["available"]}
    for name in work.runtimes:
        if name in lacking:
            part.problems.append((lacking[name] or f"{name} is unavailable").splitlines()[0])
    data["sanitizer"] = sanitizer()
    # Its import takes the longest.
    data["torch"] = part.attempt("PyTorch", torch_info, work, part)


def has_gpu(data: Dict, work: Work) -> bool:
    """Whether there is a GPU: by nvidia-smi, which a container may lack, or by planish."""
    return "gpu" in data or any(found["name"] == work.fused and found["available"] for found in data.get("runtimes", []))


def runtimes(work: Work, part: Part) -> List[Dict]:
    """What planish says of each runtime."""
    return json.loads(work.planish_run(["runtimes", "--json"], part.limit(60, "runtimes")).output)


def processor() -> Optional[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), None)


def torch_info(work: Work, part: Part) -> Dict:
    """What PyTorch says of itself."""
    work.need_torch()
    code = (
        "import json, torch; print(json.dumps({'version': torch.__version__, 'cuda': torch.version.cuda, "
        "'sees_gpu': torch.cuda.is_available()}))"
    )
    done = work.run([work.python, "-c", code], part.limit(120, "PyTorch"))
    if done.code != 0:
        raise Failed(done.why())
    info = json.loads(done.output.splitlines()[-1])
    if work.device == "cuda" and not info["sees_gpu"]:
        raise Failed("it sees no GPU")
    return info


def kernels(work: Work, part: Part) -> None:
    """Every kernel against the reference interpreter on random shapes. They are compiled first, several at a time."""
    part.data["runtimes"] = {}
    architecture = work.architecture
    if architecture:
        words = ["runtimes", "--compile-kernels", architecture]
        part.attempt("compiling", work.planish_run, words, part.limit(120, "compiling"))
    for name in work.runtimes:
        found = part.attempt(name, test_kernels, work, part, name)
        if found:
            part.data["runtimes"][name] = found


def test_kernels(work: Work, part: Part, name: str) -> Dict:
    done = work.run([work.planish, "runtimes", "--test-kernels", name], part.limit(300, f"kernels of {name}"))
    lines = [line for line in done.output.splitlines() if line.strip()]
    (work.out / f"kernels-{name}.txt").write_text(done.output + done.errors)
    if done.code != 0:
        raise Failed(done.why())
    return {"seconds": round(done.seconds, 1), "summary": lines[-1].strip() if lines else ""}


def goldens_of(fixtures: Path) -> List[Path]:
    """The folders of small checkpoints."""
    return sorted(config.parent for config in (fixtures / "goldens").glob("*/config.json"))


def goldens(work: Work, part: Part) -> None:
    """Compiles every small checkpoint in each precision, and verifies each artifact on each runtime."""
    models = goldens_of(work.fixtures)
    if not models:
        raise Failed(f"{work.fixtures} has no goldens/*/config.json")
    if work.small:
        models = [model for model in models if model.name in ("bert", "llama")]
    part.data["cases"] = cases = []

    def check(model: Path, precision: str) -> List[Dict]:
        case = {"model": model.name, "precision": precision}
        folder = work.scratch / "goldens" / f"{model.name}-{precision}"
        try:
            work.compile(model, folder, part.limit(60, str(case)), *PRECISIONS[precision])
        except Failed as problem:
            late = isinstance(problem, OutOfTime)
            return [{**case, "runtime": name, "verdict": "not run" if late else "failed", "why": str(problem)} for name in work.runtimes]
        return [{**case, "runtime": name, **verified(work, part, folder, model, name)} for name in work.runtimes]

    with ThreadPoolExecutor(work.jobs) as pool:
        waiting = [pool.submit(check, model, precision) for model in models for precision in PRECISIONS]
        for future in waiting:
            cases.extend(future.result())
    for case in cases:
        if case["verdict"] == "failed":
            part.problems.append(f"{case['model']} {case['precision']} on {case['runtime']}: {case['why']}")
    late = sum(case["verdict"] == "not run" for case in cases)
    if late:
        part.skip(f"{late} of {len(cases)} cases were not run, no time was left")


def verified(work: Work, part: Part, folder: Path, model: Path, name: str) -> Dict:
    """Verifies an artifact on a runtime."""
    try:
        limit = part.limit(VERIFY_SECONDS, "verify")
    except OutOfTime as problem:
        return {"verdict": "not run", "why": str(problem)}
    # The runtime of the target is taken by default, and that is part of what is checked.
    named = [] if name == "cuda" else ["--runtime", name]
    done = work.run([work.planish, "verify", folder, "--reference", model, "--json", *named], limit)
    if done.code == STOPPED and part.is_over():
        return {"verdict": "not run", "why": done.why()}
    figures = worst(done)
    if done.code == 0:
        return {"verdict": "ok", "seconds": round(done.seconds, 2), **figures}
    return {"verdict": "failed", "why": done.why(), "seconds": round(done.seconds, 2), **figures}


def worst(done: Done) -> Dict:
    """The worst figures of a report of `planish verify --json`, wherever in it they are."""
    try:
        report = json.loads(done.output)
    except ValueError:
        return {}
    found: Dict[str, List[float]] = {"max_rel": [], "cosine": []}

    def look(value) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                if key in found and isinstance(inner, (int, float)):
                    found[key].append(inner)
                look(inner)
        elif isinstance(value, list):
            for inner in value:
                look(inner)

    look(report.get("cases", report) if isinstance(report, dict) else report)
    figures = {"max_rel": max(found["max_rel"], default=None), "cosine": min(found["cosine"], default=None)}
    return {key: value for key, value in figures.items() if value is not None}
