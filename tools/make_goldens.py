#!/usr/bin/env python3
"""Writes tiny checkpoints with random weights, and what transformers computes for them in float64.

    make_goldens.py OUT [NAME...]

OUT/NAME gets config.json, generation_config.json, model.safetensors and io.safetensors, as
fixtures/goldens/README.md describes. Needs torch, transformers==5.23.0 and safetensors. The same
versions give the same bytes: seeds are fixed.

To add a case, add a line to DECODERS or SEQ2SEQ.
"""

import argparse
import copy
import shutil
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

TINY = {
    "vocab_size": 139, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None,
}

# name -> (class of the model, keys of the configuration that differ from TINY)
DECODERS = {
    "qwen3": ("Qwen3ForCausalLM", {"num_key_value_heads": 2, "head_dim": 16}),
}

# name -> (class of the model, configuration)
SEQ2SEQ = {
    "marian": ("MarianMTModel", {
        "vocab_size": 131, "decoder_vocab_size": 131, "d_model": 48, "max_position_embeddings": 64, "scale_embedding": True,
        "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 80,
        "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 80,
        "pad_token_id": 130, "decoder_start_token_id": 130, "eos_token_id": 0, "forced_eos_token_id": 0,
    }),
}

LENGTH, NEW, PROMPT = 9, 12, 9


def build(name: str, kind: str, keys: dict):
    """A model in float64 with weights drawn at random, norms and biases too."""
    torch.manual_seed(sum(name.encode()))
    model_class = getattr(transformers, kind)
    config = model_class.config_class(**keys)
    model = model_class._from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            spread = torch.randn_like(parameter)
            # Matrices keep activations near 1; vectors are near what they start from, and no two alike.
            parameter.add_(spread * (0.1 if parameter.ndim == 1 else 0.08))
    model.tie_weights()
    return model


def cache_layers(cache) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(layer.keys, layer.values) for layer in cache.layers]


def generated(model, prompt, **extra) -> dict:
    """Greedy and beam ids: no end token, no length penalty."""
    model = copy.deepcopy(model)
    settings = dict(max_new_tokens=NEW, do_sample=False, eos_token_id=None, forced_eos_token_id=None, pad_token_id=0, length_penalty=0.0, **extra)
    return {
        "out.greedy": model.generate(prompt, num_beams=1, **settings),
        "out.beam4": model.generate(prompt, num_beams=4, **settings),
    }


def decoder_io(model) -> dict:
    """Rows of two lengths, each computed alone and unpadded, and a step on the cache of each."""
    vocabulary = model.config.vocab_size
    lengths = [LENGTH, LENGTH - 3]
    rows = [torch.randint(3, vocabulary, (1, length + 1)) for length in lengths]
    io = {"in.input_ids": torch.zeros(2, LENGTH, dtype=torch.int64), "in.attention_mask": torch.zeros(2, LENGTH, dtype=torch.int64)}
    io["in.position_ids"] = torch.zeros(2, LENGTH, dtype=torch.int64)
    io["in.step.input_ids"] = torch.stack([row[0, -1:] for row in rows])
    io["in.step.position_ids"] = torch.tensor([[length] for length in lengths])
    logits, steps, presents = [], [], []
    for b, (row, length) in enumerate(zip(rows, lengths)):
        start = LENGTH - length
        io["in.input_ids"][b, start:] = row[0, :-1]
        io["in.attention_mask"][b, start:] = 1
        io["in.position_ids"][b, start:] = torch.arange(length)
        out = model(row[:, :-1], use_cache=True)
        presents.append([(k.clone(), v.clone()) for k, v in cache_layers(out.past_key_values)])
        steps.append(model(row[:, -1:], past_key_values=out.past_key_values).logits[0])
        logits.append(torch.cat([torch.zeros(start, out.logits.shape[-1]), out.logits[0]]))
    io["in.step.attention_mask"] = torch.cat([io["in.attention_mask"], torch.ones(2, 1, dtype=torch.int64)], 1)
    io["out.logits"], io["out.step.logits"] = torch.stack(logits), torch.stack(steps)
    for layer in range(len(presents[0])):
        for which, side in enumerate(("key", "value")):
            kept = [row[layer][which][0] for row in presents]
            # A window keeps fewer positions than the graph's cache does.
            if any(k.shape[1] != length for k, length in zip(kept, lengths)):
                continue
            padded = [torch.cat([torch.zeros(k.shape[0], LENGTH - k.shape[1], k.shape[2]), k], 1) for k in kept]
            io[f"out.present.{layer}.{side}"] = torch.stack(padded)
    prompt = torch.randint(3, vocabulary, (1, PROMPT))
    return io | {"in.prompt": prompt} | generated(model, prompt)


def seq2seq_io(model) -> dict:
    """Rows of two lengths padded on the right, a decoder prefix, and generated ids."""
    config = model.config
    vocabulary = config.vocab_size
    ids = torch.randint(3, vocabulary, (2, LENGTH))
    mask = torch.ones_like(ids)
    mask[1, LENGTH - 3 :] = 0
    ids[1, LENGTH - 3 :] = config.pad_token_id
    decoder = torch.randint(3, vocabulary, (2, 5))
    decoder[:, 0] = config.decoder_start_token_id
    out = model(input_ids=ids, attention_mask=mask, decoder_input_ids=decoder)
    prompt = torch.randint(3, vocabulary, (1, PROMPT))
    return {
        "in.input_ids": ids, "in.attention_mask": mask, "in.decoder_input_ids": decoder,
        "out.encoder_last_hidden_state": out.encoder_last_hidden_state, "out.logits": out.logits,
        "in.prompt": prompt,
    } | generated(model, prompt)


def write(name: str, folder: Path) -> None:
    decoder = name in DECODERS
    kind, keys = DECODERS[name] if decoder else SEQ2SEQ[name]
    model = build(name, kind, TINY | keys if decoder else keys)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model.save_pretrained(folder)
    # The reference computes in float64 with the weights that were stored.
    model = model.double()
    torch.set_default_dtype(torch.float64)
    with torch.no_grad():
        io = (decoder_io if decoder else seq2seq_io)(model)
    torch.set_default_dtype(torch.float32)
    save_file({key: (value.float() if value.is_floating_point() else value).contiguous() for key, value in io.items()}, folder / "io.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    for name in args.names or [*DECODERS, *SEQ2SEQ]:
        write(name, args.out / name)
        print(args.out / name)


if __name__ == "__main__":
    main()
