#!/usr/bin/env python3
"""INT4 by others: makes a model, or generates with it.

    peers.py ort FLOAT.onnx OUT.onnx BLOCK    ONNX Runtime's own tool: the range of each block, symmetric codes
    peers.py hqq FLOAT.onnx OUT.onnx BLOCK    ... half-quadratic quantization
    peers.py serve FOLDER NEW                 generates NEW tokens greedily with onnxruntime-genai after each prompt, a list of ids
                                              on a line of standard input; prints [first, step] for each, in seconds
    peers.py fresh FOLDER IDS                 loads such a model and generates a token; prints [load, first]
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


def generated(genai, model, ids, new):
    """The time to the first token, and that of a step."""
    params = genai.GeneratorParams(model)
    length = len(ids) + new
    params.set_search_options(max_length=length, min_length=length, do_sample=False, batch_size=1)
    start = time.perf_counter()
    generator = genai.Generator(model, params)
    generator.append_tokens([ids])
    generator.generate_next_token()
    first = time.perf_counter()
    for _ in range(new - 1):
        generator.generate_next_token()
    return [first - start, (time.perf_counter() - first) / max(new - 1, 1)]


def serve(folder, new):
    import onnxruntime_genai

    model = onnxruntime_genai.Model(folder)
    for line in sys.stdin:
        print(json.dumps(generated(onnxruntime_genai, model, json.loads(line), new)), flush=True)


def fresh(folder, ids):
    import onnxruntime_genai

    start = time.perf_counter()
    model = onnxruntime_genai.Model(folder)
    load = time.perf_counter() - start
    print(json.dumps([load, generated(onnxruntime_genai, model, ids, 1)[0]]))


def main():
    what, *arguments = sys.argv[1:]
    if what == "serve":
        serve(arguments[0], int(arguments[1]))
    elif what == "fresh":
        fresh(arguments[0], json.loads(arguments[1]))
    else:
        quantize(what, arguments[0], arguments[1], int(arguments[2]))


if __name__ == "__main__":
    main()
