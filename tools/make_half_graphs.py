"""Writes fixtures/graphs/*-half: goldens as exporters of float16 graphs write them.

    HF_HUB_OFFLINE=1 python tools/make_half_graphs.py fixtures

Needs torch 2.15.0, transformers 4.57.6, optimum-onnx 0.1.0 and onnxruntime 1.31.1. Optimum's command line takes
`--dtype fp16` with a GPU only; what it calls is the same. Of decoders it exports scaled dot product attention
with operands of two types, which no runtime loads, so attention is the eager one, whose softmax is in float32.
"""

import sys
from pathlib import Path

import onnx
import torch
from onnxruntime.transformers.float16 import convert_float_to_float16
from optimum.exporters.onnx import onnx_export_from_model
from optimum.exporters.tasks import TasksManager

MODELS = {
    "bert": ("feature-extraction", "sdpa"),
    "gpt2": ("text-generation-with-past", "eager"),
    "llama": ("text-generation-with-past", "eager"),
}


def export(fixtures, name):
    """A golden in float16 by Optimum."""
    task, attention = MODELS[name]
    model = TasksManager.get_model_from_task(
        task, str(fixtures / "goldens" / name), framework="pt", torch_dtype=torch.float16, attn_implementation=attention
    )
    folder = fixtures / "graphs" / f"optimum-{name}-half"
    onnx_export_from_model(model, folder, task=task, dtype="fp16", do_validation=False)
    for file in folder.iterdir():
        if file.name != "model.onnx":
            file.unlink()


def convert(fixtures, name):
    """Optimum's float32 graph by ONNX Runtime's converter, with norms and softmax left in float32."""
    model = onnx.load(fixtures / "graphs" / f"optimum-{name}" / "model.onnx")
    blocked = ["LayerNormalization", "Softmax"]
    model = convert_float_to_float16(model, keep_io_types=True, op_block_list=blocked)
    folder = fixtures / "graphs" / f"ort-{name}-half"
    folder.mkdir(exist_ok=True)
    onnx.save(model, folder / "model.onnx")


if __name__ == "__main__":
    fixtures = Path(sys.argv[1])
    for name in MODELS:
        export(fixtures, name)
    convert(fixtures, "bert")
