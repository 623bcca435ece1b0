#!/usr/bin/env python3
"""Quantizes an ONNX export with a peer: one process for each, so that its time and memory are its own.

    peers.py dynamic SOURCE.onnx TARGET.onnx
    peers.py static-minmax|static-entropy|static-matmul SOURCE.onnx TARGET.onnx TOKENIZER TEXTS LENGTH
    peers.py nncf SOURCE.onnx TARGET.xml TOKENIZER TEXTS LENGTH

TOKENIZER is a tokenizer.json, or `-` for random ids. TEXTS is a .jsonl file. LENGTH is the most tokens of a text.
ONNX Runtime's tools take uint8 activations and int8 weights per output channel, as its documentation advises for x86-64
processors with VNNI, after its own preprocessing. `static-matmul` takes products with weights only, and leaves their
results in float32. NNCF takes its settings for transformers.
"""

import os
import sys
import tempfile
from pathlib import Path

# Keeps the telemetry of OpenVINO and NNCF off.
os.environ["CI"] = "true"

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from quantization import inputs  # noqa: E402


def dynamic(source, target):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(source, target, weight_type=QuantType.QInt8, per_channel=True)


def static(source, target, method, samples):
    from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.samples = iter(samples)

        def get_next(self):
            return next(self.samples, None)

    calibration = CalibrationMethod.Entropy if method == "entropy" else CalibrationMethod.MinMax
    products = {"MatMulConstBOnly": True, "OpTypesToExcludeOutputQuantization": ["MatMul"]}
    chosen = {"op_types_to_quantize": ["MatMul"], "extra_options": products} if method == "matmul" else {}
    with tempfile.TemporaryDirectory() as folder:
        prepared = str(Path(folder) / "prepared.onnx")
        # Symbolic shape inference fails on Optimum's export ("Incomplete symbolic shape inference").
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            target,
            Reader(),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
            calibrate_method=calibration,
            **chosen,
        )


def nncf_static(source, target, samples):
    import nncf
    import openvino

    model = openvino.convert_model(source)
    names = {name for port in model.inputs for name in port.get_names()}
    samples = [{name: tensor for name, tensor in sample.items() if name in names} for sample in samples]
    data = nncf.Dataset(samples)
    quantized = nncf.quantize(model, data, model_type=nncf.ModelType.TRANSFORMER, subset_size=len(samples))
    openvino.save_model(quantized, target, compress_to_fp16=False)


def main():
    peer, source, target = sys.argv[1:4]
    if peer == "dynamic":
        return dynamic(source, target)
    tokenizer, texts, length = sys.argv[4:7]
    samples = inputs.samples(tokenizer, Path(texts), int(length), inputs.onnx_inputs(source))
    if peer == "nncf":
        return nncf_static(source, target, samples)
    return static(source, target, peer.removeprefix("static-"), samples)


if __name__ == "__main__":
    sys.exit(main())
