#!/usr/bin/env python3
"""Times a model that sees next to the transformers library, in one run: the first token after a prompt with a picture, and those after it.

    bench_seeing.py PLANISH PICTURE [--tokens 64] [--rounds 3] [--threads 2] [--precisions f32,fp16,int8,int4] [--edge 512] [--reuse] [--dir .bench/seeing]

The model has the sizes of SmolVLM-256M-Instruct and random weights, and DIR keeps it. The picture becomes one image of 512 x 512 pixels, or with --edge
1024 and more tiles of that size and one image. Each round runs transformers and then planish with each precision, in a process of its own each, and
the table has the medians: seconds from the loaded model to the first token, the processing of the picture included; tokens per second after it; and the
peak memory of the process with the model loaded.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "compat"))
os.environ.setdefault("HF_HUB_OFFLINE", "1")

SIZES = dict(
    text_config=dict(
        model_type="llama", hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
        head_dim=64, vocab_size=49280, max_position_embeddings=8192, pad_token_id=0, bos_token_id=1, eos_token_id=2, rope_theta=100000.0,
    ),
    vision_config=dict(
        hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, image_size=512, patch_size=16
    ),
    scale_factor=4,
)  # fmt: skip
PROMPT = "<image> what is this"


def make(folder: Path, edge: int) -> None:
    import torch
    import transformers
    from check_images_in_prompts import IMAGE, tokenizer

    torch.manual_seed(0)
    config = transformers.Idefics3Config(**SIZES, image_token_id=IMAGE, pad_token_id=0)
    transformers.Idefics3ForConditionalGeneration(config).save_pretrained(folder)
    images = transformers.Idefics3ImageProcessorPil(size={"longest_edge": edge}, max_image_size={"longest_edge": 512})
    transformers.Idefics3Processor(images, tokenizer(True), image_seq_len=64).save_pretrained(folder)
    images.save_pretrained(folder)


def reference(folder: str, picture: str, tokens: int, threads: int) -> None:
    """One run of transformers: prints what it measured."""
    import resource

    import torch
    import transformers
    from PIL import Image

    torch.set_num_threads(threads)
    model = transformers.Idefics3ForConditionalGeneration.from_pretrained(folder).eval()
    processor = transformers.AutoProcessor.from_pretrained(folder)
    times = []

    class Clock(transformers.generation.streamers.BaseStreamer):
        def put(self, value):
            times.append(time.perf_counter())

        def end(self):
            pass

    start = time.perf_counter()
    inputs = processor(images=[Image.open(picture).convert("RGB")], text=PROMPT, return_tensors="pt")
    with torch.no_grad():
        model.generate(**inputs, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, streamer=Clock())
    # The first call has the prompt.
    new = times[1:]
    print(json.dumps(dict(
        first=new[0] - start, speed=(len(new) - 1) / (new[-1] - new[0]), prompt=inputs["input_ids"].shape[1],
        memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )))  # fmt: skip


def child(command: list[str]) -> tuple[str, float]:
    """Runs a command: its output, and the peak memory in MiB of it and of the processes that it ran."""
    read = "import resource, subprocess, sys; d = subprocess.run(sys.argv[1:], capture_output=True, text=True); print(d.stdout); " \
        "print(d.stderr[-500:], file=sys.stderr); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(d.returncode)"
    done = subprocess.run([sys.executable, "-c", read, *map(str, command)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command}: {done.stderr}")
    *lines, peak = done.stdout.strip().splitlines()
    return "\n".join(lines), int(peak) / 1024


def planish(args: argparse.Namespace, artifact: Path) -> dict:
    command = [args.planish, "generate", artifact, "--prompt", PROMPT, "--image", args.picture, "--json", "--ignore-eos", "--greedy"]
    said, memory = child([*command, "--max-new-tokens", args.tokens, "--threads", args.threads])
    speed = json.loads(said)["speed"]
    return dict(first=speed["first_token_s"], speed=speed["tokens_per_s"], prompt=speed["prompt_tokens"], memory=memory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("planish", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precisions", default="f32,fp16,int8,int4")
    parser.add_argument("--edge", type=int, default=512)
    parser.add_argument("--reuse", action="store_true", help="take artifacts that are in DIR")
    parser.add_argument("--dir", type=Path, default=Path(".bench/seeing"))
    args = parser.parse_args()
    model = args.dir / f"model-{args.edge}"
    if not (model / "model.safetensors").exists():
        make(model, args.edge)
    rows: dict[str, list[dict]] = {"transformers": []}
    artifacts = {}
    for precision in args.precisions.split(","):
        artifacts[precision] = args.dir / f"{precision}-{args.edge}"
        options = [] if precision == "f32" else [f"--{precision}"]
        if not (args.reuse and artifacts[precision].exists()):
            child([args.planish, "compile", model, "-o", artifacts[precision], "--target", "ort", "--force", *options])
        rows[f"planish {precision}"] = []
    for number in range(args.rounds):
        mine = f"from bench_seeing import reference; reference({str(model)!r}, {str(args.picture)!r}, {args.tokens}, {args.threads})"
        said = subprocess.run([sys.executable, "-c", mine], cwd=os.getcwd(), capture_output=True, text=True, check=True,
                              env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)}).stdout
        rows["transformers"].append(json.loads(said.strip().splitlines()[-1]))
        for precision, artifact in artifacts.items():
            rows[f"planish {precision}"].append(planish(args, artifact))
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
    print("| | first token, s | tokens/s | prompt tokens | peak memory, MiB |\n|---|---|---|---|---|")
    for name, found in rows.items():
        middle = {key: statistics.median(one[key] for one in found) for key in found[0]}
        print(f"| {name} | {middle['first']:.2f} | {middle['speed']:.1f} | {middle['prompt']:.0f} | {middle['memory']:.0f} |")


if __name__ == "__main__":
    main()
