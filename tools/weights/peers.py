#!/usr/bin/env python3
"""INT4 by others: makes a model, or generates with it.

    peers.py ort FLOAT.onnx OUT.onnx BLOCK    ONNX Runtime's own tool: the range of each block, symmetric codes
    peers.py hqq FLOAT.onnx OUT.onnx BLOCK    ... half-quadratic quantization
    peers.py generate FOLDER PROMPT NEW RUNS  generates greedily with onnxruntime-genai; prints [[first, step], ...], in seconds

PROMPT is the number of tokens of the prompt, NEW that of new tokens.
"""

import json
import sys
import time


def quantize(method, model, out, block):
    import onnx
    from onnxruntime.quantization import matmul_nbits_quantizer as quantizer

    if method == "hqq":
        config = quantizer.HQQWeightOnlyQuantConfig(block_size=block)
    else:
        config = quantizer.DefaultWeightOnlyQuantConfig(block_size=block, is_symmetric=True, accuracy_level=4)
    job = quantizer.MatMulNBitsQuantizer(onnx.load(model), block_size=block, is_symmetric=True, accuracy_level=4, algo_config=config)
    job.process()
    job.model.save_model_to_file(out, use_external_data_format=True)


def generate(folder, prompt, new, runs):
    import onnxruntime_genai

    model = onnxruntime_genai.Model(folder)
    figures = []
    for _ in range(runs + 1):
        params = onnxruntime_genai.GeneratorParams(model)
        params.set_search_options(max_length=prompt + new, min_length=prompt + new, do_sample=False, batch_size=1)
        generator = onnxruntime_genai.Generator(model, params)
        start = time.perf_counter()
        generator.append_tokens([[3 + 7 * at % 1000 for at in range(prompt)]])
        generator.generate_next_token()
        first = time.perf_counter()
        for _ in range(new - 1):
            generator.generate_next_token()
        figures.append([first - start, (time.perf_counter() - first) / (new - 1)])
    # The first run warms up.
    json.dump(figures[1:], sys.stdout)


def main():
    what, *arguments = sys.argv[1:]
    if what == "generate":
        generate(arguments[0], *map(int, arguments[1:]))
    else:
        quantize(what, arguments[0], arguments[1], int(arguments[2]))


if __name__ == "__main__":
    main()
