#!/usr/bin/env python3
"""Writes what transformers 5 calls tensors in its in-memory form, next to what the hub's checkpoints call them.

    tensor_names.py GOLDENS OUT.json

Each model of GOLDENS (fixtures/goldens) is made anew with random weights, with its head and without, and saved in both
forms: as save_pretrained() does, and with save_original_format=False. Tensors with the same bytes are the same tensor.
OUT.json has the names of models whose forms are equal, and for the others the name of every tensor in both. Needs torch,
transformers==5.24.0 and safetensors.
"""

import argparse
import json
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file


def saved(model, original: bool) -> dict[bytes, str]:
    """The names of tensors as they are saved, by their bytes."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, save_original_format=original)
        tensors = load_file(f"{folder}/model.safetensors")
    names = {tensor.contiguous().numpy().tobytes(): name for name, tensor in tensors.items()}
    assert len(names) == len(tensors), "two tensors have the same bytes"
    return names


def renamed(kind: type, config) -> dict[str, str]:
    """The names of the tensors of a model in the in-memory form, by those of the hub."""
    torch.manual_seed(0)
    model = kind(config).float()
    with torch.no_grad():
        for value in [*model.parameters(), *model.buffers()]:
            if value.is_floating_point():
                value.normal_()
    model.tie_weights()
    hub, memory = saved(model, True), saved(model, False)
    assert hub.keys() == memory.keys(), f"{kind.__name__}: a tensor is not stored as it is in memory"
    return dict(sorted((name, memory[data]) for data, name in hub.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("goldens", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    same, differ = [], {}
    transformers.logging.disable_progress_bar()
    for path in sorted(args.goldens.glob("*/config.json")):
        config = transformers.AutoConfig.from_pretrained(path.parent)
        (head,) = config.architectures
        base = transformers.AutoModel._model_mapping[type(config)]
        for kind in dict.fromkeys([getattr(transformers, head), base]):
            name = f"{path.parent.name} {kind.__name__}"
            names = renamed(kind, config)
            if all(hub == memory for hub, memory in names.items()):
                same.append(name)
            else:
                differ[name] = names
    document = {"transformers": transformers.__version__, "same": same, "renamed": differ}
    args.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
