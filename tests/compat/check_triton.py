#!/usr/bin/env python3
"""Holds the files of `--package triton` against NVIDIA's protocol of the server, which is not run.

    check_triton.py PLANISH MINILM SENTENCES MODEL...

It compiles each MODEL, and MiniLM with the tokenizer (`--recipe tokenizer=true`), and parses each config.pbtxt as the message ModelConfig of
the package tritonclient. Of MiniLM it checks that the steps of the ensemble take what the ones before them give, runs model.py with a stand-in for
the server's module, gives what it makes of SENTENCES to ONNX Runtime, and compares with `PLANISH embed`. Exits 1 when a case fails.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
from google.protobuf import text_format
from google.protobuf.json_format import MessageToDict
from tritonclient.grpc import model_config_pb2

from cases import Mismatch, compiled, difference

PACKAGE = ("--package", "triton")
TOLERANCE = 1e-5


class Tensor:
    """The server's tensor: a name and an array."""

    def __init__(self, name: str, array: np.ndarray):
        self.name, self.array = name, array

    def as_numpy(self) -> np.ndarray:
        return self.array


def configurations(repository: Path) -> dict[str, model_config_pb2.ModelConfig]:
    """The configuration of each model, by the name of its folder, which has a version 1."""
    found = {}
    for path in sorted(repository.glob("*/config.pbtxt")):
        found[path.parent.name] = text_format.Parse(path.read_text(), model_config_pb2.ModelConfig())
        if not (path.parent / "1").is_dir():
            raise Mismatch(f"{path.parent.name} has no version 1")
    return found


def check_steps(configs: dict[str, model_config_pb2.ModelConfig], name: str) -> None:
    """Each step takes all inputs of its model, of the types that are given, and the ensemble gives what steps gave."""
    form = lambda port: (port.data_type, list(port.dims))
    given = {port.name: form(port) for port in configs[name].input}
    for step in configs[name].ensemble_scheduling.step:
        model = configs[step.model_name]
        taken = {port.name: form(port) for port in model.input}
        if {key: given.get(value) for key, value in step.input_map.items()} != taken:
            raise Mismatch(f"{step.model_name} takes {taken}, and is given {dict(step.input_map)} of {given}")
        outputs = {port.name: form(port) for port in model.output}
        given |= {value: outputs[key] for key, value in step.output_map.items()}
    for port in configs[name].output:
        if given.get(port.name) != form(port):
            raise Mismatch(f"{name} gives {port.name}, {form(port)}, and has {given.get(port.name)}")


def reader(folder: Path, config: model_config_pb2.ModelConfig) -> object:
    """The model of model.py, as the python backend makes it."""
    server = types.ModuleType("triton_python_backend_utils")
    server.Tensor = Tensor
    server.InferenceResponse = lambda tensors: tensors
    server.get_input_tensor_by_name = lambda request, name: request[name]
    sys.modules[server.__name__] = server
    spec = importlib.util.spec_from_file_location("model", folder / "1/model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.TritonPythonModel()
    model.initialize({"model_config": json.dumps(MessageToDict(config, preserving_proto_field_name=True))})
    return model


def embedded(planish: Path, artifact: Path, sentences: Path, scratch: Path) -> str:
    """Compares the ensemble's vectors with those of planish."""
    (name,) = (path.name.removesuffix("-text") for path in artifact.glob("*-text"))
    configs = configurations(artifact)
    check_steps(configs, f"{name}-text")
    model = reader(artifact / f"{name}-tokenizer", configs[f"{name}-tokenizer"])
    session = onnxruntime.InferenceSession(artifact / name / "1" / configs[name].default_model_filename)
    lines = sentences.read_text().splitlines()
    found = []
    for at in range(0, len(lines), 16):
        texts = np.array([[line.encode()] for line in lines[at : at + 16]], dtype=object)
        (response,) = model.execute([{"TEXT": Tensor("TEXT", texts)}])
        found.append(session.run(["sentence_embedding"], {tensor.name: tensor.array for tensor in response})[0])
    out = scratch / "vectors.npy"
    subprocess.run([planish, "embed", artifact, "--data", sentences, "-o", out], check=True, capture_output=True)
    largest = difference("embed", np.concatenate(found), np.load(out), None, TOLERANCE)
    return f"{len(configs)} models, {len(lines)} texts, largest difference {largest:.1e}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("planish", type=Path)
    parser.add_argument("minilm", type=Path)
    parser.add_argument("sentences", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    arguments = parser.parse_args()
    failed = 0

    def line(name: str, seen: Callable[[Path], str]) -> None:
        nonlocal failed
        with tempfile.TemporaryDirectory() as scratch:
            try:
                print(f"ok    triton     {name:16} {seen(Path(scratch))}", flush=True)
            except Exception as error:
                failed += 1
                print(f"FAIL  triton     {name:16} {type(error).__name__}: {error}", flush=True)

    def parsed(model: Path, scratch: Path) -> str:
        configs = configurations(compiled(arguments.planish, model, scratch / "artifact", *PACKAGE))
        if not configs:
            raise Mismatch("there is no config.pbtxt")
        return f"ModelConfig of {', '.join(configs)}"

    for model in arguments.models:
        line(model.name, lambda scratch: parsed(model, scratch))

    def with_tokenizer(scratch: Path) -> str:
        artifact = compiled(arguments.planish, arguments.minilm, scratch / "artifact", *PACKAGE, "--recipe", "tokenizer=true")
        return embedded(arguments.planish, artifact, arguments.sentences, scratch)

    line("an ensemble", with_tokenizer)
    print(f"{len(arguments.models) + 1 - failed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
