#!/usr/bin/env python3
"""Holds artifacts against stored outputs, loaded and run by Optimum's classes for ONNX Runtime.

    check_optimum.py PLANISH [--tolerance 1e-4] CASE...

A CASE is a checkpoint folder with an io.safetensors in it, or MODEL:IO to name the two. For each case
it runs `PLANISH compile MODEL`, loads the folder with `from_pretrained` of the class for its task,
without any further argument, and compares what the model returns for `in.NAME` with `out.NAME`, and
text that it generates with `out.greedy` and `out.beam4`. An output that the class does not return is
named. Of an encoder-decoder the graph of both decoders, which `--package transformers-js` adds, is held against the
same. What Optimum is known not to run must fail as it is known to: see KNOWN. Exits 1 when a case fails.

The configurations are as transformers 5 writes them, with `dtype` and `rope_parameters`; Optimum runs
on transformers 4.57, which does not know the latter. It takes only sizes and token ids from them: what
rotates is in the graph.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
from optimum import onnxruntime as optimum
from transformers import GenerationMixin

from cases import Case, Mismatch, as_known, check_all, difference, same_ids

# The class for each ending of the name of a model class in config.json.
CLASSES = {
    "LMHeadModel": optimum.ORTModelForCausalLM,
    "ForCausalLM": optimum.ORTModelForCausalLM,
    "WhisperForConditionalGeneration": optimum.ORTModelForSpeechSeq2Seq,
    "ForConditionalGeneration": optimum.ORTModelForSeq2SeqLM,
    "MTModel": optimum.ORTModelForSeq2SeqLM,
    "ForImageClassification": optimum.ORTModelForImageClassification,
    "ForSemanticSegmentation": optimum.ORTModelForSemanticSegmentation,
    "ForCTC": optimum.ORTModelForCTC,
    "ForAudioClassification": optimum.ORTModelForAudioClassification,
    "ForAudioFrameClassification": optimum.ORTModelForAudioFrameClassification,
    "ForXVector": optimum.ORTModelForAudioXVector,
    # Classes of speech have this ending too.
    **{
        f"{kind}ForSequenceClassification": optimum.ORTModelForAudioClassification
        for kind in ("Wav2Vec2", "Hubert", "WavLM", "UniSpeech", "UniSpeechSat", "Data2VecAudio", "Wav2Vec2Conformer")
    },
    "ForSequenceClassification": optimum.ORTModelForSequenceClassification,
    "ForTokenClassification": optimum.ORTModelForTokenClassification,
    "ForMultipleChoice": optimum.ORTModelForMultipleChoice,
    "ForQuestionAnswering": optimum.ORTModelForQuestionAnswering,
    "ForMaskedLM": optimum.ORTModelForMaskedLM,
    # Tasks that it has no class for.
    "ForObjectDetection": optimum.ORTModelForCustomTasks,
    "ForDepthEstimation": optimum.ORTModelForCustomTasks,
    "ForPoseEstimation": optimum.ORTModelForCustomTasks,
    "VisionEncoderDecoderModel": optimum.ORTModelForVision2Seq,
    "CLIPModel": optimum.ORTModelForZeroShotImageClassification,
    "SiglipModel": optimum.ORTModelForZeroShotImageClassification,
    "Model": optimum.ORTModelForFeatureExtraction,
}

# What optimum-onnx 0.1.0 cannot run, and what its error says. It reads `num_key_value_heads` of the types in a list of
# its own, and else makes an empty cache with as many heads of keys as of queries: these goldens have 2 and 4. It takes it
# that the heads share the hidden size evenly. It gives no states of a fixed size, and a cache of latents has one head. It
# runs on transformers 4.57, which does not have all types, nor the layers of Granite 4 by their newer names.
SHARED_KEYS = "past_key_values.1.key for the following indices\n index: 1 Got: 4 Expected: 2"
OWN_HEAD_SIZE = "index: 3 Got: 12 Expected: 16"
UNKNOWN = "Transformers does not recognize this architecture"
LATENTS = "index: 1 Got: 4 Expected: 1"
STATES = "Input past_conv.0 is required by model but not provided"
WITHOUT_HEADS = "object has no attribute 'num_attention_heads'"
# Its class for CTC passes samples on, and no features.
SAMPLES = "input_values must be provided for this model"
KNOWN = {
    "bamba": STATES,
    "blip": "'BlipConfig' object has no attribute 'vocab_size'",
    # Its class for feature extraction returns the output last_hidden_state alone.
    "clap": "last_hidden_state",
    "cohere2": SHARED_KEYS,
    "deepseek-v2": LATENTS,
    "deepseek-v3": LATENTS,
    "dots1": SHARED_KEYS,
    "ernie4-5": SHARED_KEYS,
    "ernie4-5-moe": SHARED_KEYS,
    "eurobert": UNKNOWN,
    "exaone4": SHARED_KEYS,
    # Its keys are repeated for all heads of queries, and Optimum knows that they are shared.
    "falcon": "index: 1 Got: 2 Expected: 4",
    "falcon-h1": STATES,
    "falcon-mamba": WITHOUT_HEADS,
    "gemma2": OWN_HEAD_SIZE,
    "gemma4": UNKNOWN,
    "glm4": SHARED_KEYS,
    "glm4-moe": SHARED_KEYS,
    "granitemoe": SHARED_KEYS,
    "granitemoehybrid": "layer_types must be a list strings in",
    "gte": UNKNOWN,
    "hunyuan-moe": SHARED_KEYS,
    "jamba": STATES,
    "jina-v3": UNKNOWN,
    # Its class for feature extraction passes no other inputs than those of BERT.
    "layoutlm": "Input bbox is required by model but not provided",
    "lfm2": STATES,
    "lfm2-moe": UNKNOWN,
    "llama-dynamic": OWN_HEAD_SIZE,
    "llama-yarn": OWN_HEAD_SIZE,
    "llama4": SHARED_KEYS.replace("1.key", "2.value"),
    "mamba": WITHOUT_HEADS,
    "mamba2": WITHOUT_HEADS,
    "minicpm3": UNKNOWN,
    "mixtral": SHARED_KEYS,
    "nemotron-h": UNKNOWN,
    "nomic-bert": UNKNOWN,
    "olmo2": SHARED_KEYS,
    "olmo3": SHARED_KEYS,
    "olmoe": SHARED_KEYS,
    "parakeet": SAMPLES,
    "phi3": SHARED_KEYS,
    "phi3-longrope": "past_key_values.1.key for the following indices",
    "phimoe": SHARED_KEYS,
    "qwen2-moe": SHARED_KEYS,
    "qwen3": OWN_HEAD_SIZE,
    "qwen3-5": UNKNOWN,
    "qwen3-5-moe": UNKNOWN,
    "qwen3-next": STATES,
    # Its class knows images of one size only.
    "siglip2": "Input pixel_attention_mask is required by model but not provided",
    "starcoder2": SHARED_KEYS,
    "wav2vec2-bert": SAMPLES,
}

# The same of both decoders in one graph, which takes an empty cache: Optimum makes it for heads that share the hidden size.
KNOWN_MERGED = {"t5-gated-untied": "index: 3 Got: 8 Expected: 12"}

# How the golden's text was generated.
GENERATED = {"greedy": 1, "beam4": 4}


def load(folder: Path):
    """The model, by the class that its configuration asks for."""
    (name,) = json.loads((folder / "config.json").read_text())["architectures"]
    return next(known for ending, known in CLASSES.items() if name.endswith(ending)).from_pretrained(folder)


def compare(model, inputs: dict[str, np.ndarray], expected: dict[str, np.ndarray], tolerance: float) -> str:
    """Compares what a run returns and what is generated; returns what was seen."""
    mask = inputs["attention_mask"].astype(bool) if "attention_mask" in inputs else None
    first = {name: t for name, t in inputs.items() if not name.startswith("step.") and not name.endswith("prompt")}
    returned = model(**{name: torch.from_numpy(t) for name, t in first.items()})
    worst, missing = 0.0, []
    for name, want in expected.items():
        # The cache is not returned under names; the text that is generated depends on it.
        if name in GENERATED or name.startswith(("present.", "step.")):
            continue
        if name not in returned:
            missing.append(name)
            continue
        of_tokens = None if name == "logits" and "decoder_input_ids" in inputs else mask
        worst = max(worst, difference(name, returned[name].numpy(), want, of_tokens, tolerance))
    text = f"{type(model).__name__}, worst difference {worst:.1e}"
    if "prompt" in inputs:
        prompt = torch.from_numpy(inputs["prompt"])
        for name, beams in GENERATED.items():
            # The text of an encoder-decoder begins with a start token instead of the prompt.
            count = expected[name].shape[1] - (1 if "decoder_input_ids" in inputs else prompt.shape[1])
            ids = model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                num_beams=beams,
                do_sample=False,
                min_new_tokens=count,
                max_new_tokens=count,
                forced_eos_token_id=None,
            )
            same_ids(name, ids.numpy(), expected[name])
        text += ", ids equal: " + ", ".join(GENERATED)
    if "decoder_prompt" in inputs:
        prompt = torch.from_numpy(inputs["decoder_prompt"])
        count = expected["greedy"].shape[1] - prompt.shape[1]
        # The generation of Whisper's class adds tokens of its own to the prompt.
        ids = GenerationMixin.generate(
            model,
            input_features=torch.from_numpy(inputs["input_features"][: len(prompt)]),
            decoder_input_ids=prompt,
            do_sample=False,
            min_new_tokens=count,
            max_new_tokens=count,
            begin_suppress_tokens=None,
        )
        same_ids("greedy", ids.numpy(), expected["greedy"])
        text += ", ids equal: greedy"
    return text + "".join(f"; returns no {name}" for name in missing)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("planish", type=Path, help="the binary")
    parser.add_argument("cases", nargs="+", metavar="CASE", type=Case)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    args = parser.parse_args()

    def check(case: Case, scratch: Path) -> str:
        folder = case.compile(args.planish, scratch / "out")
        found = as_known(KNOWN.get(case.name), lambda: compare(load(folder), *case.tensors(), args.tolerance))
        if case.name in KNOWN or not (folder / "decoder_with_past_model.onnx").exists():
            return found
        model = load(case.compile(args.planish, scratch / "merged", "--package", "transformers-js"))
        if not model.decoder.is_merged:
            raise Mismatch("the merged decoder is not taken")
        merged = as_known(KNOWN_MERGED.get(case.name), lambda: compare(model, *case.tensors(), args.tolerance))
        return f"{found}; merged: {merged}"

    return check_all(args.cases, "optimum", check)


if __name__ == "__main__":
    sys.exit(main())
